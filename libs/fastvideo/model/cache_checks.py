"""What a cache key, a cache record and a transfer manifest must be, wherever they are made or read.

Each check raises InvalidField with the field's path and what is allowed.
"""

import re
from collections.abc import Collection
from typing import Final

from fastvideo.errors import InvalidField
from fastvideo.model.caching import CacheKey, CacheRecord
from fastvideo.model.canonical import canonical_digest
from fastvideo.model.transfers import TransferManifest, TransferTensor

TIERS: Final = ("worker", "redis", "artifact")
LIFETIMES: Final = ("request", "session", "instance")
TENSORS_MAX: Final = 64
DIMS_MAX: Final = 16
DTYPES: Final = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
)

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_NEEDED: Final = ("model_id", "component_id", "weights_version", "cache_contract_version")


def check_key(key: CacheKey, path: str = "key") -> None:
    """What every key names, and that it tells its input apart."""
    for name in _NEEDED:
        _require(getattr(key, name), f"{path}.{name}")
    if not key.input_hashes:
        raise InvalidField(f"{path}.input_hashes", {}, "the hash of each input")
    for name, digest in key.input_hashes.items():
        _check_digest(digest, f"{path}.input_hashes.{name}")
    if key.step_index is not None and key.step_index < 0:
        raise InvalidField(f"{path}.step_index", key.step_index, "0 or more")


def check_record(record: CacheRecord, path: str = "record") -> None:
    """A record whose digest is its key's own."""
    own = canonical_digest(record.key)
    if record.key_digest != own:
        raise InvalidField(f"{path}.key_digest", record.key_digest, f"{own}, the key's own")
    check_key(record.key, f"{path}.key")
    _check_digest(record.value_digest, f"{path}.value_digest")
    if record.size_bytes < 0:
        raise InvalidField(f"{path}.size_bytes", record.size_bytes, "0 or more")
    if record.tier:
        _one_of(record.tier, TIERS, f"{path}.tier")


def check_manifest(manifest: TransferManifest, path: str = "manifest") -> None:
    """A manifest that names each of its tensors once."""
    _one_of(manifest.lifetime, LIFETIMES, f"{path}.lifetime")
    names = [tensor.name for tensor in manifest.tensors]
    if not 0 < len(names) <= TENSORS_MAX:
        raise InvalidField(f"{path}.tensors", len(names), f"1 to {TENSORS_MAX} tensors")
    if len(set(names)) < len(names):
        raise InvalidField(f"{path}.tensors", sorted(names), "each name once")
    for tensor in manifest.tensors:
        _check_tensor(tensor, f"{path}.tensors")
    if manifest.cache_key is not None:
        check_key(manifest.cache_key, f"{path}.cache_key")


def _check_tensor(tensor: TransferTensor, path: str) -> None:
    """A tensor by its name alone is one that is asked for."""
    _require(tensor.name, f"{path}.name")
    if tensor.dtype:
        _one_of(tensor.dtype, DTYPES, f"{path}.{tensor.name}.dtype")
    if len(tensor.shape) > DIMS_MAX or any(size < 0 for size in tensor.shape):
        raise InvalidField(
            f"{path}.{tensor.name}.shape", tensor.shape, f"up to {DIMS_MAX} sizes, 0 or more each"
        )
    if tensor.strides and len(tensor.strides) != len(tensor.shape):
        raise InvalidField(
            f"{path}.{tensor.name}.strides", tensor.strides, f"one for each of {tensor.shape}"
        )


def _require(value: str, path: str) -> None:
    if not value:
        raise InvalidField(path, value, "not empty")


def _check_digest(value: str, path: str) -> None:
    if not _DIGEST.fullmatch(value):
        raise InvalidField(path, value, "a SHA-256 digest, 64 hexadecimal digits")


def _one_of(value: str, allowed: Collection[str], path: str) -> None:
    if value not in allowed:
        raise InvalidField(path, value, ", ".join(allowed))
