"""Runs a family's parity check as a process of its own, since it needs torch and this does not."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fastvideo.cli.connection import Target
from fastvideo.cli.report import print_json, print_lines
from fastvideo.cli.running import run
from fastvideo.deployment.catalog import Catalog
from fastvideo.errors import FailedPrecondition
from fastvideo.scheduling.traces import ParityChecked


@dataclass(frozen=True, slots=True)
class ParityCase:
    """What is compared; what is empty takes the check's own."""

    model_id: str
    checkpoints: Path | None
    steps: Sequence[int]
    seeds: Sequence[int]


def check_parity(case: ParityCase, target: Target | None, *, as_json: bool) -> bool:
    """Compare, print, and record where a gateway is given; whether everything passed.

    Raises NotFound for an unknown model, FailedPrecondition when the check cannot be run here.
    """
    checks = _run(case)
    if target is not None:
        run(_record(target, checks))
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        print_lines([_line(check) for check in checks])
    return all(check.passed for check in checks)


async def _record(target: Target, checks: Sequence[ParityChecked]) -> None:
    async with target.client() as client:
        await client.record_parity(checks)


def _run(case: ParityCase) -> tuple[ParityChecked, ...]:
    family = Catalog.load([case.model_id], case.checkpoints).get(case.model_id).card.family
    command = [sys.executable, "-m", f"fastvideo.models.{family}.parity", "--json"]
    command += ["--model", case.model_id]
    if case.checkpoints is not None:
        command += ["--checkpoints", str(case.checkpoints)]
    for option, values in (("--steps", case.steps), ("--seeds", case.seeds)):
        if values:
            command += [option, *map(str, values)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        last = done.stderr.strip().rpartition("\n")[2]
        raise FailedPrecondition(
            f"the check of {case.model_id} cannot be run here: {last or 'it says nothing'}",
            reason="NO_PARITY_CHECK",
            subject=case.model_id,
        )
    return tuple(_check(json.loads(line)) for line in lines)


def _check(record: dict[str, Any]) -> ParityChecked:
    return ParityChecked(**record)


def _line(check: ParityChecked) -> str:
    verdict = "passed" if check.passed else "FAILED"
    where = f", from step {check.first_step} on" if check.first_step is not None else ""
    return (
        f"{verdict}  {check.rung}  {check.subject:<28} {check.max_abs_difference:g} apart, "
        f"{check.tolerance:g} allowed{where}"
    )
