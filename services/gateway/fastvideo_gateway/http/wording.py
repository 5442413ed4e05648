"""An event in one line, for a person who reads down a list."""

from collections import Counter
from collections.abc import Sequence

from fastvideo.artifacts.events import (
    ArtifactCompleted,
    ArtifactCreated,
    ArtifactDeleted,
    ArtifactUpdated,
    MediaChunkAdded,
    MediaCompleted,
    MediaInitialized,
)
from fastvideo.events.types import EventPayload
from fastvideo.explain.headline import span
from fastvideo.requests.events import (
    RequestAccepted,
    RequestCancelled,
    RequestCancelRequested,
    RequestCompleted,
    RequestExpired,
    RequestFailed,
    RequestLogged,
    RequestProgressed,
    RequestQueued,
    RequestStarted,
)
from fastvideo.scheduling import events as shard
from fastvideo.scheduling import traces
from fastvideo.scheduling.subjects import requests_of_decision

_NAMED_MAX = 3


def words_of(payload: EventPayload, about: str = "") -> str:
    """What the event says; empty when its name says all.

    Of batches and decisions, what concerns the request that the list is `about`.
    """
    told = _of_request(payload) or _of_artifact(payload)
    return told or _of_shard(payload, about) or _of_note(payload)


def _of_request(payload: EventPayload) -> str:
    match payload:
        case RequestAccepted(spec=spec):
            return f"{spec.model_id}, program {spec.program_id}"
        case RequestQueued():
            place = f"place {payload.position}" if payload.position else "waits"
            return f"{place}: {payload.reason}" if payload.reason else place
        case RequestStarted(attempt=attempt):
            return f"attempt {attempt}"
        case RequestProgressed():
            step = f" {payload.step}/{payload.steps}" if payload.steps else ""
            return f"{payload.node_id}{step} · {payload.fraction:.0%}"
        case RequestCancelRequested():
            return payload.reason or payload.scope.kind.value
        case RequestCancelled():
            return " at ".join(filter(None, (payload.reason, payload.boundary)))
        case RequestFailed(error=error):
            return f"{error.reason}: {error.message}"
        case RequestLogged():
            return f"{payload.level}: {payload.message}"
        case RequestCompleted(metrics=metrics):
            return f"after {span(metrics.total_seconds)}, {_count(metrics.units, 'unit')}"
        case RequestExpired(expires_at=expires_at):
            return f"{expires_at:%Y-%m-%d %H:%M:%S} UTC"
        case _:
            return ""


def _of_artifact(payload: EventPayload) -> str:
    match payload:
        case ArtifactCreated(record=record):
            return f"{record.kind.value} {record.name}"
        case ArtifactCompleted(record=record):
            return f"{record.kind.value} {record.name}, {record.size_bytes:,} bytes"
        case ArtifactDeleted():
            return f"{payload.reason}, {payload.size_bytes:,} bytes"
        case ArtifactUpdated(kept=True, expires_at=None):
            return "kept for ever"
        case ArtifactUpdated(kept=True, expires_at=until):
            return f"kept until {until:%Y-%m-%d %H:%M:%S} UTC"
        case ArtifactUpdated():
            return f"{payload.size_bytes:,} bytes"
        case MediaInitialized(media=media):
            return f"{media.container}/{media.codec} {media.width}x{media.height}"
        case MediaChunkAdded():
            stage = "final" if payload.final else "preview"
            times = f"{payload.start_seconds:.2f} to {payload.stop_seconds:.2f} s"
            return f"{stage} {payload.index}, {times}"
        case MediaCompleted():
            return f"{_count(payload.chunks, 'chunk')}, {payload.duration_seconds:.2f} s"
        case _:
            return ""


def _of_shard(payload: EventPayload, about: str) -> str:
    match payload:
        case shard.BatchExecuted():
            return _batch(payload, about)
        case shard.SchedulerDecided(decisions=decisions):
            return _decided(decisions, about)
        case shard.LoopPrepared():
            return f"{payload.plan.loop.node_id} on {payload.worker_id}, {span(payload.seconds)}"
        case shard.LoopFailed(error=error):
            return f"{payload.loop.node_id} on {payload.worker_id}: {error.reason} {error.message}"
        case shard.RequestSnapshotted():
            loops = _count(len(payload.snapshots), "loop")
            return f"{loops} on {payload.worker_id}, {span(payload.seconds)}"
        case shard.LeaderElected():
            return f"{payload.scheduler_id}, epoch {payload.epoch}"
        case (
            shard.WorkerAttached()
            | shard.WorkerReattached()
            | shard.WorkerDetached()
            | shard.WorkerLost()
            | shard.WorkerDraining()
        ):
            return ": ".join(filter(None, (payload.worker_id, getattr(payload, "reason", ""))))
        case _:
            return ""


def _batch(payload: shard.BatchExecuted, about: str) -> str:
    own = [one for one in payload.results if one.loop.request_id == about]
    told = own or payload.results
    steps = [
        f"{one.loop.node_id} {one.step_range.stop}/{one.step_range.total}"
        for one in told[:_NAMED_MAX]
    ]
    more = f" and {len(told) - _NAMED_MAX} more" if len(told) > _NAMED_MAX else ""
    others = len({one.loop.request_id for one in payload.results} - {about}) if own else 0
    beside = f" with {_count(others, 'other')}" if others else ""
    where = f"on {payload.worker_id}, {span(payload.measured_seconds)}"
    return f"{', '.join(steps)}{more}{beside} {where}"


def _decided(decisions: Sequence[shard.Decision], about: str) -> str:
    own = [one for one in decisions if about in requests_of_decision(one)]
    counted = Counter(type(one).__name__ for one in own or decisions)
    if not counted:
        return "nothing"
    return ", ".join(f"{count} {name}" if count > 1 else name for name, count in counted.items())


def _of_note(payload: EventPayload) -> str:
    match payload:
        case traces.CacheAccessed(accesses=accesses):
            counted = Counter(one.lookup.outcome.value for one in accesses)
            return ", ".join(f"{count} {outcome}" for outcome, count in counted.items())
        case traces.TransferRecorded():
            return f"{payload.state.value}, {payload.size_bytes:,} bytes, {span(payload.seconds)}"
        case traces.ComponentsTraced(step_range=steps):
            parts = _count(len(payload.components), "component")
            layers = _count(payload.layers, "layer")
            return f"{payload.node_id} {steps.stop}/{steps.total}: {parts}, {layers}"
        case traces.NonFiniteFound():
            where = " ".join(filter(None, (payload.component, payload.layer)))
            return f"{payload.nans} NaN, {payload.infinities} infinite in {where}"
        case traces.MemoryReported():
            return f"{payload.pool}: {payload.in_use_bytes:,} of {payload.budget_bytes:,} bytes"
        case traces.WeightsChanged():
            return f"{payload.model_id} {payload.from_version} → {payload.to_version}"
        case traces.ParityChecked():
            return f"{payload.subject} {'agrees' if payload.passed else 'differs'}"
        case traces.BehaviorRecorded():
            return payload.behavior_id
        case _:
            return ""


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
