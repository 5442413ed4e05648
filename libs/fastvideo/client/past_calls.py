"""The calls of a client that are about what happened: explained, replayed, recorded."""

import dataclasses
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastvideo import wire
from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.client.behaviors import behaviors
from fastvideo.client.calls import Calls
from fastvideo.client.explanations import Explained, explain
from fastvideo.client.replays import OnTold, logged_run, run_replay
from fastvideo.client.submission import carrying, check_names, member
from fastvideo.replay.types import LoggedRun, ReplayKind, ReplayReport, ReplayRequest
from fastvideo.scheduling.traces import BehaviorRecorded, ParityChecked

if TYPE_CHECKING:
    from fastvideo.api.events.v1.log_pb2_grpc import EventLogServiceAsyncStub
    from fastvideo.api.gateway.v1.gateway_pb2_grpc import GatewayServiceAsyncStub
    from fastvideo.api.replay.v1.replay_pb2_grpc import ReplayServiceAsyncStub


class PastCalls:
    """The past: why it took so long, whether it is the same again, what was recorded."""

    _calls: Calls
    _gateway: "GatewayServiceAsyncStub"
    _log: "EventLogServiceAsyncStub"
    _replays: "ReplayServiceAsyncStub"

    async def explain(self, request_id: str, *, units_max: int = 10_000) -> Explained:
        """Why a request took, or takes, the time that it does, read from the log.

        Holds at most `units_max` of its `unit_count` units, the first ones; all else is whole.
        """
        return await explain(self._gateway, request_id, units_max, self._calls)

    async def replay(
        self,
        /,
        kind: ReplayKind | str,
        subject_id: str = "",
        *,
        on_told: OnTold | None = None,
        **options: Any,
    ) -> ReplayReport:
        """Run the past again and compare; `options` are the other fields of `ReplayRequest`.

        Takes as long as it takes; to be cancelled, it is stopped on the server too. A report
        whose `equal` is False raises nothing.
        """
        self._calls.check()
        check_names(options, (field.name for field in dataclasses.fields(ReplayRequest)))
        options["kind"] = member("kind", kind, ReplayKind)
        for name, value in {**options, "subject_id": subject_id}.items():
            with carrying(name, value):
                wire.to_proto(ReplayRequest(**{"kind": options["kind"], name: value}))
        request = ReplayRequest(subject_id=subject_id, **options)
        return await run_replay(self._replays, request, on_told)

    async def logged_run(self, request_id: str) -> LoggedRun:
        """What the log says of a request's run: enough to do it again elsewhere."""
        return await logged_run(self._replays, request_id, self._calls)

    async def record_parity(self, checks: Sequence[ParityChecked]) -> None:
        """Keep results of parity checks in the log, each in its model's stream."""
        request = gateway_pb2.RecordParityRequest(
            idempotency_key=uuid.uuid4().hex, checks=[wire.to_proto(check) for check in checks]
        )
        await self._calls(self._gateway.RecordParity, request)

    def behaviors(
        self, where: Mapping[str, str] | None = None, *, limit: int | None = None
    ) -> AsyncGenerator[BehaviorRecorded, None]:
        """What policies did, newest first, of requests that captured it.

        `where` is a field of the record to the value that it must have, or, of a field with
        several, hold; of a map "key=value": `{"guidance_settings": "scale=3.0"}`.
        """
        return behaviors(self._log, where or {}, limit, self._calls)
