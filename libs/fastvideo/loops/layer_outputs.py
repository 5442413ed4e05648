"""What the layers of a module give, kept as tensors, to be compared with another module's."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from fastvideo.loops.divergence import max_abs_difference


@contextmanager
def kept_outputs(module: nn.Module) -> Iterator[dict[str, list[torch.Tensor]]]:
    """By the name of a layer, all that it gives inside the block, in order of its calls.

    Layers that give something else than one tensor are left out.
    """
    kept: dict[str, list[torch.Tensor]] = {}

    def keep(name: str) -> Any:
        def hook(layer: nn.Module, given: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor):
                kept.setdefault(name, []).append(output.detach().clone())

        return hook

    handles = [
        layer.register_forward_hook(keep(name)) for name, layer in module.named_modules() if name
    ]
    try:
        yield kept
    finally:
        for handle in handles:
            handle.remove()


def layer_differences(
    ours: Mapping[str, list[torch.Tensor]], reference: Mapping[str, list[torch.Tensor]]
) -> dict[str, float]:
    """The largest difference of each layer that both ran on as many rows, in the reference's order.

    Whether the rows took one call or several does not matter. A layer that one side runs otherwise,
    such as on conditions that the other was given, is left out.
    """
    found = {}
    for name, theirs in reference.items():
        mine = ours.get(name)
        if mine is None:
            continue
        one, other = _rows(mine), _rows(theirs)
        if one is not None and other is not None and one.shape == other.shape:
            found[name] = max_abs_difference(one, other)
    return found


def _rows(outputs: list[torch.Tensor]) -> torch.Tensor | None:
    """The outputs of all calls below one another; None where they do not fit."""
    shapes = {(output.ndim, output.shape[1:]) for output in outputs}
    if len(shapes) != 1 or outputs[0].ndim == 0:
        return None
    return torch.cat(outputs)
