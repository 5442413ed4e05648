"""The one way from a card's component to an object: kind to loader, `load_id` to class."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch

from fastvideo.model.component_classes import check_class
from fastvideo.model.specs import ComponentKind, ComponentSpec
from fastvideo.models.loading.adapters import load_adapter
from fastvideo.models.loading.checkpoint import VerifiedCheckpoint, component_folder
from fastvideo.models.loading.placement import Placement, placement_of
from fastvideo.models.loading.upstream import load_configured, load_module

Loader = Callable[[ComponentSpec, Path, Placement], Any]
"""(component, its folder, placement) -> the loaded object."""

LOADERS: Final[Mapping[ComponentKind, Loader]] = {
    ComponentKind.DIT: load_module,
    ComponentKind.VAE: load_module,
    ComponentKind.TEXT_ENCODER: load_module,
    ComponentKind.VISION_ENCODER: load_module,
    ComponentKind.AUDIO_ENCODER: load_module,
    ComponentKind.AUDIO_TOKENIZER: load_module,
    ComponentKind.REASONER: load_module,
    ComponentKind.SCHEDULER: load_configured,
    ComponentKind.TOKENIZER: load_configured,
    ComponentKind.PROCESSOR: load_configured,
    ComponentKind.CONDITIONER: load_module,
    ComponentKind.ADAPTER: load_adapter,
    ComponentKind.REWARD_HEAD: load_module,
    ComponentKind.SAFETY_HEAD: load_module,
}


def load_component(
    component: ComponentSpec,
    checkpoint: VerifiedCheckpoint,
    device: torch.device = torch.device("cpu"),  # noqa: B008 - a constant
) -> Any:
    """One component: the upstream object, or a `LowRankAdapter`.

    `device` is the one that the worker computes on. Raises InvalidField naming the card's field
    and the allowed values, and CheckpointError naming the component, file or key at fault.
    """
    check_class(component)
    placement = placement_of(component, device)
    folder = component_folder(component, checkpoint)
    return LOADERS[component.kind](component, folder, placement)


def load_components(
    components: Mapping[str, ComponentSpec],
    checkpoint: VerifiedCheckpoint,
    device: torch.device = torch.device("cpu"),  # noqa: B008 - a constant
) -> dict[str, Any]:
    """All components by id; raises as `load_component` does."""
    return {
        name: load_component(component, checkpoint, device)
        for name, component in components.items()
    }
