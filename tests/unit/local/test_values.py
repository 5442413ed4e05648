"""Options, states and errors as values."""

from pathlib import Path
from typing import Any

import pytest

from fastvideo.errors import FastVideoError, InvalidField
from fastvideo.local.config import StackOptions
from fastvideo.local.errors import PartFailed, PortTaken, StackRunning, from_record, to_record
from fastvideo.local.folder import default_data_folder
from fastvideo.local.part import Pace
from fastvideo.local.process import describe_exit
from fastvideo.local.state import PartPhase, PartState, StackState, from_json, to_json


def test_options_survive_the_way_to_the_detached_supervisor() -> None:
    options = StackOptions(Path("/data"), http_port=8000, grpc_port=9000, workers=2, schedulers=3)

    assert StackOptions.from_json(options.to_json()) == options


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"http_port": 0}, "--http"),
        ({"grpc_port": 65_536}, "--grpc"),
        ({"workers": 0}, "--workers"),
        ({"schedulers": 65}, "--schedulers"),
    ],
)
def test_options_out_of_range_name_the_flag(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as raised:
        StackOptions(Path("/data"), **changes)

    assert raised.value.field == field


def test_a_state_survives_its_file() -> None:
    part = PartState("nats", PartPhase.RESTARTING, restarts=2, last_lines=("a", "b"))
    state = StackState(1, "/data", 2.0, (part,), {"nats": "127.0.0.1:4222"})

    assert from_json(to_json(state)) == state


@pytest.mark.parametrize(
    ("phases", "stopping", "ready"),
    [
        ((PartPhase.READY, PartPhase.DONE), False, True),
        ((PartPhase.READY, PartPhase.UNREADY), False, False),
        ((PartPhase.READY, PartPhase.RESTARTING), False, False),
        ((PartPhase.READY,), True, False),
    ],
)
def test_a_stack_is_ready_when_every_part_is(
    phases: tuple[PartPhase, ...], stopping: bool, ready: bool
) -> None:
    parts = tuple(PartState(str(i), phase) for i, phase in enumerate(phases))

    assert StackState(1, "/data", 0.0, parts, stopping=stopping).ready is ready


def test_a_stack_has_come_up_even_while_a_part_is_started_again() -> None:
    restarting = PartState("worker-1", PartPhase.RESTARTING, restarts=1, ready_after_s=5.0)
    starting = PartState("worker-1", PartPhase.STARTING)

    assert StackState(1, "/data", 0.0, (restarting,)).has_come_up
    assert not StackState(1, "/data", 0.0, (restarting,), stopping=True).has_come_up
    assert not StackState(1, "/data", 0.0, (restarting, starting)).has_come_up


@pytest.mark.parametrize(
    "error",
    [
        StackRunning("runs", subject="/data", attributes={"pid": "7"}),
        PortTaken("taken", subject="gateway", attributes={"port": "80"}),
        PartFailed("failed", subject="nats", attributes={"log": "/l", "tail": "x\ny"}),
    ],
)
def test_an_error_of_the_supervisor_is_raised_the_same_outside(error: FastVideoError) -> None:
    again = from_record(to_record(error))

    assert type(again) is type(error)
    assert to_record(again) == to_record(error)


def test_an_error_of_another_room_keeps_its_reason() -> None:
    again = from_record(to_record(InvalidField("--grpc", 0, "a port")))

    assert (again.reason, again.subject) == ("INVALID_FIELD", "--grpc")


def test_pauses_between_restarts_double_up_to_a_limit() -> None:
    pace = Pace()

    assert [pace.pause_s(crashes) for crashes in (1, 2, 3)] == [0.1, 0.2, 0.4]
    assert pace.pause_s(1000) == 10.0


@pytest.mark.parametrize(
    ("code", "words"), [(0, "exited with 0"), (3, "exited with 3"), (-9, "killed by SIGKILL")]
)
def test_an_exit_is_described(code: int, words: str) -> None:
    assert describe_exit(code) == words


@pytest.mark.parametrize(
    ("uid", "environment", "folder"),
    [
        (0, {}, "/var/lib/fastvideo"),
        (0, {"FASTVIDEO_DATA": "/srv/fv"}, "/srv/fv"),
        (1000, {"XDG_DATA_HOME": "/home/ann/data"}, "/home/ann/data/fastvideo"),
        (1000, {"HOME": "/home/ann"}, "/home/ann/.local/share/fastvideo"),
    ],
)
def test_the_default_data_folder(
    monkeypatch: pytest.MonkeyPatch, uid: int, environment: dict[str, str], folder: str
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: uid)
    monkeypatch.setenv("HOME", environment.get("HOME", "/nonexistent"))

    assert default_data_folder(environment) == Path(folder)
