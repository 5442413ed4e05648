"""What a benchmark reports, and how two things are compared on a noisy machine."""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results"


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One figure of `PERFORMANCE`: what was measured, against which peer, and the goal."""

    id: str
    what: str
    value: float
    unit: str
    goal: str
    # The peer or limit measured in the same run, same unit; None when there is none.
    peer: float | None = None
    peer_name: str = ""
    met: bool | None = None
    note: str = ""
    details: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """The value relative to its peer."""
        return self.value / self.peer if self.peer else None


def seconds_of(action: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def interleave(actions: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """The median seconds of each action, run A B A B, the first round thrown away."""
    samples: list[list[float]] = [[] for _ in actions]
    for round_index in range(rounds + 1):
        for action, kept in zip(actions, samples, strict=True):
            taken = seconds_of(action)
            if round_index:
                kept.append(taken)
    return [statistics.median(kept) for kept in samples]


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def fingerprint() -> dict[str, str]:
    """What makes figures of this machine comparable with later ones."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    packages = ("torch", "diffusers", "transformers", "grpcio", "asyncpg", "nats-py")
    return {
        "cpu": cpu,
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        **{package: version(package) for package in packages},
    }


def write(measurements: Sequence[Measurement]) -> Path:
    """Keep the figures with the machine's fingerprint; one file a run."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    target = RESULTS / f"{now:%Y%m%dT%H%M%SZ}.json"
    body = {
        "at": now.isoformat(timespec="seconds"),
        "machine": fingerprint(),
        "measurements": [asdict(item) | {"ratio": item.ratio} for item in measurements],
    }
    target.write_text(json.dumps(body, indent=2) + "\n")
    return target


def table(measurements: Sequence[Measurement]) -> str:
    """The figures as a Markdown table."""
    lines = [
        "| id | what | measured | peer | ratio | goal | met |",
        "|---|---|---|---|---|---|---|",
    ]
    for item in measurements:
        peer = f"{item.peer:.4g} {item.unit} ({item.peer_name})" if item.peer else "-"
        ratio = f"{item.ratio:.3g}" if item.ratio is not None else "-"
        met = {True: "yes", False: "no", None: "-"}[item.met]
        value = f"{item.value:.4g} {item.unit}"
        lines.append(
            f"| {item.id} | {item.what} | {value} | {peer} | {ratio} | {item.goal} | {met} |"
        )
    return "\n".join(lines)
