"""P11, P12: cold start and idle cost of the embedded stack."""

import time

import psutil
from measurement import Measurement
from stack import embedded_stack

from fastvideo.local import StackAddresses

IDS = ("P11", "P12")
IDLE_SECONDS = 20.0
SERVICES = ("worker", "gateway", "scheduler", "artifacts", "sessions")


def measure() -> list[Measurement]:
    """A first start, a start over existing data, and then nothing to do."""
    began = time.perf_counter()
    with embedded_stack() as addresses:
        first = time.perf_counter() - began
        idle = _idle(addresses)
    return [
        Measurement(
            id="P11",
            what="cold start, `fastvideo up` to ready, in an empty folder",
            value=first,
            unit="s",
            goal="<= 10 s",
            met=first <= 10,
        ),
        idle,
    ]


def _idle(addresses: StackAddresses) -> Measurement:
    parts = _processes(addresses)
    time.sleep(3)  # Let the start settle; what is measured is rest.
    before = {name: _cpu_seconds(group) for name, group in parts.items()}
    time.sleep(IDLE_SECONDS)
    cpu = {
        name: (_cpu_seconds(group) - before[name]) / IDLE_SECONDS for name, group in parts.items()
    }
    memory = {name: sum(_memory(p) for p in group) for name, group in parts.items()}
    control = sum(size for name, size in memory.items() if not name.startswith("worker"))
    share = sum(cpu.values())
    return Measurement(
        id="P12",
        what="idle stack: control plane memory without the torch worker",
        value=control / 2**20,
        unit="MiB",
        goal="<= 600 MB, <= 3 % of a core",
        met=control <= 600e6 and share <= 0.03,
        note=(
            f"all parts together take {100 * share:.1f} % of a core; memory is proportional"
            " set size"
        ),
        details={f"cpu_{name}": value for name, value in cpu.items()}
        | {f"mib_{name}": value / 2**20 for name, value in memory.items()},
    )


def _processes(addresses: StackAddresses) -> dict[str, list[psutil.Process]]:
    """The stack's processes by part, each with its children."""
    supervisor = psutil.Process(addresses.pid)
    parts = {"supervisor": [supervisor]}
    for child in supervisor.children():
        command = " ".join(child.cmdline())
        name = next(
            (
                n
                for n in ("worker", "gateway", "scheduler", "artifacts", "sessions")
                if n in command
            ),
            child.name(),
        )
        parts.setdefault(name, []).extend([child, *child.children(recursive=True)])
    return parts


def _cpu_seconds(group: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in group)


def _memory(process: psutil.Process) -> int:
    return int(process.memory_full_info().pss)
