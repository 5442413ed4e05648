"""`make bench`: run the benchmarks, print one table, keep the figures as JSON.

    python tests/bench/run.py [P1 P5 ...]

A benchmark is a module `bench_<name>.py` beside this file with `IDS` and
`measure() -> list[Measurement]`. It never fails on time.
"""

import importlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from measurement import Measurement, table, write  # noqa: E402


def main(wanted: set[str]) -> int:
    """Run what is wanted, or all."""
    measurements: list[Measurement] = []
    for path in sorted(HERE.glob("bench_*.py")):
        module = importlib.import_module(path.stem)
        if wanted and not wanted & set(module.IDS):
            continue
        sys.stderr.write(f"{path.stem}: {', '.join(module.IDS)}\n")
        measurements += [m for m in module.measure() if not wanted or m.id in wanted]
    measurements.sort(key=_place)
    sys.stdout.write(f"{table(measurements)}\n\n{write(measurements)}\n")
    for item in measurements:
        if item.note:
            sys.stdout.write(f"{item.id}: {item.note}\n")
    return 0


def _place(measurement: Measurement) -> tuple[bool, int, str]:
    """The numbered ones in order, then the others by name."""
    number = measurement.id.removeprefix("P")
    return not number.isdecimal(), int(number) if number.isdecimal() else 0, measurement.id


if __name__ == "__main__":
    sys.exit(main(set(sys.argv[1:])))
