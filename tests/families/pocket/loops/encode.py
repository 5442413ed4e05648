"""Text features through a tier of the cache: load; if they are not there, encode and save."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fastvideo.cache.keys import key_digest
from fastvideo.cache.tiers import load_tensor, save_tensor
from fastvideo.loops.contract import LoopOutput, PlanContext, StateBase, StepContext, Values
from fastvideo.loops.state_encoding import encode_state, tensor_digest
from fastvideo.loops.units import UnitShape, next_unit_plan
from fastvideo.model.caching import CacheKey
from fastvideo.model.specs import LoopSpec
from fastvideo.models.resident import ResidentModel
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.work import CachePlan, LoopRef, UnitKind, WorkPlan, WorkUnit
from tests.families.pocket.checkpoint import FEATURE_SIZE
from tests.families.pocket.keys import batch_key, features_key
from tests.families.pocket.text import padded, part_text, tokens_of

LENGTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeState(StateBase):
    """The text, its key, and its features once they are there."""

    tokens: tuple[int, ...]
    key: CacheKey
    digest: str
    batch_key: str
    # [L, D]
    features: torch.Tensor | None = None
    # They came out of the tier, or are in it now.
    kept: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """What a unit gave; None from a load that found nothing."""

    features: torch.Tensor | None
    kept: bool


class EncodeKernel:
    """Units: cache_load; encoder_chunk after a miss; cache_save after that."""

    def __init__(self, spec: LoopSpec) -> None:
        self.spec = spec

    def init_state(
        self, loop: LoopRef, request: RequestSpec, inputs: Values, instance: ResidentModel
    ) -> EncodeState:
        """The text and its key. Raises InvalidField for a text that is too long."""
        text = part_text(request)
        key = features_key(instance, text, LENGTH)
        return EncodeState(
            loop=loop,
            request=request,
            tokens=tokens_of(text, LENGTH),
            key=key,
            digest=key_digest(key),
            batch_key=batch_key(instance, self.spec.loop_id),
        )

    def plan_step(self, state: EncodeState, context: PlanContext) -> WorkPlan | None:
        """What is next: load, encode or save."""
        size = 4 * LENGTH * FEATURE_SIZE
        if state.kept:
            return None
        if state.version == 0:
            kind, plan, compute = UnitKind.CACHE_LOAD, CachePlan(reads=(state.digest,)), False
        elif state.features is None:
            kind, plan, compute = UnitKind.ENCODER_CHUNK, CachePlan(reads=(state.digest,)), True
        else:
            kind, plan, compute = UnitKind.CACHE_SAVE, CachePlan(writes=(state.digest,)), False
        shape = UnitShape(
            kind=kind,
            batch_key=f"{state.batch_key}/{kind}",
            cost_shape=f"1x{LENGTH}",
            activation_bytes=16 * size if compute else 0,
            staging_bytes=0 if compute else size,
            outputs=("text_features",),
            cache_plan=plan,
            compute=compute,
            unconditional_next=0,
        )
        return next_unit_plan(self.spec, state, context, state.version, 3, shape)

    def run_step(
        self,
        batch: Sequence[tuple[EncodeState, WorkUnit]],
        instance: ResidentModel,
        context: StepContext,
    ) -> Sequence[Encoded]:
        """One text a unit."""
        return [self._run(state, unit, instance, context) for state, unit in batch]

    def advance(self, state: EncodeState, unit: WorkUnit, output: Encoded) -> EncodeState:
        """The state with what the unit gave."""
        return replace(state, version=state.version + 1, features=output.features, kept=output.kept)

    def finalize(self, state: EncodeState, instance: ResidentModel) -> LoopOutput:
        """`text_features` [branches, L, D]: the text's and none at all."""
        assert state.features is not None
        features = torch.stack([state.features, torch.zeros_like(state.features)])
        return LoopOutput(
            values={"text_features": features},
            digests={"text_features": tensor_digest(features)},
        )

    def state_bytes(self, state: EncodeState) -> bytes:
        """Key and features."""
        header = {"schema": self.spec.state_schema, "key": state.digest, "kept": state.kept}
        return encode_state(header, (state.features,))

    def _run(
        self, state: EncodeState, unit: WorkUnit, instance: ResidentModel, context: StepContext
    ) -> Encoded:
        context.unit = unit
        if unit.kind is UnitKind.CACHE_LOAD:
            found = load_tensor(context, state.key)
            return Encoded(features=found, kept=found is not None)
        if unit.kind is UnitKind.CACHE_SAVE:
            assert state.features is not None
            save_tensor(context, state.key, state.features)
            return Encoded(features=state.features, kept=True)
        context.forwards += 1
        hidden = instance.components["text_encoder"](padded(state.tokens, LENGTH))
        features = torch.zeros_like(hidden)
        features[: len(state.tokens)] = hidden[: len(state.tokens)]
        # Without a tier there is nothing to save into.
        return Encoded(features=features, kept=context.tier is None)
