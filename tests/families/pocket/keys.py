"""What names the work and the cached values of the pocket loops."""

from fastvideo.cache.keys import text_hash
from fastvideo.model.caching import CacheKey
from fastvideo.model.canonical import canonical_digest
from fastvideo.models.resident import ResidentModel


def batch_key(instance: ResidentModel, loop_id: str, **shared: object) -> str:
    """Digest of what two units must have in common to share a forward."""
    return canonical_digest(
        {
            "model_instance_id": instance.model_instance_id,
            "weights_version": instance.weights_version,
            "precision": instance.precision,
            "parallel_plan": instance.parallel_plan_hash,
            "loop_id": loop_id,
            **shared,
        }
    )


def features_key(instance: ResidentModel, text: str, length: int) -> CacheKey:
    """The key of a text's features."""
    return _key(
        instance, "text_encoder", "encode", f"1x{length}", {"text": text_hash(text)}, "features"
    )


def graph_key(instance: ResidentModel, loop_id: str, shape: str) -> CacheKey:
    """The key of a captured graph."""
    return _key(instance, "transformer", loop_id, shape, {}, "graphs")


def _key(
    instance: ResidentModel,
    component_id: str,
    loop_id: str,
    shape: str,
    inputs: dict[str, str],
    contract: str,
) -> CacheKey:
    return CacheKey(
        model_id=instance.card.model_id,
        component_id=component_id,
        loop_id=loop_id,
        weights_version=instance.weights_version,
        adapter_versions=dict(instance.adapter_versions),
        precision=instance.precision,
        parallel_plan_hash=instance.parallel_plan_hash,
        shape_signature=shape,
        input_hashes=inputs,
        cache_contract_version=instance.card.caches[contract].version,
    )
