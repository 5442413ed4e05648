"""Objects of upstream classes: modules, schedulers, tokenizers and processors.

Nothing is fetched, no pickle is read and no code of a checkpoint runs: files are local, weights
are safetensors, and the class is the one that the card names.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from fastvideo.errors import CheckpointError
from fastvideo.model.component_config import check_loaded_config
from fastvideo.model.specs import ComponentSpec
from fastvideo.models.loading.checkpoint import require_weights
from fastvideo.models.loading.placement import Placement

_FAULTS: Final = ("missing_keys", "unexpected_keys", "mismatched_keys")


def load_module(component: ComponentSpec, folder: Path, placement: Placement) -> Any:
    """A module for inference: every parameter from the checkpoint, in eval mode, frozen.

    Parameters take the card's dtype whatever they are stored in, but for those that their class
    keeps in float32, as the class's own `from_pretrained(folder, dtype=...)` does.
    Raises CheckpointError naming the component and the keys that do not fit.
    """
    require_weights(component, folder)
    module, info = _from_pretrained(
        component,
        folder,
        dtype=placement.dtype,
        use_safetensors=True,
        output_loading_info=True,
    )
    faults = {kind: sorted(str(key) for key in info.get(kind, ())) for kind in _FAULTS}
    if any(faults.values()):
        shown = "; ".join(
            f"{kind.replace('_', ' ')}: {', '.join(keys)}" for kind, keys in faults.items() if keys
        )
        raise CheckpointError(
            f"{component.component_id} of {folder} does not fit: {shown}",
            subject=component.component_id,
        )
    check_loaded_config(component, _config_of(module))
    module.eval()
    module.requires_grad_(False)
    module.to(placement.device)
    return module


def load_configured(component: ComponentSpec, folder: Path, placement: Placement) -> Any:
    """An object that its configuration makes whole: a scheduler, tokenizer or processor.

    Raises CheckpointError naming the component.
    """
    options = {}
    if component.load_id.startswith("transformers."):
        options["trust_remote_code"] = False
    loaded = _from_pretrained(component, folder, **options)
    if component.config_schema:
        check_loaded_config(component, _config_of(loaded))
    return loaded


def upstream_class(component: ComponentSpec) -> Any:
    """The class that the card names; to be called once the name was checked."""
    library, _, name = component.load_id.partition(".")
    return getattr(import_module(library), name)


def _from_pretrained(component: ComponentSpec, folder: Path, **options: Any) -> Any:
    try:
        return upstream_class(component).from_pretrained(folder, local_files_only=True, **options)
    except Exception as error:
        # Whatever a library raises over a folder that it cannot read.
        raise CheckpointError(
            f"{component.component_id} cannot be loaded from {folder}: {error}",
            subject=component.component_id,
        ) from error


def _config_of(loaded: Any) -> Mapping[str, Any]:
    """The whole configuration; each library keeps it in its own place."""
    config = getattr(loaded, "config", None)
    if config is None:
        config = getattr(loaded, "init_kwargs", loaded)
    mapping: Mapping[str, Any] = config if isinstance(config, Mapping) else config.to_dict()
    return mapping
