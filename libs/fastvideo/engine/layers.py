"""The layers of one unit's step as bytes: one JSON object a line, in order of execution."""

import json
from collections.abc import Iterable
from dataclasses import asdict

from fastvideo.errors import CorruptLog
from fastvideo.scheduling.traces import ComponentTrace


def encode_layers(layers: Iterable[ComponentTrace]) -> bytes:
    """The blob of a step's layers."""
    return b"".join(json.dumps(asdict(layer)).encode() + b"\n" for layer in layers)


def decode_layers(data: bytes) -> tuple[ComponentTrace, ...]:
    """The layers of a blob, in order of execution. Raises CorruptLog for other bytes."""
    try:
        return tuple(ComponentTrace(**json.loads(line)) for line in data.splitlines())
    except (TypeError, ValueError) as error:
        raise CorruptLog(
            f"a blob of layers cannot be read: {error}", reason="BAD_LAYERS"
        ) from error
