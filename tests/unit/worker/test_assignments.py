"""What was begun outlives the stream that brought it."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any, cast

from fastvideo.errors import FastVideoError
from fastvideo.requests.types import (
    OutputSpec,
    RequestKind,
    RequestSpec,
    SamplingParams,
)
from fastvideo.scheduling.commands import ExecuteBatch, PrepareLoop, ReleaseLoops, SnapshotLoops
from fastvideo.scheduling.events import (
    BatchExecuted,
    LoopPrepared,
    RequestSnapshotted,
    ResidentLoop,
    WorkerReattached,
)
from fastvideo.scheduling.traces import MemoryReported, TraceNote
from fastvideo.scheduling.work import LoopRef, UnitKind, WorkPlan
from fastvideo_worker.assignments import Assignments
from fastvideo_worker.commands import Commands

LOOP = LoopRef(request_id="r1", node_id="denoise", attempt=1)


@dataclass
class FakeCommands:
    """Everything waits until it is let go."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    released: list[ReleaseLoops] = field(default_factory=list)
    resident_loops: tuple[ResidentLoop, ...] = ()
    scopes: tuple[tuple[str, int], ...] = ()
    idle: bool = True
    starts_over: int = 0
    notes: tuple[TraceNote, ...] = ()

    async def prepare(self, command: PrepareLoop, wanted: Any) -> LoopPrepared:
        await self.go.wait()
        return LoopPrepared(worker_id="w1", plan=WorkPlan(loop=command.loop))

    async def execute(self, command: ExecuteBatch, wanted: Any) -> BatchExecuted:
        await self.go.wait()
        return BatchExecuted(worker_id="w1", batch_id=command.batch_id, kind=command.kind)

    def with_notes(self, report: Any) -> Any:
        return replace(report, notes=self.notes)

    async def snapshot(self, command: SnapshotLoops) -> RequestSnapshotted:
        await self.go.wait()
        return RequestSnapshotted(worker_id="w1", request_id=command.request_id)

    def release(self, command: ReleaseLoops) -> None:
        self.released.append(command)

    async def start_over(self) -> None:
        self.starts_over += 1


@dataclass
class FakeStream:
    """Keeps what it was given."""

    events: list[Any] = field(default_factory=list)
    error: FastVideoError | None = None

    def send(self, event: Any) -> None:
        self.events.append(event)

    def end(self, error: FastVideoError | None = None) -> None:
        self.error = error


def assignments(commands: FakeCommands, keep_s: float = 60.0) -> Assignments:
    fake = cast(Commands, commands)
    return Assignments(fake, worker_id="w1", incarnation="i1", keep_s=keep_s)


def prepare(loop: LoopRef = LOOP) -> PrepareLoop:
    spec = RequestSpec(
        request_id=loop.request_id,
        kind=RequestKind.GENERATION,
        sampling=SamplingParams(),
        outputs=OutputSpec(),
    )
    return PrepareLoop(loop=loop, loop_id="denoise", request=spec)


def batch(batch_id: str) -> ExecuteBatch:
    return ExecuteBatch(batch_id=batch_id, kind=UnitKind.DIFFUSION_STEP, unit_ids=("u1",))


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_reports_that_no_stream_took_come_with_the_next_one() -> None:
    commands, first, second = FakeCommands(), FakeStream(), FakeStream()
    own = assignments(commands)
    own.begin(first)
    own.take(batch("b1"))
    own.take(batch("b2"))
    own.detach(first)
    commands.go.set()
    await settled()
    assert first.events == []
    assert own.can_resume("i1", 0)
    own.resume(second, 0)
    assert [type(event) for event in second.events] == [
        BatchExecuted,
        BatchExecuted,
        WorkerReattached,
    ]
    assert [event.report for event in second.events] == [1, 2, 2]


async def test_the_inventory_says_what_is_to_come() -> None:
    commands, stream = FakeCommands(), FakeStream()
    commands.resident_loops = (ResidentLoop(loop=LOOP, state_version=3),)
    commands.scopes = (("r1", 1),)
    own = assignments(commands)
    own.begin(FakeStream())
    other = LoopRef(request_id="r1", node_id="decode", attempt=1)
    own.take(prepare(other))
    own.take(batch("b1"))
    await settled()
    own.resume(stream, 0)
    (told,) = stream.events
    assert {loop.loop: (loop.state_version, loop.preparing) for loop in told.loops} == {
        LOOP: (3, False),
        other: (0, True),
    }
    assert told.batch_ids == ("b1",)
    assert told.scopes == ("r1/1",)


async def test_another_process_or_one_that_kept_nothing_cannot_go_on() -> None:
    own = assignments(FakeCommands())
    assert not own.can_resume("i1", 0)
    own.begin(FakeStream())
    assert own.can_resume("i1", 0)
    assert not own.can_resume("i0", 0)
    assert not own.can_resume("i1", 1)
    own.must_begin_anew()
    assert not own.can_resume("i1", 0)


async def test_nothing_of_before_is_reported_after_a_new_beginning() -> None:
    commands, stream = FakeCommands(), FakeStream()
    own = assignments(commands)
    own.begin(FakeStream())
    own.take(prepare())
    own.take(batch("b1"))
    await settled()
    await own.start_over()
    own.begin(stream)
    commands.go.set()
    await settled()
    assert stream.events == []
    assert own.can_resume("i1", 0)


async def test_what_nobody_comes_back_for_is_freed() -> None:
    commands, stream = FakeCommands(), FakeStream()
    own = assignments(commands, keep_s=0.0)
    own.begin(stream)
    own.detach(stream)
    for _ in range(100):
        if commands.starts_over:
            break
        await asyncio.sleep(0.001)
    assert commands.starts_over == 1
    assert not own.can_resume("i1", 0)


async def test_the_end_of_an_older_stream_changes_nothing() -> None:
    commands, first, second = FakeCommands(), FakeStream(), FakeStream()
    own = assignments(commands, keep_s=0.0)
    own.begin(first)
    own.resume(second, 0)
    own.detach(first)
    await asyncio.sleep(0.01)
    assert commands.starts_over == 0
    own.take(batch("b1"))
    commands.go.set()
    await settled()
    assert second.events[-1].batch_id == "b1"


async def test_a_loop_that_is_released_while_it_is_made_is_freed_and_not_reported() -> None:
    commands, stream = FakeCommands(), FakeStream()
    own = assignments(commands)
    own.begin(stream)
    own.take(prepare())
    await settled()
    own.take(ReleaseLoops(request_id="r1", attempt=1))
    commands.go.set()
    await settled()
    assert stream.events == []
    assert [command.node_ids for command in commands.released] == [(), ("denoise",)]


async def test_a_command_that_breaks_ends_the_stream_for_a_new_beginning() -> None:
    class Broken(FakeCommands):
        async def snapshot(self, command: SnapshotLoops) -> RequestSnapshotted:
            raise RuntimeError("broken")

    stream = FakeStream()
    own = assignments(Broken())
    own.begin(stream)
    own.take(SnapshotLoops(request_id="r1", attempt=1))
    await settled()
    assert stream.error is not None
    assert not own.can_resume("i1", 0)


async def test_what_was_noted_goes_with_a_report_and_is_sent_again_with_it() -> None:
    commands, first, second = FakeCommands(), FakeStream(), FakeStream()
    commands.notes = (MemoryReported(worker_id="w1", pool="caches", reason="pressure"),)
    work = assignments(commands)
    work.begin(first)
    work.take(ExecuteBatch(batch_id="b1", kind=UnitKind.DIFFUSION_STEP, unit_ids=("u1",)))
    commands.go.set()
    for _ in range(5):
        await asyncio.sleep(0)
    work.resume(second, 0)
    assert first.events[0].notes == second.events[0].notes == commands.notes
