"""Replays: what was, run again and compared. Nothing is written into the history that is read.

State and decisions are folded here, in threads, a few replays at a time. What needs a model runs
beside a worker that has it. A replay ends with its caller.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import grpc

from fastvideo import wire
from fastvideo.api.worker.v1 import worker_pb2, worker_pb2_grpc
from fastvideo.deployment.catalog import Catalog
from fastvideo.errors import FailedPrecondition, InvalidField, ResourceExhausted, Unavailable
from fastvideo.events.store import EventStore
from fastvideo.replay.decisions import DecisionSource, replay_decisions
from fastvideo.replay.logged_run import read_logged_run
from fastvideo.replay.scheduler_state import SchedulerSource
from fastvideo.replay.states import Served, StateSource, replay_states
from fastvideo.replay.telling import Board, Told
from fastvideo.replay.types import (
    Comparison,
    LoggedRun,
    ReplayKind,
    ReplayProgress,
    ReplayReport,
    ReplayRequest,
)
from fastvideo.replay.what_if import WhatIfSource, replay_what_if
from fastvideo.rpc.channel import open_channel
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.rpc.tls import ClientTls
from fastvideo.scheduling.deployed import DeployedModels
from fastvideo.scheduling.events import WorkerAttached
from fastvideo.telemetry import tracing
from fastvideo_gateway.places import Places

# Replays of states and decisions that run here at a time; others are refused.
AT_ONCE_MAX: Final = 2
# Runs that are read out of the log at a time, for callers and for workers; others are refused.
READ_AT_ONCE_MAX: Final = 4

_HERE: Final = frozenset({ReplayKind.STATE, ReplayKind.DECISION})
_BEHAVIOR_PREFIX: Final = "bhv_"


class Workers(Protocol):
    """Whoever knows the attached workers."""

    async def attached_workers(self) -> tuple[WorkerAttached, ...]:
        """The workers that are attached now."""
        ...


class Behaviors(Protocol):
    """Whoever finds records of behaviour."""

    async def request_of(self, behavior_id: str) -> str:
        """The request that a record is of. Raises NotFound for an unknown record."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayParts:
    """What replays are made of."""

    log: EventStore
    served: Served
    workers: Workers
    behaviors: Behaviors
    catalog: Catalog
    shard: str
    # How workers are dialled; None is in the clear.
    tls: ClientTls | None = None


class Replayer:
    """Runs replays of every kind."""

    def __init__(self, parts: ReplayParts) -> None:
        self._parts = parts
        # Operators alone replay: nobody has a share.
        self._replays = Places("replays", AT_ONCE_MAX, 1.0, "let one end")
        self._readings = Places("runs that are read", READ_AT_ONCE_MAX, 1.0, "let one end")

    async def logged_run(self, request_id: str) -> LoggedRun:
        """What the log says of a request's run.

        Raises NotFound for an unknown request, ResourceExhausted when too many are read, and
        FailedPrecondition when too much happened in its time.
        """
        with self._readings.taken():
            return await read_logged_run(self._parts.log, request_id, self._parts.shard)

    async def replay(self, request: ReplayRequest) -> AsyncGenerator[Told, None]:
        """Progress, comparisons as they are made, and the report; closing it stops the replay.

        Raises NotFound for an unknown subject, InvalidField for a request that makes no sense,
        ResourceExhausted when too many replays run, FailedPrecondition when no worker has the
        model.
        """
        _check(request)
        board = Board(request)
        # In a task of its own, so that its span is one, whoever reads.
        task = asyncio.create_task(self._run(request, board), name=f"replay-{request.kind}")
        try:
            async for told in board.messages(task):
                yield told
            yield await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self, request: ReplayRequest, board: Board) -> ReplayReport:
        attributes = {
            "fastvideo.replay.kind": request.kind.value,
            "fastvideo.replay.subject": request.subject_id,
        }
        with tracing.span(f"replay {request.kind.value}", attributes) as span:
            if request.kind in _HERE:
                with self._replays.taken():
                    report = await self._here(request, board)
                tracing.link(span, report.original_traceparent)
            else:
                run = await self.logged_run(await self._request_of(request))
                tracing.link(span, run.traceparent)
                report = await self._on_worker(request, run, board)
            tracing.set_attributes(
                span,
                {
                    "fastvideo.replay.equal": report.equal,
                    "fastvideo.replay.compared": report.compared,
                    "fastvideo.replay.differing": report.differing,
                },
            )
            return report

    async def _here(self, request: ReplayRequest, board: Board) -> ReplayReport:
        parts = self._parts
        models = DeployedModels(parts.catalog)
        if request.kind is ReplayKind.STATE:
            scheduler = SchedulerSource(parts.shard, models)
            states = StateSource(log=parts.log, served=parts.served, scheduler=scheduler)
            return await replay_states(states, request, board.tell)
        if request.policy:
            arrivals = WhatIfSource(log=parts.log, shard=parts.shard, catalog=parts.catalog)
            return await replay_what_if(arrivals, request, board.tell)
        source = DecisionSource(
            log=parts.log, shard=parts.shard, models=models, cards=_cards(parts.catalog)
        )
        return await replay_decisions(source, request, board.tell)

    async def _request_of(self, request: ReplayRequest) -> str:
        subject = request.subject_id
        if request.kind is ReplayKind.BEHAVIOR and subject.startswith(_BEHAVIOR_PREFIX):
            return await self._parts.behaviors.request_of(subject)
        return subject

    async def _on_worker(
        self, request: ReplayRequest, run: LoggedRun, board: Board
    ) -> ReplayReport:
        """Have a worker that has the run's model run it again, in a process of its own."""
        asked = worker_pb2.ReplayRequest(replay=wire.to_proto(request), run=wire.to_proto(run))
        *others, last = _suited(await self._parts.workers.attached_workers(), run)
        for worker in others:
            try:
                return await _replay_at(worker, asked, board, self._parts.tls)
            except (ResourceExhausted, Unavailable):
                # It runs a replay already, or is gone; another one may not. Once something was
                # compared it is not begun again: what differed might not differ there.
                if board.has_compared:
                    raise
        return await _replay_at(last, asked, board, self._parts.tls)


async def _replay_at(
    worker: WorkerAttached,
    asked: worker_pb2.ReplayRequest,
    board: Board,
    tls: ClientTls | None,
) -> ReplayReport:
    async with _worker_stub(worker.address, tls) as stub:
        async for answer in stub.Replay(asked):
            message = answer.response
            match message.WhichOneof("message"):
                case "progress":
                    board.tell(wire.from_proto(ReplayProgress, message.progress))
                case "comparison":
                    board.tell(wire.from_proto(Comparison, message.comparison))
                case "report":
                    return wire.from_proto(ReplayReport, message.report)
    raise FailedPrecondition(
        f"worker {worker.worker_id} ended the replay without a report",
        reason="NO_REPORT",
        subject=worker.worker_id,
    )


def _check(request: ReplayRequest) -> None:
    if not request.subject_id and request.kind not in _HERE:
        raise InvalidField("subject_id", "", f"what {request.kind.value} replay runs again")
    if request.policy and request.kind is not ReplayKind.DECISION:
        raise InvalidField("policy", "given", "none but for replays of decisions")
    if request.until and request.kind is not ReplayKind.STATE:
        raise InvalidField("until", "given", "none but for replays of states")
    if not 0 <= request.sample <= 1:
        raise InvalidField("sample", request.sample, "0 to 1")
    if not request.tolerance >= 0:
        raise InvalidField("tolerance", request.tolerance, "0 or more")


def _cards(catalog: Catalog) -> Mapping[str, str]:
    return {entry.card.model_id: entry.card_digest for entry in catalog.entries}


def _suited(workers: tuple[WorkerAttached, ...], run: LoggedRun) -> list[WorkerAttached]:
    """The workers that have the model, first the one that is most like the one that ran it.

    Raises FailedPrecondition when none has.
    """
    likeness = {
        worker.worker_id: (
            instance.weights_version == run.instance.weights_version,
            instance.card_digest == run.instance.card_digest,
            worker.fingerprint == run.fingerprint,
        )
        for worker in workers
        for instance in worker.instances
        if instance.model_id == run.spec.model_id
    }
    if not likeness:
        raise FailedPrecondition(
            f"no attached worker has model {run.spec.model_id}; "
            "`fastvideo replay ... --here` runs it on the machine of who asks",
            reason="NO_WORKER",
            subject=run.spec.model_id,
        )
    suited = [worker for worker in workers if worker.worker_id in likeness]
    return sorted(suited, key=lambda worker: likeness[worker.worker_id], reverse=True)


@asynccontextmanager
async def _worker_stub(
    address: str, tls: ClientTls | None
) -> AsyncIterator["worker_pb2_grpc.WorkerServiceAsyncStub"]:
    try:
        async with open_channel(address, tls=tls) as channel:
            yield worker_pb2_grpc.WorkerServiceStub(channel)
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error
