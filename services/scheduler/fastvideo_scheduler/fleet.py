"""The workers that announced themselves, and the streams to them."""

import asyncio
from collections.abc import Callable
from typing import Final

from fastvideo.errors import ResourceExhausted
from fastvideo.scheduling.core import SchedulerCore
from fastvideo.scheduling.effects import WorkerCommand
from fastvideo.telemetry.logging import get_logger
from fastvideo_scheduler.link import WorkerLink
from fastvideo_scheduler.stream import WorkerAddress

_LOG: Final = get_logger(__name__)

WORKERS_MAX: Final = 1_024
# How long a worker that took no command is left alone.
SHUNNED_S: Final = 30.0

MakeLink = Callable[[WorkerAddress, int | None], WorkerLink]
"""A link to a worker; the number is its last report in the log when its loops live on."""


class Fleet:
    """The links of one leader's term, one a worker."""

    def __init__(self, make_link: MakeLink) -> None:
        self._make_link = make_link
        self._links: dict[str, tuple[WorkerLink, asyncio.Task[None]]] = {}
        # Incarnations that are left alone, and until when.
        self._shunned: dict[str, float] = {}
        # Until the core knows what its predecessor knew, and after the end of the term.
        self._closed = True

    @property
    def links(self) -> tuple[WorkerLink, ...]:
        """All links, attached or being dialled."""
        return tuple(link for link, _ in self._links.values())

    async def announce(self, worker: WorkerAddress) -> bool:
        """Dial a worker unless that was done; gives whether it is attached.

        A new incarnation takes the place of one that is not heard of any more; while that lives,
        two processes have one name, and the later one is left alone. Raises ResourceExhausted
        when there are too many workers.
        """
        if self._closed:
            return False
        known = self._links.get(worker.worker_id)
        if known is not None and known[0].worker == worker:
            return known[0].attached
        if known is not None and known[0].is_alive:
            _LOG.warning(
                "two processes have one worker's name",
                worker_id=worker.worker_id,
                attached=known[0].worker.address,
                announced=worker.address,
            )
            return False
        if known is not None:
            link, task = known
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await link.lose("it started anew")
        elif len(self._links) >= WORKERS_MAX:
            raise ResourceExhausted(
                f"{WORKERS_MAX} workers are linked, which is the most", subject="workers"
            )
        if worker.worker_id not in self._links and not self._is_shunned(worker):
            self._dial(worker, None)
        return False

    def start(self, core: SchedulerCore) -> None:
        """Dial the workers that a former scheduler had, whose loops may live on; then others."""
        self._closed = False
        for attached in core.attachments:
            worker = WorkerAddress(attached.worker_id, attached.address, attached.incarnation)
            self._dial(worker, core.reported(attached.worker_id))

    def open(self, worker_id: str) -> None:
        """What is decided from now on may be sent to the worker."""
        known = self._links.get(worker_id)
        if known is not None:
            known[0].open()

    def send(self, worker_id: str, command: WorkerCommand) -> None:
        """Send to a worker; one whose link has ended learns nothing, as its loss is on its way."""
        known = self._links.get(worker_id)
        if known is not None:
            known[0].send(command)

    async def close(self) -> None:
        """End all streams, and dial no worker any more."""
        self._closed = True
        tasks = [task for _, task in self._links.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _dial(self, worker: WorkerAddress, reported: int | None) -> None:
        link = self._make_link(worker, reported)
        task = asyncio.create_task(link.run(), name=f"link-{worker.worker_id}")
        self._links[worker.worker_id] = (link, task)
        task.add_done_callback(lambda _: self._forget(worker.worker_id, link))

    def _forget(self, worker_id: str, link: WorkerLink) -> None:
        known = self._links.get(worker_id)
        if known is not None and known[0] is link:
            del self._links[worker_id]
        if link.is_deaf:
            self._shunned[link.worker.incarnation] = asyncio.get_running_loop().time() + SHUNNED_S

    def _is_shunned(self, worker: WorkerAddress) -> bool:
        """Whether it was lost a short while ago for taking no command."""
        now_s = asyncio.get_running_loop().time()
        self._shunned = {name: until for name, until in self._shunned.items() if until > now_s}
        return worker.incarnation in self._shunned
