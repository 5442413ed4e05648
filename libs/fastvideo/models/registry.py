"""The families by name, each imported when a model of it is loaded."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

import torch

from fastvideo.errors import ContractViolation, NotFound
from fastvideo.loops.contract import LoopKernel
from fastvideo.model.component_config import check_component_configs
from fastvideo.model.manifest import manifest_digest, read_manifest, verify_checkpoint
from fastvideo.model.specs import ModelSpec
from fastvideo.models.resident import InstanceParts
from fastvideo.scheduling.work import UnitKind

FAMILIES: Final[Mapping[str, str]] = {"wan": "fastvideo.models.wan.program"}
"""Family name to the module that has its factory functions."""


class Family(Protocol):
    """The factory of a family: a module with these functions."""

    def load_components(self, card: ModelSpec, folder: Path) -> dict[str, Any]:
        """The card's components from a verified checkpoint folder."""
        ...

    def make_kernels(self, card: ModelSpec) -> dict[str, LoopKernel[Any, Any]]:
        """The kernels of the card's loops by loop id."""
        ...

    def fingerprint(self, card: ModelSpec, components: Mapping[str, Any]) -> dict[str, str]:
        """Measured facts of this machine that can change the bits of a result."""
        ...


def load_family(card: ModelSpec) -> Family:
    """The factory of a card's family.

    Raises NotFound naming the known families.
    """
    module = FAMILIES.get(card.family)
    if module is None:
        known = ", ".join(sorted(FAMILIES))
        raise NotFound(
            f"family is {card.family!r}; known families: {known}",
            reason="FAMILY_NOT_FOUND",
            subject="family",
        )
    family: Family = import_module(module)
    return family


def load_instance_parts(card: ModelSpec, checkpoint: Path) -> InstanceParts:
    """Verify a checkpoint and load the card's model from it.

    Raises CheckpointError naming the file, key or configuration value that is at fault, and
    ContractViolation for a component or loop of the card that the family does not have.
    """
    family = load_family(card)
    manifest = read_manifest(checkpoint)
    verify_checkpoint(checkpoint, manifest)
    check_component_configs(card, checkpoint)
    components = family.load_components(card, checkpoint)
    kernels = family.make_kernels(card)
    _check_complete(card, components, kernels)
    return InstanceParts(
        components=components,
        kernels=kernels,
        weights_version=manifest_digest(manifest),
        weights_bytes=_weights_bytes(components),
        precision="float32",
        fingerprint=family.fingerprint(card, components),
    )


def _check_complete(
    card: ModelSpec, components: Mapping[str, Any], kernels: Mapping[str, LoopKernel[Any, Any]]
) -> None:
    # Artifacts are written by a kernel of no model.
    loops = {
        name for name, loop in card.loops.items() if loop.unit_kind is not UnitKind.ARTIFACT_WRITE
    }
    missing = sorted(set(card.components) - set(components)) + sorted(loops - set(kernels))
    if missing:
        raise ContractViolation(
            f"family {card.family} does not have what {card.model_id} declares: "
            f"{', '.join(missing)}",
            subject=card.model_id,
        )


def _weights_bytes(components: Mapping[str, Any]) -> int:
    modules = [part for part in components.values() if isinstance(part, torch.nn.Module)]
    tensors = {
        id(tensor): tensor.nbytes
        for module in modules
        for tensor in (*module.parameters(), *module.buffers())
    }
    return sum(tensors.values())
