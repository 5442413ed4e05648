"""A stack as data: which processes there are, what each needs, and when it counts as ready."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fastvideo.errors import ContractViolation
from fastvideo.local.probes import Probe


@dataclass(frozen=True)
class ProcessSpec:
    """One part: a process that is kept running, or (`once`) a step that must end well.

    `group` orders the stop: groups end in reverse order of their first appearance, the parts of
    one group together. `needs` names parts that must be ready before this one starts. Times are in
    seconds. `user` is a system user to run as, None for our own. `orphan_signal` is what the
    kernel sends when the supervisor dies.
    """

    name: str
    group: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    cwd: Path
    ready: Probe
    needs: tuple[str, ...] = ()
    user: str | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    orphan_signal: signal.Signals = signal.SIGKILL
    stop_grace_s: float = 10.0
    start_timeout_s: float = 60.0
    address: str = ""
    once: bool = False


@dataclass(frozen=True)
class StackPlan:
    """All parts, in an order in which each comes after the parts that it needs.

    `addresses` are "host:port" under the names that clients ask for ("gateway", "gateway-http").
    """

    parts: tuple[ProcessSpec, ...]
    addresses: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for part in self.parts:
            if part.name in seen:
                raise ContractViolation(f"two parts are named {part.name}", subject=part.name)
            if absent := set(part.needs) - seen:
                raise ContractViolation(
                    f"{part.name} needs {', '.join(sorted(absent))}, which do not come before it",
                    subject=part.name,
                )
            seen.add(part.name)

    def stop_order(self) -> tuple[tuple[str, ...], ...]:
        """Names of the parts, group after group as they are to be stopped."""
        groups: dict[str, list[str]] = {}
        for part in self.parts:
            groups.setdefault(part.group, []).append(part.name)
        return tuple(tuple(names) for names in reversed(groups.values()))
