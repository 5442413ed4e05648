"""What the scheduler's events are about: whose request, where it runs, in which versions.

It is told inputs and decisions in the order in which they are written, so that each event says
how things stood at its own time.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Protocol

from fastvideo.deployment.card import WORKER_ROLE
from fastvideo.events.metadata import request_metadata
from fastvideo.events.types import EventMetadata
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.core import SchedulerCore
from fastvideo.scheduling.effects import TERMINAL
from fastvideo.scheduling.events import (
    AssignLoop,
    BatchExecuted,
    Decision,
    LeaderElected,
    LoopFailed,
    LoopPrepared,
    ReportProgress,
    RequestSnapshotted,
    RestartRequest,
    WorkerAttached,
    WorkerDetached,
    WorkerDraining,
    WorkerLost,
    WorkerReattached,
)
from fastvideo.scheduling.notes import requests_of
from fastvideo.scheduling.subjects import requests_of_decision
from fastvideo.scheduling.traces import (
    ComponentsTraced,
    NonFiniteFound,
    TraceNote,
    WeightsChanged,
)
from fastvideo.scheduling.work import LoopRef, ModelState
from fastvideo.version import program_version

Report = (
    LeaderElected
    | WorkerAttached
    | WorkerDetached
    | WorkerReattached
    | WorkerDraining
    | WorkerLost
    | LoopPrepared
    | LoopFailed
    | BatchExecuted
    | RequestSnapshotted
)
"""An input that is not in the log until the scheduler writes it."""

# What an event about several requests says only when it is the same for all.
_SHARED: Final = (
    "tenant_id",
    "request_id",
    "session_id",
    "program_id",
    "model_id",
    "model_instance_id",
)


class Requests(Protocol):
    """Whoever knows the live requests."""

    def spec(self, request_id: str) -> RequestSpec | None:
        """The request, while it lives."""
        ...

    def traceparent(self, request_id: str) -> str:
        """The traceparent of its span."""
        ...


class Provenance:
    """The metadata of one term's events."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._workers: dict[str, WorkerAttached] = {}
        # By live request: what its events say, but for their time; and its loops by node.
        self._known: dict[str, EventMetadata] = {}
        self._loop_ids: dict[str, dict[str, str]] = {}

    def take(self, event: Report | Decision, now: datetime) -> None:
        """Learn from an input or a decision, after its own event is made."""
        match event:
            case WorkerAttached():
                self._workers[event.worker_id] = event
            case WorkerLost():
                known = self._workers.get(event.worker_id)
                if known is not None and event.incarnation in ("", known.incarnation):
                    del self._workers[event.worker_id]
            case AssignLoop():
                self._place(event, now)
            case RestartRequest():
                self._forget(event.request_id)
            case _ if isinstance(event, TERMINAL):
                self._forget(event.request_id)

    def resume(self, core: SchedulerCore, now: datetime) -> None:
        """Learn what a core knows that was not told here."""
        for attached in core.attachments:
            self.take(attached, now)
        for assignment in core.assignments:
            self.take(assignment, now)

    def of_report(self, report: Report, now: datetime) -> EventMetadata:
        """About a worker, and the loops that it reports on."""
        match report:
            case LoopPrepared():
                loops = [report.plan.loop]
            case LoopFailed():
                loops = [report.loop]
            case BatchExecuted():
                loops = [result.loop for result in report.results]
            case RequestSnapshotted():
                loops = [LoopRef(request_id=report.request_id)]
            case LeaderElected():
                return about_program(now)
            case _:
                loops = []
        loop_ids = {self._loop_id(loop) for loop in loops}
        return replace(
            self._shared((loop.request_id for loop in loops), now),
            loop_id=loop_ids.pop() if len(loop_ids) == 1 else "",
            worker_id=report.worker_id,
            role_id=WORKER_ROLE,
        )

    def of_note(self, note: TraceNote, report: EventMetadata, now: datetime) -> EventMetadata:
        """About the requests of a note, or the model that it names, on the worker that reports.

        `report` is what its report is about.
        """
        named = requests_of(note)
        about = self._shared(named, now) if named else about_program(now)
        loop_id = report.loop_id if named and about.request_id == report.request_id else ""
        if isinstance(note, ComponentsTraced | NonFiniteFound):
            node = LoopRef(request_id=note.request_id, node_id=note.node_id)
            loop_id = self._loop_id(node) or loop_id
        instance_id = getattr(note, "model_instance_id", "")
        model_id = getattr(note, "model_id", "")
        instance = self._instance(report.worker_id, instance_id, model_id)
        if instance is not None:
            about = replace(
                about,
                model_id=instance.model_id,
                model_instance_id=instance.model_instance_id,
                versions={**about.versions, **_versions_of(instance)},
            )
        return replace(
            about,
            model_id=about.model_id or model_id,
            loop_id=loop_id,
            worker_id=report.worker_id,
            role_id=WORKER_ROLE,
            traceparent=about.traceparent or report.traceparent,
        )

    def of_weights(self, change: WeightsChanged, now: datetime) -> EventMetadata:
        """About a model and its instance on a worker."""
        adapters = {f"adapter:{k}": v for k, v in change.adapter_versions.items()}
        about = about_program(now)
        return replace(
            about,
            model_id=change.model_id,
            model_instance_id=change.model_instance_id,
            worker_id=change.worker_id,
            role_id=WORKER_ROLE,
            versions={
                **about.versions,
                "weights": change.to_version or change.from_version,
                **adapters,
            },
        )

    def of_decisions(self, decisions: Iterable[Decision], now: datetime) -> EventMetadata:
        """About the requests that were decided on."""
        return self._shared((id_ for made in decisions for id_ in requests_of_decision(made)), now)

    def beside(
        self, about: EventMetadata, decisions: Iterable[Decision], now: datetime
    ) -> EventMetadata:
        """About what led to decisions, and of no tenant when they are about another's requests."""
        tenants = {
            self._known_of(request_id, now).tenant_id
            for made in decisions
            for request_id in requests_of_decision(made)
        }
        return about if tenants <= {about.tenant_id} else replace(about, tenant_id="")

    def of_decision(self, request_id: str, decision: Decision, now: datetime) -> EventMetadata:
        """About a request, and the loop that the decision tells of."""
        about = self.of_request(request_id, now)
        if isinstance(decision, ReportProgress):
            loop = LoopRef(request_id=request_id, node_id=decision.node_id)
            return replace(about, loop_id=self._loop_id(loop))
        return about

    def of_request(self, request_id: str, now: datetime) -> EventMetadata:
        """About a request, and where it runs if it does."""
        return replace(self._known_of(request_id, now), occurred_at=now)

    def _known_of(self, request_id: str, now: datetime) -> EventMetadata:
        """As `of_request`, with the time of whenever it was learned."""
        known = self._known.get(request_id)
        if known is not None:
            return known
        spec = self._requests.spec(request_id)
        if spec is None:
            return replace(about_program(now), request_id=request_id)
        made = request_metadata(spec, now, self._requests.traceparent(request_id))
        self._known[request_id] = made
        return made

    def _shared(self, request_ids: Iterable[str], now: datetime) -> EventMetadata:
        """About the first request, without what the others say differently.

        Its trace stands for all.
        """
        abouts = [self._known_of(request_id, now) for request_id in dict.fromkeys(request_ids)]
        if not abouts:
            return about_program(now)
        first, *others = abouts
        differing: dict[str, Any] = {
            name: ""
            for name in _SHARED
            if any(getattr(other, name) != getattr(first, name) for other in others)
        }
        return replace(first, occurred_at=now, **differing)

    def _loop_id(self, loop: LoopRef) -> str:
        return self._loop_ids.get(loop.request_id, {}).get(loop.node_id, "")

    def _place(self, decision: AssignLoop, now: datetime) -> None:
        request_id = decision.loop.request_id
        self._loop_ids.setdefault(request_id, {})[decision.loop.node_id] = decision.loop_id
        known = self._known_of(request_id, now)
        if known.model_instance_id != decision.model_instance_id:
            self._known[request_id] = replace(
                known,
                worker_id=decision.worker_id,
                role_id=WORKER_ROLE,
                model_instance_id=decision.model_instance_id,
                versions={**known.versions, **self._model_versions(decision)},
            )

    def _model_versions(self, decision: AssignLoop) -> dict[str, str]:
        instance = self._instance(decision.worker_id, decision.model_instance_id)
        return _versions_of(instance) if instance is not None else {}

    def _instance(self, worker_id: str, instance_id: str, model_id: str = "") -> ModelState | None:
        """An instance of a worker, by its id or else as the only one of its model."""
        worker = self._workers.get(worker_id)
        instances = worker.instances if worker is not None else ()
        if instance_id:
            return next((i for i in instances if i.model_instance_id == instance_id), None)
        named = [i for i in instances if model_id and i.model_id == model_id]
        return named[0] if len(named) == 1 else None

    def _forget(self, request_id: str) -> None:
        self._known.pop(request_id, None)
        self._loop_ids.pop(request_id, None)


def _versions_of(instance: ModelState) -> dict[str, str]:
    adapters = {f"adapter:{k}": v for k, v in instance.adapter_versions.items()}
    return {"weights": instance.weights_version, **adapters}


def about_program(now: datetime) -> EventMetadata:
    """About no request: only which program says it."""
    return EventMetadata(versions={"fastvideo": program_version()}, occurred_at=now)
