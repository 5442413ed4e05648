"""Low-rank adapters (https://arxiv.org/abs/2106.09685): read as data, bound to a module by name.

The layers are those of `peft`. Two layouts are read: peft's, with `adapter_config.json` beside
the weights, and that of `diffusers.save_lora_adapter`, with the configuration in the header.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from peft import LoraConfig, inject_adapter_in_model, set_peft_model_state_dict
from safetensors import safe_open
from torch import nn

from fastvideo.errors import CheckpointError, InvalidField
from fastvideo.model.component_config import check_loaded_config
from fastvideo.model.specs import ComponentSpec
from fastvideo.models.loading.checkpoint import require_weights
from fastvideo.models.loading.placement import Placement

_CONFIG_FILE: Final = "adapter_config.json"
_HEADER_KEY: Final = "lora_adapter_metadata"
_PEFT_PREFIX: Final = "base_model.model."
_DOWN, _UP = ".lora_A.weight", ".lora_B.weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRankAdapter:
    """An adapter that no module has yet."""

    adapter_id: str
    # Rank and scale, for all layers or by pattern; see `peft.LoraConfig`.
    config: Mapping[str, Any] = field(repr=False)
    # "<layer>.lora_A.weight" [r, in] and "<layer>.lora_B.weight" [out, r].
    tensors: Mapping[str, torch.Tensor] = field(repr=False)

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers that it changes, by their name in the module."""
        return tuple(sorted(key.removesuffix(_DOWN) for key in self.tensors if _DOWN in key))

    def bind(self, module: nn.Module) -> tuple[str, ...]:
        """Add the adapter to a module's layers, switched on, and say which they are.

        Raises CheckpointError naming the adapter and each layer that the module lacks or that
        has another shape; then nothing was bound.
        """
        layers = self.layers
        known = dict(module.named_modules())
        faults = [fault for layer in layers if (fault := self._fault(layer, known.get(layer)))]
        if faults or not layers:
            raise CheckpointError(
                f"{self.adapter_id} does not fit {type(module).__name__}: "
                f"{'; '.join(faults) or 'it changes no layer'}",
                reason="ADAPTER_DOES_NOT_FIT",
                subject=self.adapter_id,
            )
        config = LoraConfig(**self.config, target_modules=list(layers), inference_mode=True)
        training = module.training
        # On no device first: nothing is drawn at random for what the checkpoint gives.
        inject_adapter_in_model(config, module, self.adapter_id, low_cpu_mem_usage=True)
        set_peft_model_state_dict(
            module, dict(self.tensors), self.adapter_id, low_cpu_mem_usage=True
        )
        module.train(training)
        module.requires_grad_(False)
        return layers

    def _fault(self, layer: str, found: nn.Module | None) -> str:
        if found is None:
            return f"there is no layer {layer}"
        weight = getattr(found, "weight", None)
        if not isinstance(weight, torch.Tensor) or weight.ndim != 2:
            return f"{layer} is {type(found).__name__}; allowed: a linear layer"
        down, up = self.tensors[layer + _DOWN], self.tensors[layer + _UP]
        change = [up.shape[0], down.shape[1]]
        if change != list(weight.shape):
            return f"{layer} is {list(weight.shape)}, the adapter {change}"
        return ""


def load_adapter(component: ComponentSpec, folder: Path, placement: Placement) -> LowRankAdapter:
    """An adapter's tensors and scale.

    Raises CheckpointError naming the component when a key is no part of such an adapter, a
    layer has but one of its two matrices, or nothing says rank and scale.
    """
    weights = require_weights(component, folder)
    if len(weights) > 1:
        raise _fault(component, f"{len(weights)} files of weights; allowed: one")
    with safe_open(weights[0], framework="pt") as file:
        metadata = file.metadata() or {}
        tensors = {
            key.removeprefix(_PEFT_PREFIX): file.get_tensor(key).to(
                device=placement.device, dtype=placement.dtype
            )
            for key in sorted(file.keys())
        }
    _check_pairs(component, tensors)
    config = _read_config(component, folder, metadata)
    check_loaded_config(component, config)
    return LowRankAdapter(
        adapter_id=component.component_id, config=_scales(component, config), tensors=tensors
    )


def _check_pairs(component: ComponentSpec, tensors: Mapping[str, torch.Tensor]) -> None:
    for key, tensor in tensors.items():
        ending = next((end for end in (_DOWN, _UP) if key.endswith(end)), None)
        if ending is None or tensor.ndim != 2:
            raise _fault(component, f"tensor {key!r}; allowed: layer{_DOWN} and layer{_UP}")
        other = key.removesuffix(ending) + (_UP if ending == _DOWN else _DOWN)
        if other not in tensors:
            raise _fault(component, f"tensor {other!r} is missing")


def _read_config(
    component: ComponentSpec, folder: Path, metadata: Mapping[str, str]
) -> dict[str, Any]:
    path = folder / _CONFIG_FILE
    text = path.read_text(encoding="utf-8") if path.is_file() else metadata.get(_HEADER_KEY)
    if text is None:
        raise _fault(
            component,
            f"nothing says rank and scale; allowed: {_CONFIG_FILE}, or {_HEADER_KEY} in the header",
        )
    try:
        config: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise _fault(component, f"the adapter's configuration is no JSON: {error}") from error
    return config


def _scales(component: ComponentSpec, config: Mapping[str, Any]) -> dict[str, Any]:
    """What fixes the change that the matrices make; where it goes, their names say.

    Variants that compute otherwise are refused.
    """
    key = f"components.{component.component_id}.config"
    if config.get("peft_type", "LORA") != "LORA":
        raise InvalidField(f"{key}.peft_type", config["peft_type"], "LORA")
    for name in ("use_dora", "lora_bias", "alora_invocation_tokens", "modules_to_save"):
        if config.get(name):
            raise InvalidField(f"{key}.{name}", config[name], "none")
    if config.get("bias", "none") != "none":
        raise InvalidField(f"{key}.bias", config["bias"], "none")
    scales = ("r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora")
    return {name: config[name] for name in scales if config.get(name) is not None}


def _fault(component: ComponentSpec, what: str) -> CheckpointError:
    return CheckpointError(f"{component.component_id}: {what}", subject=component.component_id)
