"""A batch with its progress on standard error."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fastvideo.cli.connection import Target
from fastvideo.cli.counting import counting_bar
from fastvideo.cli.failures import EXIT_FAILED, tell
from fastvideo.cli.report import print_json
from fastvideo.cli.running import run
from fastvideo.client.batch_file import BatchItem
from fastvideo.client.batches import MANIFEST, BatchResult, run_batch


def run_file(
    target: Target,
    items: Sequence[BatchItem],
    out: Path,
    *,
    base: Path,
    at_once: int,
    retry_failed: bool,
    as_json: bool,
) -> int:
    """Do it, and give the exit code."""
    progress = counting_bar()
    bar = progress.add_task("batch", total=len(items))

    def on_item(result: BatchResult) -> None:
        progress.advance(bar)
        if not result.completed:
            tell(f"{result.id}: {result.status}: {result.error.get('message', '')}")

    async def work() -> tuple[BatchResult, ...]:
        async with target.client() as client:
            return await run_batch(
                client,
                items,
                out,
                base=base,
                at_once=at_once,
                retry_failed=retry_failed,
                on_item=on_item,
            )

    with progress:
        results = run(work())
    counts = Counter(result.status for result in results)
    if as_json:
        print_json({"counts": dict(counts), "items": [dataclasses.asdict(one) for one in results]})
    else:
        told = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        tell(f"{told}; see {out / MANIFEST}")
    return 0 if counts.keys() <= {"completed"} else EXIT_FAILED
