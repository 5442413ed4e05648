"""Snapshots: what is saved comes back bit for bit, and what is wrong is refused by name."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastvideo.artifacts.types import ArtifactKind
from fastvideo.errors import ContractViolation
from fastvideo.loops.contract import StateBase
from fastvideo.loops.snapshot_format import FORMAT, Saved, SnapshotMismatch, decode, encode
from fastvideo.loops.snapshots import load_state, save_state
from fastvideo.requests.types import OutputSpec, RequestKind, RequestSpec, SamplingParams
from fastvideo.scheduling.work import LoopRef

LOOP = LoopRef(request_id="r", node_id="n", attempt=1)
REQUEST = RequestSpec(
    request_id="r",
    kind=RequestKind.GENERATION,
    model_id="model-of-the-request",
    sampling=SamplingParams(),
    outputs=OutputSpec(),
)


def saved_of(**parts: Any) -> Saved:
    return Saved(kind="state", loop_id="toy", schema="toy.v1", version=3, parts=parts)


def again(**parts: Any) -> Mapping[str, Any]:
    return decode(encode(saved_of(**parts))).parts


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    flat = [t.contiguous().flatten().view(torch.uint8) for t in (left, right)]
    return left.dtype == right.dtype and left.shape == right.shape and torch.equal(*flat)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.int64,
        torch.int32,
        torch.uint8,
        torch.bool,
    ],
)
def test_tensors_of_every_dtype_keep_their_bits(dtype: torch.dtype) -> None:
    tensor = (torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1)) * 50).to(dtype)
    assert same_bits(again(x=tensor)["x"], tensor)


def test_not_a_number_and_infinities_keep_their_bits() -> None:
    tensor = torch.tensor([float("nan"), float("inf"), -0.0, -float("inf")])
    assert same_bits(again(x=tensor)["x"], tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1),
        torch.arange(120.0).reshape(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        torch.arange(6.0).reshape(1, 6),
        torch.zeros(0, 4),
        torch.tensor(3.5),
    ],
    ids=["permuted", "channels_last", "row", "empty", "scalar"],
)
def test_tensors_keep_their_strides_since_a_kernel_may_be_chosen_by_them(
    tensor: torch.Tensor,
) -> None:
    found = again(x=tensor)["x"]
    assert torch.equal(found, tensor)
    assert found.stride() == tensor.stride()


def test_views_of_larger_tensors_are_saved_without_what_surrounds_them() -> None:
    whole = torch.arange(1_000_000.0)
    data = encode(saved_of(x=whole[::250_000], y=whole[3:6]))
    assert len(data) < 10_000
    parts = decode(data).parts
    assert torch.equal(parts["x"], whole[::250_000])
    assert torch.equal(parts["y"], whole[3:6])


def test_one_tensor_under_two_names_is_saved_once() -> None:
    tensor = torch.randn(1000)
    assert len(encode(saved_of(x=tensor, y=(tensor,)))) < 1.5 * 4000
    parts = again(x=tensor, y=(tensor,), z=tensor.reshape(10, 100))
    assert torch.equal(parts["x"], parts["y"][0])
    assert parts["z"].shape == (10, 100)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(PLAIN)
def test_plain_data_comes_back_as_it_was(value: Any) -> None:
    # Not a number equals nothing; its text does.
    assert repr(again(x=value)["x"]) == repr(value)


def test_equal_snapshots_have_equal_bytes() -> None:
    first, second = (saved_of(b=torch.ones(3), a={"y": 1, "x": torch.zeros(2)}) for _ in range(2))
    assert encode(first) == encode(second)


def test_what_is_neither_tensor_nor_plain_data_cannot_be_saved() -> None:
    for value in (object(), lambda: None, b"bytes", {1: 2}, {"$tensor": "t0"}):
        with pytest.raises(ContractViolation):
            encode(saved_of(x=value))


def damaged(change: Callable[[dict[str, Any]], Any]) -> bytes:
    """A snapshot with something in its header changed."""
    data = encode(saved_of(x=torch.ones(2, 3)))
    length = int.from_bytes(data[:8], "little")
    outer = json.loads(data[8 : 8 + length])
    header = json.loads(outer["__metadata__"]["fastvideo"])
    change(header)
    outer["__metadata__"]["fastvideo"] = json.dumps(header)
    packed = json.dumps(outer).encode()
    packed += b" " * (-len(packed) % 8)
    return len(packed).to_bytes(8, "little") + packed + data[8 + length :]


@pytest.mark.parametrize(
    ("change", "subject"),
    [
        (lambda header: header.update(format=FORMAT + 1), "format"),
        (lambda header: header["tensors"]["t0"].update(dtype="float16"), "tensors.t0"),
        (lambda header: header["tensors"]["t0"].update(shape=[3, 2]), "tensors.t0"),
        (lambda header: header["tensors"].clear(), "tensors"),
        (lambda header: header.pop("parts"), "header"),
        (lambda header: header.update(parts={"x": {"$tensor": "t9"}}), "header"),
        (lambda header: header.pop("format"), "header"),
    ],
    ids=["format", "dtype", "shape", "tensors", "parts", "reference", "no format"],
)
def test_a_header_that_is_wrong_is_refused_by_name(
    change: Callable[[dict[str, Any]], Any], subject: str
) -> None:
    with pytest.raises(SnapshotMismatch) as caught:
        decode(damaged(change))
    assert (caught.value.reason, caught.value.subject) == ("SNAPSHOT_MISMATCH", subject)


def test_bytes_that_are_no_snapshot_are_refused() -> None:
    data = encode(saved_of(x=torch.ones(100)))
    for wrong in (b"", b"\x80\x04pickle", data[:7], data[:60], data[:-1], b"\xff" * 200):
        with pytest.raises(SnapshotMismatch):
            decode(wrong)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    place: int
    history: tuple[torch.Tensor, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyState(StateBase):
    row: torch.Tensor
    inner: Inner
    kind: ArtifactKind
    at: datetime
    scale: float
    left: torch.Tensor | None = None


class ToyKernel:
    """A kernel that says nothing of snapshots."""

    spec = SimpleNamespace(loop_id="toy", state_schema="toy.v1")

    def init_state(self, loop: Any, request: Any, inputs: Any, instance: Any) -> ToyState:
        raise NotImplementedError


# What saving and loading see of a kernel.
TOY: Any = ToyKernel()

STATE = ToyState(
    loop=LOOP,
    request=REQUEST,
    version=7,
    row=torch.arange(3.0),
    inner=Inner(place=2, history=(torch.ones(2), torch.zeros(2))),
    kind=ArtifactKind.VIDEO,
    at=datetime(2026, 1, 1, 12, 30, 1, 250, tzinfo=UTC),
    scale=0.1,
)


def load(saved: Saved, loop: LoopRef = LOOP) -> ToyState:
    state: ToyState = load_state(TOY, saved, loop, REQUEST, None)
    return state


def test_a_state_of_tensors_and_plain_data_needs_no_help_of_its_kernel() -> None:
    other = replace(LOOP, attempt=2)
    data = save_state(TOY, STATE)
    found = load(decode(data), other)
    assert (found.loop, found.request, found.version) == (other, REQUEST, 7)
    assert torch.equal(found.row, STATE.row)
    assert found.inner.place == 2
    assert [t.tolist() for t in found.inner.history] == [[1.0, 1.0], [0.0, 0.0]]
    assert (found.kind, found.at, found.scale, found.left) == (
        STATE.kind,
        STATE.at,
        STATE.scale,
        None,
    )
    assert save_state(TOY, found) == data
    assert REQUEST.model_id.encode() not in data


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("row", 3),
        ("row", None),
        ("inner", {"place": "x", "history": ()}),
        ("inner", {"place": 1, "history": (1,)}),
        ("inner", {"place": 1, "more": 2}),
        ("kind", "song"),
        ("scale", "much"),
    ],
)
def test_a_field_of_another_type_is_refused_by_name(name: str, value: Any) -> None:
    saved = decode(save_state(TOY, STATE))
    with pytest.raises(SnapshotMismatch) as caught:
        load(replace(saved, parts={**saved.parts, name: value}))
    assert caught.value.subject.split(".")[0] == name


def test_unknown_and_absent_fields_are_refused() -> None:
    saved = decode(save_state(TOY, STATE))
    for parts in ({**saved.parts, "more": 1}, {"row": saved.parts["row"]}):
        with pytest.raises(SnapshotMismatch, match="fields"):
            load(replace(saved, parts=parts))
