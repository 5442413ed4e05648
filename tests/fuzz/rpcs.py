"""Hostile calls of every method of a service: random bytes, and messages of the right type."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message

from tests.fuzz import hostile
from tests.fuzz.samples import SAMPLES

_DEPTH_MAX = 7
_WHOLES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
# A field of number 1, and one that no message has, each within itself ten thousand times.
_NESTED = (b"\x0a", b"\xfa\x7f")


@dataclass(frozen=True, slots=True)
class Rpc:
    """A call: the bytes of each message that it sends."""

    method: str
    streams_in: bool
    streams_out: bool
    messages: tuple[bytes, ...]


def methods_of(*services: str) -> list[MethodDescriptor]:
    """Every method of services by their full names."""
    pool = descriptor_pool.Default()
    return [method for name in services for method in pool.FindServiceByName(name).methods]


def rpc_of(random: Random, methods: Sequence[MethodDescriptor], ids: tuple[str, ...]) -> Rpc:
    """A hostile call of one of the methods."""
    method = random.choice(methods)
    sample = SAMPLES.get(method.name, ())
    if sample and random.random() < 0.4 and sample[0].DESCRIPTOR is method.input_type:
        place = random.randrange(len(sample))
        changed = [
            _changed(random, one, ids) if i == place else one for i, one in enumerate(sample)
        ]
        return _rpc(method, tuple(one.SerializeToString() for one in changed))
    count = random.choice((0, 1, 2, 2, 3, 6)) if method.client_streaming else 1
    messages = tuple(_bytes(random, method.input_type, ids) for _ in range(count))
    return _rpc(method, messages)


def _rpc(method: MethodDescriptor, messages: tuple[bytes, ...]) -> Rpc:
    path = f"/{method.containing_service.full_name}/{method.name}"
    return Rpc(path, bool(method.client_streaming), bool(method.server_streaming), messages)


def _changed(random: Random, message: Message, ids: tuple[str, ...]) -> Message:
    """A copy with one field set to something hostile, at any depth."""
    copy = type(message)()
    copy.CopyFrom(message)
    at: Any = copy
    while True:
        field = random.choice(list(at.DESCRIPTOR.fields))
        value = getattr(at, field.name)
        if field.message_type is None or _is_map(field) or random.random() < 0.2:
            break
        if field.is_repeated and not value:
            break
        at = random.choice(list(value)) if field.is_repeated else value
        if not at.DESCRIPTOR.fields:
            return copy
    spoiled = message_of(random, at.DESCRIPTOR, ids, only=field)
    at.ClearField(field.name)
    at.MergeFrom(spoiled)
    return copy


def _bytes(random: Random, kind: Descriptor, ids: tuple[str, ...]) -> bytes:
    dice = random.random()
    if dice < 0.1:
        return random.randbytes(random.choice((1, 2, 16, 300)))
    if dice < 0.13:
        return _nested(random.choice(_NESTED))
    data: bytes = message_of(random, kind, ids).SerializeToString()
    if dice < 0.2:
        # A field that the message has not, of any type of the wire.
        return data + _varint(9_999 << 3 | random.choice((0, 1, 2, 5))) + random.randbytes(12)
    if dice < 0.25:
        texts = [one for one in kind.fields if one.type == FieldDescriptor.TYPE_STRING]
        bad = random.choice((b"\xff", b"\xed\xa0\x80", b"\xc3\x28"))
        return data + b"".join(
            _varint(one.number << 3 | 2) + b"%c" % len(bad) + bad for one in texts
        )
    return hostile.spoiled(random, data) if dice < 0.4 else data


def message_of(
    random: Random,
    kind: Descriptor,
    ids: tuple[str, ...],
    depth: int = 0,
    only: FieldDescriptor | None = None,
) -> Message:
    """A message of a type, some of its fields set, or one of them."""
    message = message_factory.GetMessageClass(kind)()
    chance = random.choice((0.2, 0.5, 0.9))
    for field in kind.fields:
        if only not in (None, field):
            continue
        if only is None and (random.random() > chance or depth > _DEPTH_MAX):
            continue
        if _is_map(field):
            _fill_map(random, message, field, ids, depth)
        elif field.is_repeated:
            _fill_list(random, getattr(message, field.name), field, ids, depth)
        elif field.message_type is not None:
            inner = message_of(random, field.message_type, ids, depth + 1)
            getattr(message, field.name).CopyFrom(inner)
        else:
            setattr(message, field.name, _scalar(random, field, ids))
    return message


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _fill_map(
    random: Random, message: Any, field: FieldDescriptor, ids: tuple[str, ...], depth: int
) -> None:
    entry = field.message_type
    assert entry is not None
    key_field, value_field = entry.fields_by_number[1], entry.fields_by_number[2]
    held = getattr(message, field.name)
    for _ in range(random.choice((1, 2, 50))):
        key = _scalar(random, key_field, ids)
        if value_field.message_type is None:
            held[key] = _scalar(random, value_field, ids)
        else:
            held[key].CopyFrom(message_of(random, value_field.message_type, ids, depth + 1))


def _fill_list(
    random: Random, held: Any, field: FieldDescriptor, ids: tuple[str, ...], depth: int
) -> None:
    count = random.choice(hostile.MANY) if depth < 2 else random.choice((0, 1, 2))
    if field.message_type is not None:
        inner = [
            message_of(random, field.message_type, ids, depth + 1) for _ in range(min(count, 3))
        ]
        held.extend(inner * (max(1, count // 3) if _is_small(inner) else 1))
    else:
        value = [_scalar(random, field, ids) for _ in range(min(count, 3))]
        small = all(not isinstance(one, str | bytes) or len(one) < 20 for one in value)
        held.extend(value * (max(1, count // 3) if small else 1))


def _is_small(messages: Sequence[Message]) -> bool:
    return sum(one.ByteSize() for one in messages) < 100


def _scalar(random: Random, field: FieldDescriptor, ids: tuple[str, ...]) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        is_text = field.type == FieldDescriptor.TYPE_STRING
        return hostile.text(random, ids) if is_text else hostile.data(random)
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        assert field.enum_type is not None
        known = [value.number for value in field.enum_type.values]
        return random.choice([*known, 999, -1, 2**31 - 1])
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return random.random() < 0.5
    if kind == FieldDescriptor.CPPTYPE_FLOAT:
        value = hostile.real(random)
        return value if abs(value) < 3e38 or value != value else 3e38
    if kind == FieldDescriptor.CPPTYPE_DOUBLE:
        return hostile.real(random)
    return hostile.whole(random, *_WHOLES[kind])


def _nested(tag: bytes) -> bytes:
    """A message within a message, as deep as a few dozen kilobytes go."""
    data = b""
    for _ in range(5_000):
        data = tag + _varint(len(data)) + data
    return data


def _varint(number: int) -> bytes:
    return bytes(_septets(number))


def _septets(number: int) -> Iterator[int]:
    while number > 127:
        yield number & 127 | 128
        number >>= 7
    yield number
