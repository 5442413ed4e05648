"""Autoregressive text: the prompt in chunks, then one token a unit, requests decoded together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fastvideo.errors import InvalidField
from fastvideo.loops.contract import LoopOutput, PlanContext, StateBase, StepContext, Values
from fastvideo.loops.state_encoding import encode_state, tensor_digest
from fastvideo.loops.units import UnitShape, next_unit_plan
from fastvideo.model.specs import LoopSpec
from fastvideo.models.resident import ResidentModel
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.work import LoopRef, UnitKind, WorkPlan, WorkUnit
from tests.families.pocket.components import KeysValues, Reasoner
from tests.families.pocket.keys import batch_key
from tests.families.pocket.text import part_text, tokens_of

BLOCK_TOKENS = 16
"""Tokens of one block of the paged cache."""

CHUNK_TOKENS = 8
"""Tokens of a prompt that one prefill unit takes."""

_TENSORS_A_TOKEN = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class TellState(StateBase):
    """The text so far, and the keys and values of what was read of it."""

    prompt: tuple[int, ...]
    made: tuple[int, ...] = ()
    # Log-probability of each token that was made.
    logprobs: tuple[float, ...] = ()
    # Tokens whose keys and values are there.
    read: int = 0
    # [layers, heads, slots, D], zeros behind what was read.
    keys: torch.Tensor
    values: torch.Tensor
    prefill_key: str
    token_key: str
    # Requests that may share a decode.
    batch_max: int

    @property
    def to_read(self) -> int:
        """Tokens of the prompt that prefill reads; the last one is read by the first decode."""
        return len(self.prompt) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a unit gave: keys and values, and a token from a decode."""

    cache: KeysValues
    read: int
    token: int | None = None
    logprob: float = 0.0


class TellKernel:
    """Samples `sampling.steps` tokens after the prompt; the seed and the position draw each."""

    def __init__(self, spec: LoopSpec, chunk_tokens: int = CHUNK_TOKENS) -> None:
        self.spec = spec
        self._chunk_tokens = chunk_tokens

    def init_state(
        self, loop: LoopRef, request: RequestSpec, inputs: Values, instance: ResidentModel
    ) -> TellState:
        """An empty cache. Raises InvalidField when prompt and answer exceed the context."""
        reasoner: Reasoner = instance.components["reasoner"]
        prompt = tokens_of(part_text(request), reasoner.context)
        if len(prompt) + request.sampling.steps > reasoner.context:
            raise InvalidField(
                "sampling.steps",
                request.sampling.steps,
                f"at most {reasoner.context - len(prompt)} after this prompt",
            )
        cache = reasoner.empty_cache()
        return TellState(
            loop=loop,
            request=request,
            prompt=prompt,
            keys=cache.keys,
            values=cache.values,
            prefill_key=batch_key(instance, self.spec.loop_id, phase="prefill"),
            token_key=batch_key(instance, self.spec.loop_id, phase="token"),
            batch_max=min(reasoner.exact_batch_max, self.spec.step_policy.max_batch),
        )

    def plan_step(self, state: TellState, context: PlanContext) -> WorkPlan | None:
        """The next chunk of the prompt, or the next token."""
        chunks = -(-state.to_read // self._chunk_tokens)
        # A window reserves what its first unit declares, so a unit that needs another block of
        # the cache is not promised.
        room = -state.read % BLOCK_TOKENS or BLOCK_TOKENS
        total = chunks + state.request.sampling.steps
        if state.read < state.to_read:
            stop = min(state.to_read, state.read + self._chunk_tokens)
            tokens, kind, key, most = stop - state.read, UnitKind.AR_PREFILL, state.prefill_key, 1
            left = min(chunks - state.version - 1, room // self._chunk_tokens - 1)
        else:
            stop, tokens = state.read + 1, 1
            kind, key, most = UnitKind.AR_TOKEN, state.token_key, state.batch_max
            left = min(total - state.version - 1, room - 1)
        shape = UnitShape(
            kind=kind,
            batch_key=key,
            cost_shape=str(tokens),
            activation_bytes=4 * _TENSORS_A_TOKEN * state.keys.shape[-1] * max(4, tokens) * 16,
            outputs=("tokens",),
            max_batch=most,
            cache_blocks=-(-stop // BLOCK_TOKENS),
            unconditional_next=max(0, left),
        )
        return next_unit_plan(self.spec, state, context, state.version, total, shape)

    def run_step(
        self,
        batch: Sequence[tuple[TellState, WorkUnit]],
        instance: ResidentModel,
        context: StepContext,
    ) -> Sequence[Told]:
        """One forward: a chunk of one prompt, or a token of every request."""
        reasoner: Reasoner = instance.components["reasoner"]
        context.forwards += 1
        if batch[0][1].kind is UnitKind.AR_PREFILL:
            return [self._prefill(state, reasoner) for state, _ in batch]
        rows = [((*state.prompt, *state.made)[state.read],) for state, _ in batch]
        starts = [state.read for state, _ in batch]
        caches = [KeysValues(keys=state.keys, values=state.values) for state, _ in batch]
        logits, after = reasoner.read(rows, starts, caches)
        return [
            _drawn(state, row[-1], cache)
            for (state, _), row, cache in zip(batch, logits, after, strict=True)
        ]

    def advance(self, state: TellState, unit: WorkUnit, output: Told) -> TellState:
        """The state with more read, and a token more after a decode."""
        made, logprobs = state.made, state.logprobs
        if output.token is not None:
            made, logprobs = (*made, output.token), (*logprobs, output.logprob)
        return replace(
            state,
            version=state.version + 1,
            read=output.read,
            keys=output.cache.keys,
            values=output.cache.values,
            made=made,
            logprobs=logprobs,
        )

    def finalize(self, state: TellState, instance: ResidentModel) -> LoopOutput:
        """`tokens` [N] int64 and `logprobs` [N] float32."""
        tokens = torch.tensor(state.made)
        logprobs = torch.tensor(state.logprobs)
        return LoopOutput(
            values={"tokens": tokens, "logprobs": logprobs},
            digests={"tokens": tensor_digest(tokens), "logprobs": tensor_digest(logprobs)},
        )

    def state_bytes(self, state: TellState) -> bytes:
        """The text, and every key and value."""
        header = {
            "schema": self.spec.state_schema,
            "prompt": state.prompt,
            "made": state.made,
            "read": state.read,
        }
        logprobs = torch.tensor(state.logprobs, dtype=torch.float32)
        return encode_state(header, (state.keys, state.values, logprobs))

    def _prefill(self, state: TellState, reasoner: Reasoner) -> Told:
        stop = min(state.to_read, state.read + self._chunk_tokens)
        cache = KeysValues(keys=state.keys, values=state.values)
        _, [after] = reasoner.read([state.prompt[state.read : stop]], [state.read], [cache])
        return Told(cache=after, read=stop)


def _drawn(state: TellState, logits: torch.Tensor, cache: KeysValues) -> Told:
    """A token drawn from [V] logits by the request's seed and the position."""
    generator = torch.Generator().manual_seed(state.request.sampling.seed * 4096 + state.read)
    logprobs = torch.log_softmax(logits, dim=-1)
    token = int(torch.multinomial(logprobs.exp(), 1, generator=generator))
    return Told(cache=cache, read=state.read + 1, token=token, logprob=float(logprobs[token]))
