"""One worker, as long as its loops may live: its stream, and the next one when that breaks.

A worker whose stream broke is detached. It is dialled again, and goes on with its loops; when it
does not come back in the time that silence may last, it is lost, and so are they.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from fastvideo.clock import Clock
from fastvideo.errors import FastVideoError, Fenced
from fastvideo.rpc.tls import ClientTls
from fastvideo.scheduling.effects import WorkerCommand
from fastvideo.scheduling.events import (
    WorkerAttached,
    WorkerDetached,
    WorkerLost,
    WorkerReattached,
)
from fastvideo.telemetry.logging import get_logger
from fastvideo_scheduler.stream import (
    NOT_TAKEN,
    WORKER_REPLACED,
    StreamInput,
    StreamTerms,
    WorkerAddress,
    WorkerStream,
)

_LOG: Final = get_logger(__name__)

# A worker that loads a model while it is dialled answers late.
ATTACH_S_MAX: Final = 30.0
REDIAL_S_MIN: Final = 0.05
REDIAL_S_MAX: Final = 0.5
# A live worker listens; one that refuses so often in a row is no process any more.
REFUSALS_MAX: Final = 3
_CONNECT_S_MAX: Final = 1.0

LinkInput = StreamInput | WorkerDetached | WorkerLost
Committed = Callable[[], None]
Take = Callable[[LinkInput, Committed], Awaitable[None]]
"""Takes in what a link tells; the second argument is called once that is in the log."""


@dataclass(frozen=True, slots=True)
class LinkTerms:
    """Who dials, under which epoch, how long silence may last, and whom the dialler trusts."""

    scheduler_id: str
    epoch: int
    timeout_s: float
    tls: ClientTls | None = None


class WorkerLink:
    """Keeps a stream to one worker until the worker is lost.

    `take` gets what the worker reports in order: first WorkerAttached or, of a worker whose
    loops live on (`reported` is its last report that the log has), what came after that and
    WorkerReattached; last WorkerLost.
    """

    def __init__(
        self,
        worker: WorkerAddress,
        terms: LinkTerms,
        take: Take,
        clock: Clock,
        *,
        reported: int | None = None,
    ) -> None:
        self.worker = worker
        self._terms = terms
        self._take = take
        self._clock = clock
        # It was lost because it answered heartbeats and took no command.
        self.is_deaf = False
        # Whether the core has this incarnation, so that its loss must be told.
        self._known = reported is not None
        # The last report that was taken in, and the last that is in the log.
        self._reported = self._acknowledged = reported or 0
        self._stream: WorkerStream | None = None
        self._was_attached = False
        self._heard_s = 0.0
        # Commands go to the worker only after the core has heard what it holds.
        self._open = False

    @property
    def attached(self) -> bool:
        """Whether its stream is up."""
        return self._stream is not None and self._stream.attached

    @property
    def is_alive(self) -> bool:
        """Whether it was heard of within two of its heartbeats."""
        return self._stream is not None and self._stream.is_alive

    def open(self) -> None:
        """The core knows what the worker holds: what it decides from now on goes there."""
        self._open = True

    def send(self, command: WorkerCommand) -> None:
        """Send a command; one for a worker that is detached is dropped, and decided again."""
        if self._stream is not None and self._open:
            self._stream.send(command)

    async def run(self) -> None:
        """Dial, and dial again; ends when the worker is lost or was never reached."""
        lost_at_s = self._clock.monotonic_s() + self._terms.timeout_s
        while True:
            error = await self._hold(lost_at_s)
            if self._was_attached:
                await self._detached(error)
                # Once at least, also when it was this process that stood still.
                least_s = self._clock.monotonic_s() + 2 * REDIAL_S_MAX
                lost_at_s = max(self._heard_s + self._terms.timeout_s, least_s)
            if not self._known or not await self._may_come_back(error, lost_at_s):
                await self.lose(error.message)
                return

    async def lose(self, reason: str) -> None:
        """Report the worker's loss, unless the core does not have it."""
        _LOG.info("worker link ended", worker_id=self.worker.worker_id, reason=reason)
        if self._known:
            self._known = False
            await self._tell(
                WorkerLost(
                    worker_id=self.worker.worker_id,
                    incarnation=self.worker.incarnation,
                    reason=reason,
                )
            )

    # -- one stream after the other --------------------------------------------------------

    async def _hold(self, lost_at_s: float) -> FastVideoError:
        """Hold one stream to its end."""
        self._was_attached = False
        left_s = max(REDIAL_S_MIN, lost_at_s - self._clock.monotonic_s())
        terms = StreamTerms(
            scheduler_id=self._terms.scheduler_id,
            epoch=self._terms.epoch,
            timeout_s=self._terms.timeout_s,
            attach_s_max=left_s if self._known else ATTACH_S_MAX,
            resume=(self.worker.incarnation, self._reported) if self._known else None,
            tls=self._terms.tls,
        )
        self._stream = WorkerStream(
            self.worker, terms, self._receive, lambda: self._acknowledged, self._clock
        )
        try:
            return await self._stream.run()
        finally:
            self._heard_s = self._stream.heard_s
            self._open = False
            self._stream = None

    async def _receive(self, event: StreamInput) -> None:
        if isinstance(event, WorkerAttached | WorkerReattached):
            self._known = self._was_attached = True
        number = getattr(event, "report", 0)
        self._reported = max(self._reported, number)
        await self._tell(event, number)

    async def _tell(self, event: LinkInput, number: int = 0) -> None:
        await self._take(event, partial(self._committed, number))

    def _committed(self, number: int) -> None:
        self._acknowledged = max(self._acknowledged, number)

    async def _detached(self, error: FastVideoError) -> None:
        _LOG.info("worker detached", worker_id=self.worker.worker_id, reason=error.message)
        await self._tell(
            WorkerDetached(
                worker_id=self.worker.worker_id,
                incarnation=self.worker.incarnation,
                reason=error.message,
            )
        )

    async def _may_come_back(self, error: FastVideoError, lost_at_s: float) -> bool:
        """Wait until it is worth to dial again; False when the worker is gone."""
        self.is_deaf = error.reason == NOT_TAKEN
        if isinstance(error, Fenced) or error.reason in (WORKER_REPLACED, NOT_TAKEN):
            return False
        pause_s, refusals = REDIAL_S_MIN, 0
        while self._clock.monotonic_s() < lost_at_s:
            await asyncio.sleep(pause_s)
            reached = await _reach(self.worker.address)
            if reached is True:
                return True
            refusals = refusals + 1 if reached is False else 0
            if refusals >= REFUSALS_MAX:
                return False
            pause_s = min(2 * pause_s, REDIAL_S_MAX)
        return False


async def _reach(address: str) -> bool | None:
    """Whether something listens there; None when that cannot be told."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_CONNECT_S_MAX):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except ConnectionRefusedError:
        return False
    except (OSError, TimeoutError, ValueError):
        return None
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
