"""From outside of a stack: is one running, start one, stop it."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fastvideo.errors import DeadlineExceeded, Unavailable
from fastvideo.local.config import StackOptions, options_for
from fastvideo.local.errors import StackRunning, from_record
from fastvideo.local.folder import DataFolder
from fastvideo.local.lock import holder
from fastvideo.local.logs import open_log, tail
from fastvideo.local.state import StackState, from_json, read_state

_POLL_S = 0.05
_START_TIMEOUT_S = 300.0
_STOP_TIMEOUT_S = 90.0


@dataclass(frozen=True)
class StackAddresses:
    """Where a running stack answers, each "host:port"; `data` is its folder."""

    gateway: str
    gateway_http: str
    data: Path
    pid: int


def running_state(folder: DataFolder) -> StackState | None:
    """The state of the stack that runs in the folder, ready or not; None when none runs."""
    pid = holder(folder)
    state = read_state(folder.state) if pid is not None else None
    # A state of another pid is that of a former run: the new supervisor has not written yet.
    return state if state is not None and state.pid == pid else None


def find_running(data: Path | None = None) -> StackAddresses | None:
    """The addresses of a stack that has come up; None when none runs. `data`: see `ensure_running`.

    A part that died and is being started again does not hide it: what is asked waits for the part.
    """
    folder = options_for(data, os.environ).folder
    state = running_state(folder)
    return _addresses(state) if state is not None and state.has_come_up else None


def ensure_running(
    data: Path | None = None, on_progress: Callable[[StackState], None] = lambda state: None
) -> StackAddresses:
    """The addresses of a stack: of the one that runs, else of one started now, detached.

    `data` is its folder, None the default one. Raises the errors of `start_detached`, and
    DeadlineExceeded when a stack that somebody else starts does not become ready.
    """
    options = options_for(data, os.environ)
    found = find_running(options.data)
    if found is not None:
        return found
    if holder(options.folder) is None:
        try:
            return start_detached(options, os.environ, on_progress)
        except StackRunning:
            # Somebody else was faster; that stack will do.
            pass
    return _wait_ready(options.folder, on_progress)


def start_detached(
    options: StackOptions,
    environment: Mapping[str, str],
    on_progress: Callable[[StackState], None] = lambda state: None,
) -> StackAddresses:
    """Start a supervisor in the background and wait until all is ready.

    Raises StackRunning, PartFailed and the other errors of `fastvideo.local.errors`; after an
    error nothing is left running, and nothing of what was started after Ctrl-C.
    """
    folder = options.folder
    folder.prepare()
    log = folder.log("supervisor")
    read_end, write_end = os.pipe()
    try:
        supervisor = _spawn_supervisor(options, environment, log, write_end)
    finally:
        os.close(write_end)
    try:
        return _addresses(_told_until_ready(read_end, log, on_progress))
    except KeyboardInterrupt:
        os.kill(supervisor, signal.SIGTERM)
        os.waitpid(supervisor, 0)
        raise


def _told_until_ready(
    read_end: int, log: Path, on_progress: Callable[[StackState], None]
) -> StackState:
    """What the supervisor reports at last: all is ready. Raises what it reports instead."""
    state: StackState | None = None
    with os.fdopen(read_end) as report:
        for line in report:
            record = json.loads(line)
            if "error" in record:
                raise from_record(record["error"])
            state = from_json(json.dumps(record["state"]))
            on_progress(state)
    if state is None or not state.ready:
        raise Unavailable(
            "the supervisor ended while starting",
            subject="supervisor",
            attributes={"log": str(log), "tail": "\n".join(tail(log, 12))},
        )
    return state


def stop_running(folder: DataFolder, timeout_s: float = _STOP_TIMEOUT_S) -> bool:
    """Stop the stack in the folder and wait for its end; False when none runs.

    Raises DeadlineExceeded when it does not end in time.
    """
    pid = holder(folder)
    if pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while holder(folder) == pid:
        if time.monotonic() > deadline:
            raise DeadlineExceeded(
                f"the stack (pid {pid}) did not stop within {timeout_s:g} s", subject="stack"
            )
        time.sleep(_POLL_S)
    return True


def _wait_ready(folder: DataFolder, on_progress: Callable[[StackState], None]) -> StackAddresses:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        state = running_state(folder)
        if state is not None:
            on_progress(state)
            if state.ready:
                return _addresses(state)
        elif holder(folder) is None:
            raise Unavailable("the stack that was starting has ended", subject=str(folder.root))
        time.sleep(_POLL_S)
    raise DeadlineExceeded(
        f"the stack in {folder.root} is not ready after {_START_TIMEOUT_S:g} s;"
        " see `fastvideo status`",
        subject=str(folder.root),
    )


def _spawn_supervisor(
    options: StackOptions, environment: Mapping[str, str], log: Path, report: int
) -> int:
    """A process in a session of its own that nobody waits for: it outlives this one. Its id."""
    output = open_log(log)
    try:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-P", "-m", "fastvideo.local", options.to_json(), "3"],
            dict(environment),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
                (os.POSIX_SPAWN_DUP2, report, 3),
            ],
            setsid=True,
        )
    finally:
        os.close(output)


def _addresses(state: StackState) -> StackAddresses:
    return StackAddresses(
        gateway=state.addresses["gateway"],
        gateway_http=state.addresses["gateway-http"],
        data=Path(state.data),
        pid=state.pid,
    )
