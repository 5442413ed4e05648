"""Text encoding: one unit a text, features kept by key."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import torch

from fastvideo.cache.keys import key_digest
from fastvideo.loops.behavior import CACHE_LOOKUPS, captures
from fastvideo.loops.contract import LoopOutput, PlanContext, StateBase, StepContext, Values
from fastvideo.loops.snapshot_format import SnapshotMismatch
from fastvideo.loops.snapshots import fields_of, resumed, typed_fields
from fastvideo.loops.state_encoding import encode_state, tensor_digest
from fastvideo.loops.units import UnitShape, next_unit_plan
from fastvideo.model.caching import CacheKey, CacheLookup, CacheOutcome
from fastvideo.model.specs import LoopSpec
from fastvideo.models.resident import ResidentModel
from fastvideo.models.wan.keys import batch_key, text_features_key
from fastvideo.models.wan.text import check_length, request_texts, tokenize
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.work import CachePlan, LoopRef, WorkPlan, WorkUnit

# Activations of one token through the encoder, a generous bound in float32 rows of its width.
_ACTIVATION_ROWS = 16
_SAVED = ("features",)
# Saved beside it for requests that capture; the others' snapshots are as they always were.
_CAPTURED = "lookups"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeState(StateBase):
    """The texts, their keys, and the features so far."""

    texts: tuple[str, ...]
    keys: tuple[CacheKey, ...]
    key_digests: tuple[str, ...]
    text_length: int
    feature_size: int
    batch_key: str
    # Each [L, D].
    features: tuple[torch.Tensor, ...] = ()
    # What became of each look for them; kept for requests that capture alone.
    lookups: tuple[CacheLookup, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """One text's features, and the look-ups that they rest on."""

    # [L, D]
    features: torch.Tensor
    lookups: tuple[CacheLookup, ...] = ()


class EncodeKernel:
    """Prompt, then negative prompt, to features, exactly as `diffusers.WanPipeline` makes them."""

    components_of: Final = MappingProxyType({"features": "text_encoder"})

    def __init__(self, spec: LoopSpec) -> None:
        self.spec = spec

    def init_state(
        self, loop: LoopRef, request: RequestSpec, inputs: Values, instance: ResidentModel
    ) -> EncodeState:
        """The cleaned texts and their keys.

        Raises InvalidField for a text that is absent, too long, or would change nothing.
        """
        processor = instance.card.processors["text"]
        tokenizer = instance.components["tokenizer"]
        texts = request_texts(request)
        for role, text in texts.items():
            check_length(tokenizer, role, text, processor.max_tokens)
        keys = tuple(
            text_features_key(instance, text, processor.max_tokens) for text in texts.values()
        )
        shape = f"1x{processor.max_tokens}"
        return EncodeState(
            loop=loop,
            request=request,
            texts=tuple(texts.values()),
            keys=keys,
            key_digests=tuple(key_digest(key) for key in keys),
            text_length=processor.max_tokens,
            feature_size=instance.components["text_encoder"].module.config.d_model,
            batch_key=batch_key(instance, self.spec.loop_id, shape=shape),
        )

    def plan_step(self, state: EncodeState, context: PlanContext) -> WorkPlan | None:
        """The next text."""
        index, total = len(state.features), len(state.texts)
        digest = state.key_digests[min(index, total - 1)]
        shape = UnitShape(
            batch_key=state.batch_key,
            cost_shape=f"1x{state.text_length}",
            activation_bytes=4 * _ACTIVATION_ROWS * state.text_length * state.feature_size,
            outputs=("text_features",),
            cache_plan=CachePlan(reads=(digest,), writes=(digest,)),
        )
        return next_unit_plan(self.spec, state, context, index, total, shape)

    def run_step(
        self,
        batch: Sequence[tuple[EncodeState, WorkUnit]],
        instance: ResidentModel,
        context: StepContext,
    ) -> Sequence[Encoded]:
        """Each unit's features, from the cache or the encoder."""
        encoded = []
        for state, unit in batch:
            features = self._features(state, unit, instance, context)
            lookups = _looked(unit, context) if captures(state.request) else ()
            encoded.append(Encoded(features=features, lookups=lookups))
        return encoded

    def advance(self, state: EncodeState, unit: WorkUnit, output: Encoded) -> EncodeState:
        """The state with one more text encoded."""
        return replace(
            state,
            version=state.version + 1,
            features=(*state.features, output.features),
            lookups=(*state.lookups, *output.lookups),
        )

    def finalize(self, state: EncodeState, instance: ResidentModel) -> LoopOutput:
        """`text_features` [branches, L, D], the prompt first.

        And `cache_lookups`, what became of each look, for a request that captures.
        """
        features = torch.stack(state.features)
        values: dict[str, object] = {"text_features": features}
        if captures(state.request):
            values[CACHE_LOOKUPS] = state.lookups
        return LoopOutput(
            values=values,
            digests={"text_features": tensor_digest(features)},
        )

    def state_bytes(self, state: EncodeState) -> bytes:
        """Keys and features."""
        header = {"schema": self.spec.state_schema, "keys": state.key_digests}
        return encode_state(header, state.features)

    def save_state(self, state: EncodeState) -> Values:
        """The features; texts and keys follow from the request."""
        captured = (_CAPTURED,) if captures(state.request) else ()
        return fields_of(state, (*_SAVED, *captured))

    def load_state(
        self, loop: LoopRef, request: RequestSpec, saved: Values, instance: ResidentModel
    ) -> EncodeState:
        """The features of the request's first texts."""
        captured = (_CAPTURED,) if captures(request) else ()
        fields = typed_fields(EncodeState, saved, (*_SAVED, *captured))
        fresh = self.init_state(loop, request, {}, instance)
        shape = (fresh.text_length, fresh.feature_size)
        if len(fields["features"]) > len(fresh.texts) or any(
            tuple(features.shape) != shape for features in fields["features"]
        ):
            raise SnapshotMismatch(
                f"features are not {list(shape)} of {len(fresh.texts)} texts", subject="features"
            )
        return resumed(fresh, fields)

    def _features(
        self, state: EncodeState, unit: WorkUnit, instance: ResidentModel, context: StepContext
    ) -> torch.Tensor:
        index = unit.step_range.start
        context.unit = unit
        if context.cache is not None:
            cached: torch.Tensor | None = context.cache.get(state.keys[index])
            if cached is not None:
                return cached
        ids, mask = tokenize(
            instance.components["tokenizer"], state.texts[index], state.text_length
        )
        context.tap("tokenizer", ids)
        encoder = instance.components["text_encoder"]
        device = encoder.module.device
        hidden = encoder(ids.to(device), mask.to(device))[0]
        context.forwards += 1
        features = torch.zeros_like(hidden)
        tokens = int(mask.sum())
        features[:tokens] = hidden[:tokens]
        if context.cache is not None:
            context.cache.put(state.keys[index], features)
        return features


def _looked(unit: WorkUnit, context: StepContext) -> tuple[CacheLookup, ...]:
    found = context.lookups.get(unit.unit_id, ())
    return tuple(lookup for lookup in found if lookup.outcome is not CacheOutcome.EVICT)
