"""What `fastvideo log verify` does once it knows its gateway."""

from contextlib import aclosing

from fastvideo.cli.connection import Target
from fastvideo.cli.counting import counting_bar
from fastvideo.cli.failures import tell
from fastvideo.cli.log_view import fault_line
from fastvideo.cli.report import plain_record, print_json, print_lines
from fastvideo.cli.running import run
from fastvideo.events.reading.verifying import LogFault, VerifyProgress

# Faults beyond are counted, and not listed.
FAULTS_LISTED_MAX = 1_000


def verify_log(target: Target, *, as_json: bool) -> bool:
    """Have the log checked, tell each fault as it is found; whether there was none."""
    faults: list[LogFault] = []
    last, found = run(_verify(target, faults, as_json=as_json))
    rate = last.events_checked / max(last.seconds, 1e-9)
    if as_json:
        print_json(
            {
                "events_checked": last.events_checked,
                "seconds": last.seconds,
                "fault_count": found,
                "faults": [plain_record(fault) for fault in faults],
            }
        )
    else:
        verdict = f"{found:,} fault{'' if found == 1 else 's'}" if found else "as it must be"
        print_lines(
            [
                f"{last.events_checked:,} events checked in {last.seconds:.1f} s "
                f"({rate:,.0f}/s): {verdict}"
            ]
        )
    return found == 0


async def _verify(
    target: Target, faults: list[LogFault], *, as_json: bool
) -> tuple[VerifyProgress, int]:
    last, found = VerifyProgress(events_checked=0, events_total=0), 0
    with counting_bar() as bar:
        task = bar.add_task("verifying", total=None)
        async with (
            target.client() as client,
            aclosing(client.log.verify()) as steps,
        ):
            async for last in steps:
                bar.update(task, completed=last.events_checked, total=last.events_total)
                if last.events_checked >= last.events_total:
                    bar.update(task, description="verifying streams, ids and heads")
                for fault in last.faults:
                    found += 1
                    if found > FAULTS_LISTED_MAX:
                        continue
                    faults.append(fault)
                    if not as_json:
                        print_lines([fault_line(fault)])
    if found > FAULTS_LISTED_MAX:
        tell(f"{found - FAULTS_LISTED_MAX:,} faults more")
    return last, found
