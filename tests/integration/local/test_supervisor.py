"""The supervisor alone, on small processes of its own plan."""

import asyncio
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from fastvideo.local.errors import PartFailed
from fastvideo.local.folder import DataFolder
from fastvideo.local.part import Pace
from fastvideo.local.plan import ProcessSpec, StackPlan
from fastvideo.local.probes import Exits
from fastvideo.local.state import PartPhase, PartState, StackState, read_state
from fastvideo.local.supervisor import Supervisor

_PACE = Pace(
    start_check_s=0.01,
    watch_check_s=0.05,
    recheck_s=0.05,
    check_timeout_s=0.2,
    restart_first_s=0.01,
    restart_max_s=0.05,
)
_FOREVER = ("-c", "import time; time.sleep(600)")


@dataclass
class FileExists:
    """Ready while a file is there."""

    path: Path

    async def check(self) -> str | None:
        return None if self.path.exists() else f"no {self.path.name}"

    async def close(self) -> None:
        """Holds nothing."""


@dataclass
class Always:
    """Ready as soon as the process runs."""

    async def check(self) -> str | None:
        return None

    async def close(self) -> None:
        """Holds nothing."""


@dataclass
class Silent:
    """Never answers."""

    async def check(self) -> str | None:
        await asyncio.Event().wait()
        return None

    async def close(self) -> None:
        """Holds nothing."""


@dataclass
class World:
    """A data folder, the specs made in it, and the states that the supervisor told."""

    folder: DataFolder
    told: list[StackState] = field(default_factory=list)

    def spec(self, name: str, *code: str, **fields: object) -> ProcessSpec:
        fields = {"group": name, "ready": Always(), "stop_grace_s": 30.0, **fields}
        return ProcessSpec(
            name=name,
            argv=(sys.executable, "-S", *(code or _FOREVER)),
            environment={},
            cwd=self.folder.root,
            **fields,  # type: ignore[arg-type]
        )

    def supervisor(self, *parts: ProcessSpec) -> Supervisor:
        return Supervisor(StackPlan(parts), self.folder, self.told.append, _PACE)

    def phases(self, name: str) -> list[PartPhase]:
        """The phases that a part went through, repeats left out."""
        seen: list[PartPhase] = []
        for state in self.told:
            phase = part_of(state, name).phase
            if not seen or seen[-1] is not phase:
                seen.append(phase)
        return seen


@pytest.fixture
def world(tmp_path: Path) -> World:
    folder = DataFolder(tmp_path / "data")
    folder.prepare()
    return World(folder)


def part_of(state: StackState, name: str) -> PartState:
    return next(part for part in state.parts if part.name == name)


async def eventually(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_part_waits_for_what_it_needs(world: World) -> None:
    flag = world.folder.root / "flag"
    code = f"import pathlib, time; time.sleep(0.2); pathlib.Path({str(flag)!r}).touch()"
    first = world.spec("first", "-c", code, ready=Exits(), once=True)
    looks = f"import pathlib, time; assert pathlib.Path({str(flag)!r}).exists(); time.sleep(600)"
    second = world.spec("second", "-c", looks, needs=("first",))

    async with world.supervisor(first, second) as supervisor:
        await supervisor.start()
        state = supervisor.state

    assert state.ready
    assert part_of(state, "first").phase is PartPhase.DONE
    assert part_of(state, "second").restarts == 0
    assert world.phases("second")[:3] == [PartPhase.WAITING, PartPhase.STARTING, PartPhase.READY]


async def test_the_state_file_says_what_the_supervisor_says(world: World) -> None:
    async with world.supervisor(world.spec("a")) as supervisor:
        await supervisor.start()

        assert read_state(world.folder.state) == supervisor.state

    ended = read_state(world.folder.state)
    assert ended is not None
    assert ended.parts[0].phase is PartPhase.STOPPED


async def test_a_crash_loop_is_visible_and_paced(world: World) -> None:
    flag = world.folder.root / "flag"
    code = (
        f"import pathlib, sys, time; flag = pathlib.Path({str(flag)!r})\n"
        "if flag.exists(): sys.stderr.write('out of luck\\n'); sys.exit(9)\n"
        "time.sleep(600)"
    )
    async with world.supervisor(world.spec("a", "-c", code)) as supervisor:
        await supervisor.start()
        flag.touch()
        psutil.Process(supervisor.state.parts[0].pid).kill()
        await eventually(lambda: supervisor.state.parts[0].restarts >= 4)
        looping = supervisor.state.parts[0]
        flag.unlink()
        await eventually(lambda: supervisor.state.ready)

    assert looping.last_exit == "exited with 9"
    assert looping.last_lines == ("out of luck",)


async def test_a_part_that_keeps_crashing_at_the_first_start_fails_it(world: World) -> None:
    bad = world.spec("bad", "-c", "import sys; sys.stderr.write('no way\\n'); sys.exit(3)")
    good = world.spec("good")
    bad_ready = ProcessSpec(**{**vars(bad), "ready": FileExists(world.folder.root / "never")})

    supervisor = world.supervisor(good, bad_ready)
    with pytest.raises(PartFailed, match="bad did not start: exited with 3") as raised:
        async with supervisor:
            await supervisor.start()

    assert raised.value.subject == "bad"
    assert raised.value.attributes["tail"] == "no way"
    assert raised.value.attributes["log"] == str(world.folder.log("bad"))
    assert part_of(supervisor.state, "good").phase is PartPhase.STOPPED
    assert part_of(supervisor.state, "bad").phase is PartPhase.FAILED


async def test_a_part_that_is_never_ready_fails_the_start(world: World) -> None:
    probe = FileExists(world.folder.root / "never")
    spec = world.spec("slow", ready=probe, start_timeout_s=0.2)

    with pytest.raises(PartFailed, match=r"slow did not start: not ready after 0.2 s: no never"):
        async with world.supervisor(spec) as supervisor:
            await supervisor.start()


async def test_a_probe_that_hangs_does_not_hang_the_start(world: World) -> None:
    spec = world.spec("mute", ready=Silent(), start_timeout_s=0.3)

    with pytest.raises(PartFailed, match="no answer within"):
        async with world.supervisor(spec) as supervisor:
            await supervisor.start()


async def test_a_program_that_is_not_there_says_so(world: World) -> None:
    spec = ProcessSpec(
        name="ghost",
        group="ghost",
        argv=("/nowhere/ghost",),
        environment={},
        cwd=world.folder.root,
        ready=FileExists(world.folder.root / "never"),
    )

    with pytest.raises(PartFailed, match="exited with 127") as raised:
        async with world.supervisor(spec) as supervisor:
            await supervisor.start()

    assert "cannot run /nowhere/ghost" in raised.value.attributes["tail"]


async def test_a_part_that_stops_answering_is_unready_until_it_answers(world: World) -> None:
    flag = world.folder.root / "flag"
    flag.touch()
    async with world.supervisor(world.spec("a", ready=FileExists(flag))) as supervisor:
        await supervisor.start()
        flag.unlink()
        await eventually(lambda: supervisor.state.parts[0].phase is PartPhase.UNREADY)
        assert supervisor.state.parts[0].reason == "no flag"
        assert not supervisor.state.ready

        flag.touch()
        await eventually(lambda: supervisor.state.ready)
        assert supervisor.state.parts[0].restarts == 0


async def test_parts_end_in_reverse_order(world: World) -> None:
    order = world.folder.root / "order"
    code = (
        "import pathlib, signal, sys\n"
        f"def end(*_):\n open({str(order)!r}, 'a').write(sys.argv[1] + ' '); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "pathlib.Path(sys.argv[2]).touch()\n"
        "signal.pause(); signal.pause()"
    )
    specs = []
    for name in ("first", "second", "third"):
        flag = world.folder.root / name
        specs.append(world.spec(name, "-c", code, name, str(flag), ready=FileExists(flag)))

    async with world.supervisor(*specs) as supervisor:
        await supervisor.start()

    assert order.read_text().split() == ["third", "second", "first"]


async def test_a_part_that_ignores_the_stop_signal_is_killed_after_its_grace(world: World) -> None:
    flag = world.folder.root / "flag"
    code = (
        "import pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"pathlib.Path({str(flag)!r}).touch(); time.sleep(600)"
    )
    spec = world.spec("deaf", "-c", code, ready=FileExists(flag), stop_grace_s=0.3)
    async with world.supervisor(spec) as supervisor:
        await supervisor.start()
        process = psutil.Process(supervisor.state.parts[0].pid)
        begin_s = time.monotonic()

    assert not process.is_running()
    assert time.monotonic() - begin_s >= 0.3


async def test_what_a_dead_part_left_behind_ends_with_it(world: World) -> None:
    note = world.folder.root / "child"
    code = (
        "import pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'])\n"
        f"pathlib.Path({str(note)!r}).write_text(str(child.pid)); time.sleep(600)"
    )
    async with world.supervisor(world.spec("a", "-c", code, ready=FileExists(note))) as supervisor:
        await supervisor.start()
        grandchild = psutil.Process(int(note.read_text()))
        note.unlink()
        psutil.Process(supervisor.state.parts[0].pid).send_signal(signal.SIGKILL)
        await eventually(lambda: supervisor.state.parts[0].restarts == 1)

        assert psutil.wait_procs([grandchild], timeout=30)[1] == []
