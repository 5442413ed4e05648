"""A tier of caches beyond the worker's memory: shared, and disposable.

What a tier has lost is computed again, so a tier that does not answer is a tier that has nothing.
An entry carries the digest of its bytes and the digest of its key; one that does not match either
is a miss. Units of the kinds cache_load and cache_save use it, beside compute.
"""

import hashlib
import json
from typing import Any, Final

import torch

from fastvideo.cache.keys import key_digest
from fastvideo.cache.recorded import kept, planned_unit, record_kept, record_look
from fastvideo.cache.values import value_digest
from fastvideo.errors import InvalidField
from fastvideo.loops.contract import SharedTier, StepContext
from fastvideo.media.tensors import decode_tensors, encode_tensors
from fastvideo.model.cache_checks import check_key
from fastvideo.model.caching import CacheClass, CacheKey, CacheLookup, CacheOutcome

_VALUE: Final = "value"
_HEADER_END: Final = b"\n"


def load_tensor(
    context: StepContext,
    key: CacheKey,
    cache_class: CacheClass = CacheClass.TEXT_ENCODER_OUTPUT,
) -> torch.Tensor | None:
    """The tensor of a key out of the context's tier, or None; the look-up is reported.

    Raises ContractViolation when the context's unit has not planned to read the key.
    """
    digest = key_digest(key)
    unit = planned_unit(context, digest, "read")
    data = context.tier.get(digest) if context.tier is not None else None
    value = None if data is None else _decoded(digest, data)
    outcome = CacheOutcome.MISS if value is None else CacheOutcome.HIT
    lookup = CacheLookup(
        cache_class=cache_class,
        key_digest=digest,
        outcome=outcome,
        size_bytes=0 if value is None else value.nbytes,
        value_digest="" if value is None else value_digest(value),
    )
    record_look(context, unit, key, lookup, _name_of(context.tier))
    return value


def save_tensor(
    context: StepContext,
    key: CacheKey,
    value: torch.Tensor,
    cache_class: CacheClass = CacheClass.TEXT_ENCODER_OUTPUT,
) -> bool:
    """Keep a tensor under its key in the context's tier; whether it is kept.

    Raises ContractViolation when the context's unit has not planned to write the key, InvalidField
    for a key that is not whole.
    """
    check_key(key)
    digest = key_digest(key)
    unit = planned_unit(context, digest, "write")
    stored = context.tier is not None and context.tier.put(digest, _encoded(digest, value))
    if stored:
        made = kept(cache_class, digest, value.nbytes, value_digest(value))
        record_kept(context, unit, key, made, _name_of(context.tier))
    return stored


def _name_of(tier: SharedTier | None) -> str:
    return tier.name if tier is not None else ""


def _encoded(digest: str, value: torch.Tensor) -> bytes:
    payload = encode_tensors({_VALUE: value})
    header = {"key": digest, "sha256": hashlib.sha256(payload).hexdigest()}
    return json.dumps(header, sort_keys=True).encode() + _HEADER_END + payload


def _decoded(digest: str, data: bytes) -> torch.Tensor | None:
    """The tensor of an entry; None for one that is damaged or of another key."""
    head, _, payload = data.partition(_HEADER_END)
    try:
        header: Any = json.loads(head)
        tensors = decode_tensors(payload)
    except (ValueError, InvalidField):
        return None
    expected = {"key": digest, "sha256": hashlib.sha256(payload).hexdigest()}
    return tensors.get(_VALUE) if header == expected else None
