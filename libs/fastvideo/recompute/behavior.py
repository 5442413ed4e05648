"""Behaviour replay: is the log-probability of a sample what the policy gives?

The recorded trajectory is walked through again: at every step the policy sees the recorded
latents, and what it would do there is compared with what was done. Of a step that was drawn,
that is its log-probability, by the function that sampling called; the ratio exp(new - old) is 1
where nothing differs. Of a step that was not drawn it is the latents that it led to.

Where no step needs another, as of flow_sde, several share a forward.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from fastvideo.engine.behavior import TEXT_DIGEST, input_digests
from fastvideo.errors import FailedPrecondition, NotFound
from fastvideo.loops.behavior import RetracingKernel
from fastvideo.loops.contract import PlanContext, StepContext
from fastvideo.loops.divergence import max_abs_difference
from fastvideo.loops.state_encoding import tensor_digest
from fastvideo.media.tensors import decode_tensors
from fastvideo.recompute.host import Host
from fastvideo.recompute.promise import BITS, TOLERANCE, promise_of
from fastvideo.replay.tally import Tally, Tell
from fastvideo.replay.types import (
    Comparison,
    LoggedRun,
    Promise,
    ReplayProgress,
    ReplayReport,
    ReplayRequest,
)
from fastvideo.requests.behavior import BEHAVIOR_PREFIX, BehaviorRecord, behavior_id_of
from fastvideo.scheduling.request_scheduler import program_graph
from fastvideo.scheduling.work import LoopRef

TOLERANCE_DEFAULT: Final = 1e-4
"""How far log-probabilities and latents may be apart on another machine, unless it is said."""

_EXPONENT_MAX: Final = 700.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """A record, and the node that sampled."""

    record: BehaviorRecord
    node_id: str
    # [steps + 1, C, T, H, W] float32.
    latents: torch.Tensor

    @property
    def steps(self) -> int:
        return len(self.latents) - 1


def replay(request: ReplayRequest, run: LoggedRun, host: Host, tell: Tell) -> ReplayReport:
    """Retrace the recorded samples of a run, or the one that the request names.

    Raises NotFound when there is none, FailedPrecondition for a loop that cannot be retraced,
    and what the artifact store raises.
    """
    started = time.monotonic()
    records = _records(request.subject_id, run, host)
    promise = _promise(request, run, host)
    tally = Tally(tell, request)
    ratios: list[float] = []
    for record in records:
        sample = _sample(record, host)
        tally.add(_stored(sample))
        for step, found in _retrace(sample, host):
            comparison, ratio = _compared(sample, step, found, promise)
            tally.add(comparison)
            if ratio is not None:
                ratios.append(ratio)
            tell(ReplayProgress(done=step + 1, total=sample.steps, message=comparison.subject))
    report = tally.report(
        promise=promise,
        equal=not tally.differing,
        headline=_headline(tally, promise, ratios, len(records)),
        seconds=time.monotonic() - started,
        original_seconds=_original_seconds(run, records),
        original_traceparent=run.traceparent,
    )
    return replace(report, subject_id=request.subject_id or run.spec.request_id)


def _records(subject_id: str, run: LoggedRun, host: Host) -> tuple[BehaviorRecord, ...]:
    wanted = [
        record
        for record in run.behaviors
        if not subject_id.startswith(BEHAVIOR_PREFIX) or subject_id == _id_of(record, host)
    ]
    if not wanted:
        raise NotFound(
            f"no behaviour of {subject_id or run.spec.request_id} was recorded; a request with "
            "outputs.capture=behavior records it",
            reason="NO_BEHAVIOR",
            subject="subject_id",
        )
    return tuple(wanted)


def _id_of(record: BehaviorRecord, host: Host) -> str:
    return behavior_id_of(record.request_id, _node_of(record, host), record.sample_index)


def _node_of(record: BehaviorRecord, host: Host) -> str:
    for node in host.program.nodes:
        if node.loop_id == record.loop_id:
            return node.node_id
    raise FailedPrecondition(
        f"program {host.program.program_id} has no loop {record.loop_id} any more",
        subject=record.loop_id,
    )


def _promise(request: ReplayRequest, run: LoggedRun, host: Host) -> Promise:
    promise = promise_of(
        run,
        host.fingerprint,
        host.entry.card,
        card_digest=host.entry.card_digest,
        weights_version=host.weights_version,
        tolerance=request.tolerance,
    )
    if promise.kind != TOLERANCE or promise.tolerance:
        return promise
    return replace(
        promise,
        tolerance=TOLERANCE_DEFAULT,
        reason=f"{promise.reason}; log-probabilities may be {TOLERANCE_DEFAULT:g} apart",
    )


def _sample(record: BehaviorRecord, host: Host) -> _Sample:
    """The record with its trajectory. Raises NotFound for a record that names none."""
    if not record.latents:
        raise NotFound(f"the record of {record.request_id} names no trajectory", subject="latents")
    stored = decode_tensors(host.sources.get(record.latents[0]))
    return _Sample(record=record, node_id=_node_of(record, host), latents=stored["latents"])


def _stored(sample: _Sample) -> Comparison:
    """The stored trajectory against the digest that was recorded when it was sampled."""
    expected, found = sample.record.trajectory_digest, tensor_digest(sample.latents)
    return Comparison(
        subject=f"{sample.node_id} trajectory",
        equal=expected == found,
        expected=expected,
        found=found,
        node_id=sample.node_id,
        component="artifact",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What the policy does at a recorded step."""

    # None where nothing is drawn.
    log_prob: float | None
    # [1, C, T, H, W]; where a step is drawn, another draw would be another.
    latents: torch.Tensor


def _retrace(sample: _Sample, host: Host) -> Iterator[tuple[int, _Found]]:
    """What the policy does at each step, several a forward where no step needs another."""
    record, instance = sample.record, host.instance
    kernel: object = instance.kernels[record.loop_id]
    if not isinstance(kernel, RetracingKernel):
        raise FailedPrecondition(
            f"loop {record.loop_id} of {record.model_id} cannot be retraced",
            reason="NOT_RETRACEABLE",
            subject=record.loop_id,
        )
    request = replace(host.plain, outputs=replace(host.plain.outputs, capture=None))
    loop = LoopRef(
        request_id=request.request_id, node_id=sample.node_id, attempt=record.attempt or 1
    )
    context = PlanContext(model_instance_id=instance.model_instance_id)
    latents = torch.split(sample.latents, 1)
    _require_inputs(record, host)
    with torch.no_grad():
        state: Any = kernel.init_state(loop, request, _inputs(sample, host), instance)
        step = 0
        while step < sample.steps:
            first = kernel.retraced(state, step, latents[step])
            plan = kernel.plan_step(first, context)
            assert plan is not None, "the loop plans fewer steps than were recorded"
            unit = plan.units[0]
            count = unit.max_batch if kernel.retraces_apart(first) else 1
            steps = range(step, min(step + count, sample.steps))
            batch = [(kernel.retraced(state, at, latents[at]), unit) for at in steps]
            outputs = kernel.run_step(batch, instance, StepContext())
            for at, (before, _), output in zip(steps, batch, outputs, strict=True):
                log_prob = kernel.log_prob(before, output, latents[at + 1])
                yield at, _Found(log_prob=log_prob, latents=output.latents)
            state = kernel.advance(batch[-1][0], unit, outputs[-1])
            step = steps.stop


def _inputs(sample: _Sample, host: Host) -> dict[str, Any]:
    """What the sampling node was given, computed anew by the nodes before it."""
    request = replace(host.plain, outputs=replace(host.plain.outputs, capture=None))
    wanted = program_graph(host.program).inputs_of(sample.node_id, request)
    values: dict[str, Any] = {}
    for _ in host.batches(request):
        values = host.values()
        if set(wanted.values()) <= values.keys():
            break
    return {name: values[source] for name, source in wanted.items()}


def _require_inputs(record: BehaviorRecord, host: Host) -> None:
    """Raise FailedPrecondition when the texts that the policy saw are no longer there."""
    digests = input_digests(host.run.spec)
    for name, digest in record.reward_inputs.items():
        if name.endswith(TEXT_DIGEST) and digests.get(name) != digest:
            raise FailedPrecondition(
                f"the {name.removesuffix(TEXT_DIGEST)} of {record.request_id} is not the one that "
                "the policy saw; it may have been erased",
                reason="INPUT_GONE",
                subject=name.removesuffix(TEXT_DIGEST),
            )


def _compared(
    sample: _Sample, step: int, found: _Found, promise: Promise
) -> tuple[Comparison, float | None]:
    """The comparison of a step, and its ratio where it was drawn."""
    subject = f"{sample.node_id} {step + 1}/{sample.steps}"
    allowed = promise.tolerance if promise.kind == TOLERANCE else 0.0
    if found.log_prob is None:
        expected = sample.latents[step + 1 : step + 2]
        apart = max_abs_difference(found.latents.cpu(), expected)
        equal = apart <= allowed if allowed else torch.equal(found.latents.cpu(), expected)
        return Comparison(
            subject=subject,
            equal=equal,
            expected=tensor_digest(expected),
            found=tensor_digest(found.latents),
            max_abs_difference=apart,
            node_id=sample.node_id,
            step=step + 1,
            component="transition",
            detail="" if equal else f"a step without noise leads {apart:g} elsewhere",
        ), None
    old, new = _recorded_log_prob(sample.record, step), found.log_prob
    # A forged record may name anything: beyond this a ratio is infinite in double precision.
    ratio = math.nan if old is None else math.exp(min(new - old, _EXPONENT_MAX))
    equal = old is not None and (abs(new - old) <= allowed if allowed else new == old)
    return Comparison(
        subject=subject,
        equal=equal,
        expected=repr(old),
        found=repr(new),
        max_abs_difference=None if old is None else abs(new - old),
        node_id=sample.node_id,
        step=step + 1,
        component="policy",
        detail=f"ratio {ratio!r}",
    ), ratio


def _recorded_log_prob(record: BehaviorRecord, step: int) -> float | None:
    """Steps that were drawn come before those that were not."""
    return record.logprobs[step] if step < len(record.logprobs) else None


def _headline(tally: Tally, promise: Promise, ratios: Sequence[float], samples: int) -> str:
    many = f"{samples} samples" if samples > 1 else "the sample"
    if not tally.differing:
        if not ratios:
            return f"{many}: every transition is what the policy gives; nothing of it was drawn"
        how = "is 1" if promise.kind == BITS else f"is 1 within {promise.tolerance:g}"
        return f"{many}: the ratio of each of {len(ratios)} drawn steps {how}"
    first = tally.first
    assert first is not None
    return f"{many}: {tally.differing} of {tally.compared} differ, first {first.subject}" + (
        f": {first.detail}" if first.detail else ""
    )


def _original_seconds(run: LoggedRun, records: Sequence[BehaviorRecord]) -> float:
    loops = {record.loop_id for record in records}
    return sum(step.measured_seconds for step in run.steps if step.loop_id in loops)
