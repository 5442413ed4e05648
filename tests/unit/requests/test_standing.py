"""Where requests stand, as often as anybody asks."""

from dataclasses import replace

from fastvideo import wire
from fastvideo.events.records import StoredEvent
from fastvideo.events.types import EventPayload
from fastvideo.requests.events import RequestProgressed
from fastvideo.requests.reading import read_request
from fastvideo.requests.standing import EVENTS_MIN, Standings
from fastvideo.requests.types import RequestStatus, TextPart
from tests.unit.gateway.test_watching import ACCEPTED, DONE, STARTED, CountingLog

WRITTEN = replace(
    ACCEPTED, spec=replace(ACCEPTED.spec, inputs=(TextPart(role="prompt", text="an otter"),))
)
ERASED = replace(ACCEPTED, spec=replace(ACCEPTED.spec, inputs=(TextPart(role="prompt", text=""),)))
STEPS = tuple(RequestProgressed(fraction=n / 20) for n in range(EVENTS_MIN))


class ErasingLog(CountingLog):
    """Can lose the texts of its first event, as a sealed log does with its key."""

    erased = False
    events_read = 0

    async def read_stream(self, stream_id: str, after_version: int = 0, limit: int = 1000):  # type: ignore[no-untyped-def]
        events = await super().read_stream(stream_id, after_version, limit)
        self.events_read += len(events)
        return tuple(map(self._opened, events)) if self.erased else events

    def _opened(self, stored: StoredEvent) -> StoredEvent:
        if stored.stream_version > 1:
            return stored
        return stored._replace(payload=wire.encode(ERASED))


async def test_what_was_appended_a_moment_ago_is_there() -> None:
    log = ErasingLog()
    standings = Standings(log)
    assert await standings.read("r") is None
    written: tuple[tuple[EventPayload, ...], ...]
    written = ((WRITTEN,), (STARTED, *STEPS), (STEPS[-1],), (DONE,))
    for payloads in written:
        await log.write(*payloads)
        for _ in range(2):
            assert await standings.read("r") == await read_request(log, "r")
    state = await standings.read("r")
    assert state is not None
    assert state.status is RequestStatus.COMPLETED


async def test_who_asks_again_does_not_read_the_history_again() -> None:
    log = ErasingLog()
    await log.write(WRITTEN, STARTED, *STEPS)
    standings = Standings(log)
    await standings.read("r")
    log.events_read = 0
    await standings.read("r")
    assert log.events_read == 1


async def test_texts_that_were_erased_are_gone_at_once() -> None:
    log = ErasingLog()
    await log.write(WRITTEN, STARTED, *STEPS)
    standings = Standings(log)
    assert (await standings.read("r")).spec == WRITTEN.spec  # type: ignore[union-attr]
    log.erased = True
    assert (await standings.read("r")).spec == ERASED.spec  # type: ignore[union-attr]


async def test_only_so_many_are_kept() -> None:
    log = ErasingLog()
    standings = Standings(log, states_max=1)
    for request_id in ("one", "two"):
        spec = replace(WRITTEN.spec, request_id=request_id)
        await log.write(replace(WRITTEN, spec=spec), STARTED, *STEPS, request_id=request_id)
        await standings.read(request_id)
    log.events_read = 0
    await standings.read("one")
    assert log.events_read == 2 + len(STEPS)
