"""What every component and layer gave in one unit's step: calls, seconds and a digest each.

A unit whose request asks for detail runs by itself while its parts are watched by hooks. Alone it
gives the bits that it gives in any batch, so what is recorded does not depend on who runs beside
it, and whoever did not ask runs as ever. A digest is the SHA-256 of the exact bytes of all that a
layer gave for the unit, call after call: whether two rows took one call or two changes nothing.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar

import torch
from torch import nn

from fastvideo.engine.layer_shelf import LayerShelf
from fastvideo.engine.layers import encode_layers
from fastvideo.engine.live import Claim
from fastvideo.loops.contract import StepContext
from fastvideo.requests.types import TraceLevel
from fastvideo.scheduling.traces import ComponentsTraced, ComponentTrace
from fastvideo.scheduling.work import WorkUnit

T = TypeVar("T")

# A component that wraps an upstream module has it under this name.
_UPSTREAM: Final = "module"

Key = tuple[str, str]
"""A component, and a layer within; empty is the component itself."""


def is_traced(claim: Claim) -> bool:
    """Whether the components of a claimed unit are to be watched."""
    if claim.loop is None or claim.unit is None:
        return False
    asked = claim.loop.state.request.outputs.trace
    # What runs beside compute has no components, and must not disturb those that compute.
    return asked is TraceLevel.DETAIL and claim.unit.resources.compute


def traced(
    components: Mapping[str, Any],
    unit: WorkUnit,
    context: StepContext,
    shelf: LayerShelf | None,
    work: Callable[[], T],
) -> T:
    """Do a unit's work, its components watched; what they gave is noted.

    The layers go to the shelf; without one, and when it is full, the note has components alone.
    """
    trace = LayerTrace(components)
    context.taps = trace
    try:
        with trace:
            result = work()
    finally:
        context.taps = None
    if trace.layers:
        context.notes.append(
            ComponentsTraced(
                request_id=unit.loop.request_id,
                attempt=unit.loop.attempt,
                node_id=unit.loop.node_id,
                unit_id=unit.unit_id,
                step_range=unit.step_range,
                components=trace.components,
                layers_digest=shelf.keep(encode_layers(trace.layers)) if shelf is not None else "",
                layers=len(trace.layers),
            )
        )
    return result


@dataclass(slots=True)
class _Given:
    """What one layer gave so far."""

    calls: int = 0
    seconds: float = 0.0
    digest: Any = field(default_factory=hashlib.sha256)

    def add(self, value: Any, seconds: float) -> None:
        self.calls += 1
        self.seconds += seconds
        for tensor in _tensors(value):
            self.digest.update(_bytes(tensor))

    def trace(self, key: Key) -> ComponentTrace:
        component, layer = key
        return ComponentTrace(
            component=component,
            layer=layer,
            calls=self.calls,
            seconds=self.seconds,
            digest=self.digest.hexdigest(),
        )


class LayerTrace:
    """Watches the modules of components, as a context, in the thread that enters it."""

    def __init__(self, components: Mapping[str, Any]) -> None:
        self._components = {
            name: part for name, part in components.items() if isinstance(part, nn.Module)
        }
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        # In order of execution: a layer is there once its first call has ended.
        self._layers: dict[Key, _Given] = {}
        # What each component gave that was called from outside of it.
        self._outermost: dict[str, _Given] = {}
        # The calls that have begun and not ended.
        self._open: list[tuple[Key, float]] = []
        self._thread = 0
        self._paused = False

    @property
    def layers(self) -> tuple[ComponentTrace, ...]:
        """Every layer that ran, and what loops told of, in order of execution."""
        return tuple(given.trace(key) for key, given in self._layers.items())

    @property
    def components(self) -> tuple[ComponentTrace, ...]:
        """Every component that ran, in order of execution."""
        traces = []
        for name, given in self._outermost.items():
            whole = self._layers.get((name, ""), given)
            trace = whole.trace((name, ""))
            traces.append(trace)
        return tuple(traces)

    def output(self, component: str, value: Any) -> None:
        """Take what a loop tells of a component that is no module."""
        if not self._paused:
            self._note((component, ""), value, 0.0, outermost=True)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Take nothing of what runs within: it is not the unit's work."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def __enter__(self) -> Self:
        self._thread = threading.get_ident()
        for name, component in self._components.items():
            for layer, module in _named(component):
                self._watch((name, layer), module)
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _watch(self, key: Key, module: nn.Module) -> None:
        def begin(module: nn.Module, given: Any) -> None:
            if self._is_mine():
                self._open.append((key, time.perf_counter()))

        def end(module: nn.Module, given: Any, output: Any) -> None:
            if self._is_mine():
                self._end(key, output)

        self._handles.append(module.register_forward_pre_hook(begin))
        self._handles.append(module.register_forward_hook(end))

    def _is_mine(self) -> bool:
        # Other threads may run the same modules for others.
        return not self._paused and threading.get_ident() == self._thread

    def _end(self, key: Key, output: Any) -> None:
        ended_s = time.perf_counter()
        # Calls above it on the stack ended in an exception that somebody took.
        while self._open:
            opened, began_s = self._open.pop()
            if opened == key:
                outermost = all(other[0] != key[0] for other, _ in self._open)
                self._note(key, output, ended_s - began_s, outermost=outermost)
                return

    def _note(self, key: Key, value: Any, seconds: float, *, outermost: bool) -> None:
        self._layers.setdefault(key, _Given()).add(value, seconds)
        if outermost:
            self._outermost.setdefault(key[0], _Given()).add(value, seconds)


def _named(component: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The component itself as "", and its layers by the names that upstream gave them."""
    for name, module in component.named_modules():
        if name == _UPSTREAM:
            # It gives what the component gives.
            continue
        yield name.removeprefix(f"{_UPSTREAM}."), module


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _tensors(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)


def _bytes(tensor: torch.Tensor) -> Any:
    """The elements as they lie in memory, not copied where that can be avoided."""
    flat = tensor.detach().cpu().contiguous().view(-1)
    return flat.view(torch.uint8).numpy()
