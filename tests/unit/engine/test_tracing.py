"""What is recorded of layers: digests of a unit's outputs, whoever else runs and however."""

import threading
from typing import Any

import pytest
import torch
from torch import nn

from fastvideo.engine.layer_shelf import LayerShelf
from fastvideo.engine.layers import decode_layers, encode_layers
from fastvideo.engine.sink import LocalBlobs
from fastvideo.engine.tracing import LayerTrace
from fastvideo.errors import CorruptLog, Unavailable
from fastvideo.loops.contract import StepContext
from fastvideo.loops.state_encoding import tensor_digest
from fastvideo.scheduling.traces import ComponentTrace


class _Wrapped(nn.Module):
    """A component as families have them: an upstream module, and a call with checks."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        given: torch.Tensor = self.module(rows)
        return given


ROWS = torch.arange(8.0).view(2, 4)


def watched(component: nn.Module, *calls: torch.Tensor) -> tuple[ComponentTrace, ...]:
    trace = LayerTrace({"model": component, "tokenizer": object()})
    with torch.no_grad(), trace:
        for rows in calls:
            component(rows)
    return trace.layers


def bits(layers: tuple[ComponentTrace, ...]) -> dict[str, str]:
    return {layer.layer: layer.digest for layer in layers}


def test_every_layer_is_recorded_in_order_of_execution_by_its_upstream_name() -> None:
    component = _Wrapped()
    trace = LayerTrace({"model": component})
    with torch.no_grad(), trace:
        output = component(ROWS)
        first = component.module[0]
    assert [layer.layer for layer in trace.layers] == ["0", "1", "2", ""]
    assert {layer.calls for layer in trace.layers} == {1}
    assert all(layer.seconds > 0 for layer in trace.layers)
    with torch.no_grad():
        assert bits(trace.layers)["0"] == tensor_digest(first(ROWS))
    [whole] = trace.components
    assert (whole.component, whole.layer) == ("model", "")
    assert whole.digest == tensor_digest(output)


def test_rows_in_one_call_have_the_digest_of_rows_in_two() -> None:
    # A product of matrices may have other bits for one row; these have not.
    component = nn.Sequential(nn.ReLU(), nn.Hardtanh(0, 5))
    together, apart = watched(component, ROWS), watched(component, ROWS[:1], ROWS[1:])
    assert bits(together) == bits(apart)
    assert [layer.calls for layer in apart] == [2, 2, 2]


def test_nothing_is_watched_afterwards() -> None:
    component = _Wrapped()
    watched(component, ROWS)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in component.modules())


def test_what_runs_for_others_in_another_thread_is_not_recorded() -> None:
    component = _Wrapped()
    trace = LayerTrace({"model": component})
    with trace:
        other = threading.Thread(target=lambda: component(ROWS))
        other.start()
        other.join()
        assert trace.layers == ()
        component(ROWS)
    assert len(trace.layers) == 4


def test_what_a_kernel_does_beside_its_work_is_not_recorded() -> None:
    component = _Wrapped()
    context = StepContext(taps=LayerTrace({"model": component}))
    trace: Any = context.taps
    with trace, context.untapped():
        component(ROWS)
        context.tap("guidance", ROWS)
    assert trace.layers == ()
    untraced = StepContext()
    with untraced.untapped():
        untraced.tap("guidance", ROWS)


def test_a_component_that_is_no_module_is_what_its_loop_tells_of_it() -> None:
    trace = LayerTrace({})
    context = StepContext(taps=trace)
    context.tap("guidance", ROWS)
    context.tap("sampler", {"latents": [ROWS, ROWS]})
    assert [trace.component for trace in trace.components] == ["guidance", "sampler"]
    assert trace.components[0].digest == tensor_digest(ROWS)
    assert trace.components[1].digest == tensor_digest(torch.cat([ROWS, ROWS]))


def test_parts_that_are_called_one_by_one_are_the_component_together() -> None:
    component = _Wrapped()
    trace = LayerTrace({"vae": component})
    with torch.no_grad(), trace:
        first = component.module[0](ROWS)
        second = component.module[2](component.module[1](first))
    [whole] = trace.components
    assert whole.calls == 3
    relu = torch.relu(first)
    joined = torch.cat([first.flatten(), relu.flatten(), second.flatten()])
    assert whole.digest == tensor_digest(joined)


def test_a_layer_that_fails_does_not_shift_the_others() -> None:
    component = _Wrapped()
    trace = LayerTrace({"model": component})
    with torch.no_grad(), trace:
        with pytest.raises(RuntimeError):
            component(torch.zeros(1, 5))
        component(ROWS)
    assert bits(trace.layers) == bits(watched(component, ROWS))


def test_layers_come_back_from_their_blob() -> None:
    layers = watched(_Wrapped(), ROWS)
    assert decode_layers(encode_layers(layers)) == layers
    for other in (b"no json\n", b'{"component": "x", "colour": "red"}\n'):
        with pytest.raises(CorruptLog):
            decode_layers(other)


class _Away:
    def put_blob(self, data: bytes) -> str:
        raise Unavailable("away")

    def get_blob(self, digest: str, size_bytes: int) -> bytes:
        raise Unavailable("away")


class _Held:
    """A store that takes its time."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def put_blob(self, data: bytes) -> str:
        assert self.go_on.wait(30.0)
        return ""

    def get_blob(self, digest: str, size_bytes: int) -> bytes:
        raise Unavailable("away")


def test_blobs_of_layers_are_stored_beside_compute() -> None:
    blobs = LocalBlobs(1 << 20)
    shelf = LayerShelf(blobs)
    digest = shelf.keep(b"layers")
    assert shelf.wait_stored(30.0)
    assert blobs.get_blob(digest, 6) == b"layers"


def test_a_store_that_is_away_or_slow_holds_nobody_up() -> None:
    away = LayerShelf(_Away())
    assert away.keep(b"lost")
    assert away.wait_stored(30.0)
    store = _Held()
    slow = LayerShelf(store, waiting_max=1)
    kept = [slow.keep(bytes([index])) for index in range(4)]
    assert kept[0]
    assert kept[-1] == ""
    assert not slow.wait_stored(0.0)
    store.go_on.set()
    assert slow.wait_stored(30.0)
