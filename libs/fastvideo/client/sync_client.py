"""The client for code without asyncio: the same methods, each waiting for its answer."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from fastvideo.artifacts.types import ArtifactKind, ArtifactRecord
from fastvideo.client.async_client import AsyncClient
from fastvideo.client.calls import CallPolicy
from fastvideo.client.replays import OnTold
from fastvideo.client.sync_event_log import SyncLogClient
from fastvideo.client.types import ModelSummary, Page
from fastvideo.client.uploads import Source
from fastvideo.deployment.card import EngineOffer
from fastvideo.events.types import Event
from fastvideo.explain.types import Explanation
from fastvideo.replay.types import LoggedRun, ReplayKind, ReplayReport
from fastvideo.requests.types import RequestState
from fastvideo.scheduling.traces import BehaviorRecorded, ParityChecked
from fastvideo.sessions.types import SessionState

T = TypeVar("T")


class Client:
    """`AsyncClient` behind a thread with an event loop of its own.

    Each method is that of AsyncClient with the same name and arguments.
    """

    def __init__(self, address: str, *, policy: CallPolicy | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="fastvideo-client", daemon=True
        )
        self._thread.start()
        self._client = self._run(_open(address, policy))
        self.log = SyncLogClient(self._run, self._client.log)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and end the thread; a second time does nothing."""
        if self._loop.is_closed():
            return
        self._run(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def submit(self, prompt: str, **options: Any) -> RequestState:
        return self._run(self._client.submit(prompt, **options))

    def get(self, request_id: str) -> RequestState:
        return self._run(self._client.get(request_id))

    def list(self, **options: Any) -> Page[RequestState]:
        return self._run(self._client.list(**options))

    def watch(self, request_id: str, *, after_sequence: int = 0) -> Iterator[Event]:
        events = self._client.watch(request_id, after_sequence=after_sequence)
        try:
            while (event := self._run(_next(events))) is not None:
                yield event
        finally:
            self._run(events.aclose())

    def wait(
        self, request_id: str, *, on_event: Callable[[Event], None] | None = None
    ) -> RequestState:
        return self._run(self._client.wait(request_id, on_event=on_event))

    def cancel(
        self, request_id: str, *, loop: str = "", stream: str = "", reason: str = ""
    ) -> RequestState:
        return self._run(self._client.cancel(request_id, loop=loop, stream=stream, reason=reason))

    def explain(self, request_id: str, *, units_max: int = 10_000) -> Explanation:
        return self._run(self._client.explain(request_id, units_max=units_max))

    def replay(
        self,
        kind: ReplayKind | str,
        subject_id: str = "",
        *,
        on_told: OnTold | None = None,
        **options: Any,
    ) -> ReplayReport:
        return self._run(self._client.replay(kind, subject_id, on_told=on_told, **options))

    def logged_run(self, request_id: str) -> LoggedRun:
        return self._run(self._client.logged_run(request_id))

    def record_parity(self, checks: Sequence[ParityChecked]) -> None:
        return self._run(self._client.record_parity(checks))

    def behaviors(
        self, where: Mapping[str, str] | None = None, *, limit: int | None = None
    ) -> Iterator[BehaviorRecorded]:
        found = self._client.behaviors(where, limit=limit)
        try:
            while (behavior := self._run(_next(found))) is not None:
                yield behavior
        finally:
            self._run(found.aclose())

    def generate(self, prompt: str, **options: Any) -> RequestState:
        return self._run(self._client.generate(prompt, **options))

    def upload(self, source: Source, kind: ArtifactKind = ArtifactKind.IMAGE) -> ArtifactRecord:
        return self._run(self._client.upload(source, kind))

    def read_artifact(self, artifact_id: str) -> bytes:
        return self._run(self._client.read_artifact(artifact_id))

    def save_artifact(self, artifact_id: str, path: Path | str) -> ArtifactRecord:
        return self._run(self._client.save_artifact(artifact_id, path))

    def models(self) -> tuple[ModelSummary, ...]:
        return self._run(self._client.models())

    def deployment(self) -> tuple[EngineOffer, ...]:
        return self._run(self._client.deployment())

    def create_session(self, **options: Any) -> SessionState:
        return self._run(self._client.create_session(**options))

    def get_session(self, session_id: str) -> SessionState:
        return self._run(self._client.get_session(session_id))

    def list_sessions(self, **options: Any) -> Page[SessionState]:
        return self._run(self._client.list_sessions(**options))

    def close_session(self, session_id: str) -> SessionState:
        return self._run(self._client.close_session(session_id))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:  # Ctrl-C lands here, while the work is still going on.
            future.cancel()
            raise


async def _open(address: str, policy: CallPolicy | None) -> AsyncClient:
    """A channel belongs to the loop that it is made in."""
    return AsyncClient(address, policy=policy)


async def _next(items: AsyncGenerator[T, None]) -> T | None:
    return await anext(items, None)
