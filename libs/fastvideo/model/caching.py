"""Cache classes, keys and records as data.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class CacheClass(StrEnum):
    """The classes of cache, each with its own manager."""

    TOKEN_KV = "token_kv"
    DIT_ATTENTION = "dit_attention"
    TEXT_ENCODER_OUTPUT = "text_encoder_output"
    VISION_ENCODER_OUTPUT = "vision_encoder_output"
    AUDIO_ENCODER_OUTPUT = "audio_encoder_output"
    BLOCK_RESIDUAL = "block_residual"
    LATENT_TRAJECTORY = "latent_trajectory"
    VAE_TILE = "vae_tile"
    SCHEDULER_STATE = "scheduler_state"
    REWARD_EMBEDDING = "reward_embedding"
    COMPILED_GRAPH = "compiled_graph"
    WEIGHTS_AND_ADAPTERS = "weights_and_adapters"
    ARTIFACT_AND_MEDIA = "artifact_and_media"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheKey:
    """Everything that can change the meaning of a cached value."""

    model_id: str = ""
    component_id: str = ""
    loop_id: str | None = None
    weights_version: str = ""
    adapter_versions: Mapping[str, str] = field(default_factory=dict)
    precision: str = ""
    parallel_plan_hash: str = ""
    shape_signature: str = ""
    layout_signature: str = ""
    scheduler_signature: str | None = None
    guidance_signature: str | None = None
    seed: int | None = None
    input_hashes: Mapping[str, str] = field(default_factory=dict)
    step_index: int | None = None
    cache_contract_version: str = ""


class CacheOutcome(StrEnum):
    """What became of a look into a cache."""

    HIT = "hit"
    MISS = "miss"
    EVICT = "evict"
    # Kept under its key, after a miss or when it was published.
    KEPT = "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLookup:
    """One look-up, hit, miss or eviction."""

    cache_class: CacheClass
    # Digest of the CacheKey in its canonical encoding.
    key_digest: str = ""
    outcome: CacheOutcome
    size_bytes: int = 0
    # SHA-256 of the value that was found or kept, hexadecimal; empty when it was not taken.
    value_digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRecord:
    """A cache entry as it is published."""

    key: CacheKey
    key_digest: str = ""
    cache_class: CacheClass
    value_digest: str = ""
    size_bytes: int = 0
    producer: str = ""
    # The tier that holds it: "worker", "redis" or "artifact".
    tier: str = ""
