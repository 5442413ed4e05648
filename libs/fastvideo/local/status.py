"""A stack's state together with what its processes use right now."""

import time
from dataclasses import dataclass

import psutil

from fastvideo.local.folder import DataFolder
from fastvideo.local.launch import running_state
from fastvideo.local.process import start_ticks
from fastvideo.local.state import PartPhase, PartState


@dataclass(frozen=True)
class PartStatus:
    """One part.

    `rss_bytes` adds up the processes of the part, its children's too; memory that they share
    counts once for each. `pss_bytes` counts shared memory once; None where the kernel does not
    tell us, as of another user's process. `cpu_s` is processor time since the start.
    """

    name: str
    state: PartPhase
    pid: int | None
    restarts: int
    uptime_s: float
    rss_bytes: int
    pss_bytes: int | None
    cpu_s: float
    address: str
    reason: str
    last_exit: str
    last_lines: tuple[str, ...]


@dataclass(frozen=True)
class StackStatus:
    """All parts, the supervisor among them."""

    running: bool
    ready: bool
    pid: int | None
    data: str
    gateway: str
    gateway_http: str
    parts: tuple[PartStatus, ...]


def stack_status(folder: DataFolder) -> StackStatus:
    """The status of the stack in the folder, whether one runs or not."""
    state = running_state(folder)
    if state is None:
        return StackStatus(
            running=False,
            ready=False,
            pid=None,
            data=str(folder.root),
            gateway="",
            gateway_http="",
            parts=(),
        )
    supervisor = PartState(
        name="supervisor",
        phase=PartPhase.STOPPING if state.stopping else PartPhase.READY,
        pid=state.pid,
        start_ticks=start_ticks(state.pid),
        started_at=state.started_at,
    )
    parts = tuple(part for part in state.parts if part.phase is not PartPhase.DONE)
    return StackStatus(
        running=True,
        ready=state.ready,
        pid=state.pid,
        data=state.data,
        gateway=state.addresses.get("gateway", ""),
        gateway_http=state.addresses.get("gateway-http", ""),
        parts=tuple(_part_status(part) for part in (supervisor, *parts)),
    )


def _part_status(part: PartState) -> PartStatus:
    alive = part.pid is not None and start_ticks(part.pid) == part.start_ticks
    family = _family(part.pid) if alive and part.pid is not None else []
    # The supervisor shares nothing with its children here: they are parts of their own.
    if part.name == "supervisor":
        family = family[:1]
    proportional = [_pss(process) for process in family]
    known = [pss for pss in proportional if pss is not None]
    return PartStatus(
        name=part.name,
        state=part.phase,
        pid=part.pid if alive else None,
        restarts=part.restarts,
        uptime_s=round(time.time() - part.started_at, 1) if alive and part.started_at else 0.0,
        rss_bytes=sum(_rss(process) for process in family),
        pss_bytes=sum(known) if known and len(known) == len(family) else None,
        cpu_s=round(sum(_cpu_s(process) for process in family), 2),
        address=part.address,
        reason=part.reason,
        last_exit=part.last_exit,
        last_lines=part.last_lines,
    )


def _family(pid: int) -> list[psutil.Process]:
    try:
        leader = psutil.Process(pid)
        return [leader, *leader.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _pss(process: psutil.Process) -> int | None:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return None


def _cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)
