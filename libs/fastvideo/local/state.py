"""What runs right now, as the supervisor tells it: `stack.json` in the data folder.

The file says what was so when it was written; whether a supervisor is alive at all is told by the
lock (lock.py) alone.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class PartPhase(StrEnum):
    """Where a part is in its life."""

    WAITING = "waiting"  # for the parts that it needs
    STARTING = "starting"  # its process runs, does not answer yet
    READY = "ready"
    UNREADY = "unready"  # it was ready; its process runs but does not answer
    RESTARTING = "restarting"  # its process died; a new one follows after a pause
    STOPPING = "stopping"
    STOPPED = "stopped"
    DONE = "done"  # a step that runs once, and has
    FAILED = "failed"


@dataclass(frozen=True)
class PartState:
    """One part; times are Unix seconds, `..._after_s` count from the start of the stack."""

    name: str
    phase: PartPhase = PartPhase.WAITING
    pid: int | None = None
    # The kernel's start time of the process in clock ticks: with the pid, its identity.
    start_ticks: int | None = None
    started_at: float | None = None
    restarts: int = 0
    address: str = ""
    once: bool = False
    reason: str = ""
    last_exit: str = ""
    last_lines: tuple[str, ...] = ()
    spawned_after_s: float | None = None
    ready_after_s: float | None = None

    @property
    def settled(self) -> bool:
        """Whether the part is as it should be while the stack runs."""
        return self.phase in (PartPhase.READY, PartPhase.DONE)


@dataclass(frozen=True)
class StackState:
    """The whole stack; addresses are "host:port" by the name of a part."""

    pid: int
    data: str
    started_at: float
    parts: tuple[PartState, ...]
    addresses: Mapping[str, str] = field(default_factory=dict)
    stopping: bool = False

    @property
    def ready(self) -> bool:
        """Every part is as it should be."""
        return not self.stopping and all(part.settled for part in self.parts)

    @property
    def has_come_up(self) -> bool:
        """Every part has been as it should be; one that died meanwhile is started again."""
        return not self.stopping and all(part.ready_after_s is not None for part in self.parts)


def to_json(state: StackState) -> str:
    """One line of JSON."""
    return json.dumps(dataclasses.asdict(state))


def from_json(text: str) -> StackState:
    """The state that `to_json` wrote."""
    record: dict[str, Any] = json.loads(text)
    parts = tuple(
        PartState(
            **{
                **part,
                "phase": PartPhase(part["phase"]),
                "last_lines": tuple(part["last_lines"]),
            }
        )
        for part in record.pop("parts")
    )
    return StackState(parts=parts, **record)


def write_state(path: Path, state: StackState) -> None:
    """Replace the file in one step; only its owner may read it."""
    write_private(path, to_json(state))


def read_state(path: Path) -> StackState | None:
    """The last written state; None when there is none that this version can read."""
    try:
        return from_json(path.read_text())
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):
        # Another version wrote it. It is a report, not data: the next change replaces it.
        return None


def write_private(path: Path, text: str) -> None:
    """Write a file of mode 0600 in one step: readers see the old content or the new."""
    fresh = path.with_name(f".{path.name}.new")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    fresh.replace(path)
