"""One canonical encoding of typed values, and its digest.

Protobuf bytes differ between libraries and versions, so digests that must be equal in every
process, such as those of cards and cache keys, are taken over this encoding: JSON with sorted
keys, no spaces, ASCII only, dataclasses as their type's name and all of their fields.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from enum import Enum
from typing import Any

from fastvideo.errors import ContractViolation


def canonical_bytes(value: object) -> bytes:
    """The canonical encoding of a dataclass, mapping, sequence or scalar.

    Raises ContractViolation for NaN, infinities and types that have no encoding.
    """
    try:
        text = json.dumps(
            _plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
        )
    except ValueError as error:
        raise ContractViolation(f"{value!r} has no canonical encoding: {error}") from error
    return text.encode("ascii")


def canonical_digest(value: object) -> str:
    """Lower-case hexadecimal SHA-256 of the canonical encoding."""
    return hashlib.sha256(canonical_bytes(value)).hexdigest()


def _plain(value: object) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
        return {"type": type(value).__name__, "fields": fields}
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise ContractViolation(f"{value!r} has keys that are not strings")
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    raise ContractViolation(f"{type(value).__name__} has no canonical encoding")
