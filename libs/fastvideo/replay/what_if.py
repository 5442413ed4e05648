"""What if: the requests that came, under another scheduling policy.

Measured, from the log: when requests came and what they asked, when they were cancelled, which
workers were attached, and what steps cost. Modelled: the workers, which are alike and never fail,
their streams, and batches that never ran, whose cost is the line through those that did. So the
logged policy is simulated too: how far that is from what was logged says how far to trust the
rest.
"""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from fastvideo.deployment.catalog import Catalog
from fastvideo.deployment.scheduling_policy import policy_of
from fastvideo.errors import Cancelled, FailedPrecondition, InvalidField
from fastvideo.events.records import StoredEvent
from fastvideo.events.seeking import pages_after
from fastvideo.events.store import EventLog
from fastvideo.model.documents import InvalidDocument
from fastvideo.replay.arrivals_log import ArrivalsLog
from fastvideo.replay.gently import gently
from fastvideo.replay.log_inputs import LogInputs
from fastvideo.replay.shard_entries import EntryReader, ShardEntry
from fastvideo.replay.tally import Tell
from fastvideo.replay.types import (
    PolicyFigures,
    Promise,
    ReplayKind,
    ReplayProgress,
    ReplayReport,
    ReplayRequest,
)
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.stream import shard_stream
from fastvideo.simulation.reading import Scenario
from fastvideo.simulation.series import percentile
from fastvideo.simulation.world import Progress, World

LOGGED: Final = "logged"
SIMULATED: Final = "logged_simulated"
WHAT_IF: Final = "what_if"

_PROMISE: Final = Promise(
    kind="none",
    reason="figures of a simulation; measured: arrivals, cancellations, workers and the cost of "
    "steps; modelled: workers that are alike and never fail, their streams, and the cost of "
    "batches that never ran",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfSource:
    """Where arrivals are read, and the cards of their models."""

    log: EventLog
    shard: str
    catalog: Catalog


async def replay_what_if(source: WhatIfSource, request: ReplayRequest, tell: Tell) -> ReplayReport:
    """Compare waits, totals, utilisation and batches of the logged policy and of another.

    Raises InvalidField for a policy that cannot be read and for one request alone,
    FailedPrecondition when no request ran whose model's card is installed.
    """
    if request.subject_id not in ("", "scheduler"):
        raise InvalidField("subject_id", request.subject_id, "empty: a policy is over all requests")
    begun_s = perf_counter()
    policy = _policy(request.policy)
    arrivals = await _read(source, tell)
    if not arrivals.requests:
        raise FailedPrecondition("no request has come whose model is installed", subject="log")
    logged = arrivals.figures(LOGGED)
    stop = threading.Event()
    try:
        before = await asyncio.to_thread(
            _simulate, arrivals, arrivals.policy, SIMULATED, tell, stop
        )
        after = await asyncio.to_thread(_simulate, arrivals, policy, WHAT_IF, tell, stop)
    finally:
        # A thread cannot be cancelled.
        stop.set()
    return ReplayReport(
        kind=ReplayKind.DECISION,
        subject_id=request.subject_id,
        equal=True,
        promise=_PROMISE,
        seconds=perf_counter() - begun_s,
        original_seconds=arrivals.seconds,
        headline=_headline(arrivals, before, after),
        policies=(logged, before, after),
    )


def _policy(text: str) -> SchedulingPolicy:
    try:
        return policy_of(text, "policy")
    except InvalidDocument as error:
        knob, fault = next(iter(error.problems.items()))
        raise InvalidField("policy", knob, fault) from error


async def _read(source: WhatIfSource, tell: Tell) -> ArrivalsLog:
    stream = shard_stream(source.shard)
    total = await source.log.stream_version(stream)
    arrivals = ArrivalsLog(source.catalog)
    reader, inputs = EntryReader(), LogInputs(source.log)
    async for page in pages_after(source.log, stream, 0):
        entries = await asyncio.to_thread(_entries, reader, page)
        await asyncio.to_thread(arrivals.take, await inputs.complete(entries))
        done = page[-1].stream_version
        tell(ReplayProgress(done=done, total=2 * total, message="reading what came"))
    return arrivals


def _entries(reader: EntryReader, page: Sequence[StoredEvent]) -> tuple[ShardEntry, ...]:
    return tuple(gently(reader.read(page)))


def _simulate(
    arrivals: ArrivalsLog,
    policy: SchedulingPolicy,
    name: str,
    tell: Tell,
    stop: threading.Event,
) -> PolicyFigures:
    scenario: Scenario = arrivals.scenario(policy)
    world = World(scenario, seed=0)
    total = len(arrivals.requests)

    def progress(now: Progress) -> None:
        if stop.is_set():
            raise Cancelled("the caller has left")
        tell(ReplayProgress(done=now.ended, total=total, message=f"simulating {name}"))

    world.run(progress=progress)
    waits, totals = world.figures.times()
    summary = world.summary()
    pools = [pool for pool in summary.pools if pool.workers]
    return PolicyFigures(
        policy=name,
        requests=summary.requests,
        wait_seconds_p50=percentile(waits, 0.5),
        wait_seconds_p95=percentile(waits, 0.95),
        total_seconds_p50=percentile(totals, 0.5),
        total_seconds_p95=percentile(totals, 0.95),
        utilisation=_mean([pool.utilisation for pool in pools]),
        mean_batch_size=_mean([pool.batch_size for pool in pools if pool.batch_size]),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _headline(arrivals: ArrivalsLog, before: PolicyFigures, after: PolicyFigures) -> str:
    waits = _change(before.wait_seconds_p95, after.wait_seconds_p95)
    totals = _change(before.total_seconds_p95, after.total_seconds_p95)
    left = ""
    if arrivals.left_out:
        left = f"; {arrivals.left_out} earlier requests, or of other models, are left out"
    return (
        f"simulated over {len(arrivals.requests)} requests, under the other policy waits {waits} "
        f"and totals {totals} (95th percentiles){left}"
    )


def _change(before: float, after: float) -> str:
    if before <= 0 or abs(after - before) <= 0.01 * before:
        return "stay as they are"
    part = f"by {abs(after - before) / before:.0%}"
    return f"shrink {part}" if after < before else f"grow {part}"
