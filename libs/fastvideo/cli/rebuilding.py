"""What `fastvideo log rebuild` does once it knows its gateway."""

from collections.abc import AsyncIterator
from contextlib import aclosing

from fastvideo.cli.connection import Target
from fastvideo.cli.failures import tell
from fastvideo.cli.report import plain_record, print_json, print_lines
from fastvideo.cli.running import run
from fastvideo.client.projections import list_projections, rebuild_projection
from fastvideo.events.projections.report import RebuildProgress, RebuildReport

# Told again when so much more is done.
_TOLD_EVERY = 0.1


def rebuild_projections(
    target: Target, projection: str, *, check: bool, swap_different: bool, as_json: bool
) -> bool:
    """Rebuild one projection, or all without a name; whether all were as the log says."""

    async def work() -> list[RebuildReport]:
        names = (
            [projection]
            if projection
            else [
                p.name for p in await list_projections(target.address, target.api_key, target.tls)
            ]
        )
        return [await _rebuilt(target, name, check, swap_different) for name in names]

    reports = run(work())
    if as_json:
        print_json([plain_record(report) for report in reports])
    else:
        print_lines([line for report in reports for line in report_lines(report, check=check)])
    return all(report.equal for report in reports)


def report_lines(report: RebuildReport, *, check: bool) -> list[str]:
    """What a report says, for people."""
    rate = report.events / max(report.seconds, 1e-9)
    name = f"{report.projection} (layout {report.layout_version})"
    verdict = "equal" if report.equal else "DIFFERENT"
    if report.swapped:
        ending = "the new rows are in use"
    elif check:
        ending = "compared only"
    else:
        ending = "the old rows stay in use; --swap takes the new ones"
    lines = [
        f"{name}: {verdict}, {ending}; "
        f"{report.events:,} events in {report.seconds:.1f} s ({rate:,.0f}/s)"
    ]
    for table in report.tables:
        if table.equal:
            lines.append(f"  {table.table}: {table.rows_built:,} rows, {table.digest_built[:16]}")
        else:
            where = f", first at key {table.first_difference}" if table.first_difference else ""
            lines.append(
                f"  {table.table}: {table.rows_live:,} rows in use, {table.rows_built:,} by the "
                f"log; they differ{where}"
            )
    return lines


async def _rebuilt(
    target: Target, projection: str, check: bool, swap_different: bool
) -> RebuildReport:
    steps = rebuild_projection(
        target.address,
        projection,
        api_key=target.api_key,
        tls=target.tls,
        check=check,
        swap_different=swap_different,
    )
    async with aclosing(steps):
        async for report in _tell_progress(projection, steps):
            return report
    raise AssertionError("a rebuild ends with its report or an error")


async def _tell_progress(
    projection: str, steps: AsyncIterator[RebuildProgress | RebuildReport]
) -> AsyncIterator[RebuildReport]:
    told = 0.0
    async for step in steps:
        if isinstance(step, RebuildReport):
            yield step
            return
        done = step.events_done / max(step.events_total, 1)
        if done >= told or step.phase != "building":
            tell(f"{projection}: {step.phase}, {step.events_done:,} of {step.events_total:,}")
            told = done + _TOLD_EVERY
