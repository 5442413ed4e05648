"""What moves between roles, and how it is known to have arrived.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from dataclasses import dataclass

from fastvideo.model.caching import CacheKey


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferTensor:
    """One tensor of a transfer."""

    name: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    strides: tuple[int, ...] = ()
    # Such as "cpu" or "cuda:0".
    location: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferManifest:
    """What moves from one place to another, and how it is known to have arrived."""

    transfer_id: str = ""
    tensors: tuple[TransferTensor, ...] = ()
    producer_id: str = ""
    consumer_id: str = ""
    # "request", "session" or "instance".
    lifetime: str = ""
    cache_key: CacheKey | None = None
    priority: int = 0
    completion_event: str = ""
