"""Fields that a schema does not name are refused, wherever they hide."""

import time

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from fastvideo.api.common.v1 import model_pb2
from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.errors import InvalidField
from fastvideo.rpc.unknown_fields import refuse_unknown_fields

# Field 99, a varint of 7.
UNKNOWN = b"\x98\x06\x07"


def with_unknown(message: Message) -> None:
    """Add an unknown field to a message in place."""
    message.MergeFromString(UNKNOWN)


def valid() -> gateway_pb2.SubmitRequestRequest:
    """A request with singular, repeated and optional parts."""
    request = gateway_pb2.SubmitRequestRequest(model_id="moving-digits")
    request.inputs.add().text.text = "a red three"
    request.inputs.add().text.text = "blurry"
    request.sampling.steps = 4
    request.deadline.seconds = 1
    return request


def test_known_fields_pass() -> None:
    refuse_unknown_fields(valid())


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("99", lambda request: request),
        ("sampling.99", lambda request: request.sampling),
        ("inputs[1].99", lambda request: request.inputs[1]),
        ("inputs[1].text.99", lambda request: request.inputs[1].text),
        ("deadline.99", lambda request: request.deadline),
    ],
)
def test_an_unknown_field_is_refused_by_path_and_number(path: str, place: object) -> None:
    request = valid()
    with_unknown(place(request))  # type: ignore[operator]
    sent = gateway_pb2.SubmitRequestRequest.FromString(request.SerializeToString())
    with pytest.raises(InvalidField) as caught:
        refuse_unknown_fields(sent)
    assert caught.value.field == path
    assert caught.value.reason == "UNKNOWN_FIELD"
    assert "fields of" in caught.value.allowed


@given(st.sampled_from([field.name for field in model_pb2.ModelSpec.DESCRIPTOR.fields]))
def test_every_message_field_of_a_model_spec_is_searched(name: str) -> None:
    spec = model_pb2.ModelSpec()
    field = model_pb2.ModelSpec.DESCRIPTOR.fields_by_name[name]
    if field.message_type is None or field.message_type.GetOptions().map_entry:
        return
    value = getattr(spec, name)
    with_unknown(value.add() if field.is_repeated else value)
    with pytest.raises(InvalidField):
        refuse_unknown_fields(model_pb2.ModelSpec.FromString(spec.SerializeToString()))


def test_millions_of_empty_messages_are_refused_before_they_cost_anything() -> None:
    request = gateway_pb2.SubmitRequestRequest.FromString(b"\x2a\x00" * 1_000_000)
    began = time.thread_time()
    with pytest.raises(InvalidField, match="at most") as caught:
        refuse_unknown_fields(request)
    assert caught.value.field.startswith("inputs[")
    assert time.thread_time() - began < 1.0


def test_millions_of_unknown_fields_are_refused_before_they_cost_anything() -> None:
    request = gateway_pb2.SubmitRequestRequest.FromString(UNKNOWN * 1_000_000)
    began = time.thread_time()
    with pytest.raises(InvalidField) as caught:
        refuse_unknown_fields(request)
    assert caught.value.reason == "UNKNOWN_FIELD"
    assert time.thread_time() - began < 0.5
