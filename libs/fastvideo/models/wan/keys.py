"""What names the work of Wan's loops: which units may share a forward, which features are one."""

from fastvideo.cache.keys import text_hash
from fastvideo.model.caching import CacheKey
from fastvideo.model.canonical import canonical_digest
from fastvideo.models.resident import ResidentModel

FEATURES_LAYOUT = "L,D zero after the end token"


def batch_key(
    instance: ResidentModel,
    loop_id: str,
    *,
    shape: str,
    text_length: int = 0,
    branches: tuple[str, ...] = (),
    sampler: str = "",
) -> str:
    """Digest of everything that two units must have in common to share a forward."""
    return canonical_digest(
        {
            "model_instance_id": instance.model_instance_id,
            "weights_version": instance.weights_version,
            "adapters": instance.adapter_versions,
            "loop_id": loop_id,
            "shape": shape,
            "text_length": text_length,
            "precision": instance.precision,
            "branches": branches,
            "sampler": sampler,
            "capture_key": "",
            "parallel_plan": instance.parallel_plan_hash,
        }
    )


def text_features_key(instance: ResidentModel, text: str, text_length: int) -> CacheKey:
    """The key of one cleaned text's features."""
    return CacheKey(
        model_id=instance.card.model_id,
        component_id="text_encoder",
        loop_id="encode",
        weights_version=instance.weights_version,
        adapter_versions=dict(instance.adapter_versions),
        precision=instance.precision,
        parallel_plan_hash=instance.parallel_plan_hash,
        shape_signature=f"1x{text_length}",
        layout_signature=FEATURES_LAYOUT,
        input_hashes={"text": text_hash(text)},
        cache_contract_version=instance.card.caches["text_features"].version,
    )
