"""What a run comes to, as lines for people."""

from collections.abc import Iterator, Sequence

from fastvideo.simulation.figures import PoolFigures, RunFigures, Spread


def report_lines(run: RunFigures) -> list[str]:
    """The figures of one run."""
    return [
        f"{run.requests} requests in {run.virtual_seconds:.0f} virtual seconds, "
        f"{run.units} units in {run.batches} batches; seed {run.seed}, history {run.history[:12]}",
        "",
        *_table(("class", "accepted", "done", "failed", "cancelled", "late"), _ends(run)),
        "",
        *_table(("seconds", "p50", "p95", "p99", "mean", "most"), _times(run)),
        "",
        *_table(("pool", "workers", "busy", "least", "most", "units a forward"), _pools(run)),
        "",
        *_others(run),
    ]


def _ends(run: RunFigures) -> Iterator[tuple[str, ...]]:
    for one in run.classes:
        late = f"{one.deadline_misses} of {one.deadlines}" if one.deadlines else "-"
        counts = (one.accepted, one.completed, one.failed, one.cancelled)
        yield (one.name, *map(str, counts), late)


def _times(run: RunFigures) -> Iterator[tuple[str, ...]]:
    for one in run.classes:
        yield (f"{one.name}: until it starts", *_spread(one.wait))
        yield (f"{one.name}: until it is done", *_spread(one.completion))


def _spread(spread: Spread) -> Iterator[str]:
    for value in (spread.p50, spread.p95, spread.p99, spread.mean, spread.most):
        yield f"{value:.3f}" if value < 100 else f"{value:.1f}"


def _pools(run: RunFigures) -> Iterator[tuple[str, ...]]:
    for pool in run.pools:
        yield _pool(pool)


def _pool(pool: PoolFigures) -> tuple[str, ...]:
    shares = (pool.utilisation, pool.utilisation_min, pool.utilisation_max)
    return (
        pool.name,
        str(pool.workers),
        *(f"{share:.0%}" for share in shares),
        f"{pool.batch_size:.1f}",
    )


def _others(run: RunFigures) -> Iterator[str]:
    yield f"queue        {run.queue_mean:.1f} on average, {run.queue_max} at most"
    repeated = run.repeated_seconds / run.device_seconds if run.device_seconds else 0.0
    yield (
        f"device       {run.device_seconds:.1f} s, of which {run.repeated_seconds:.1f} s "
        f"({repeated:.1%}) repeat what had run before"
    )
    if len(run.tenants) > 1:
        total = sum(run.tenants.values()) or 1.0
        shares = (f"{name or '-'} {seconds / total:.1%}" for name, seconds in run.tenants.items())
        yield f"tenants      {', '.join(shares)} of the device-seconds while requests come"
    yield (
        f"scheduler    {run.restarts} restarts, {run.preemptions} preemptions, "
        f"{run.snapshots} snapshots, {run.windows} windows, {run.yields} yields"
    )
    yield (
        f"cost model   off by {run.cost_error_early:.1%} in the first half of the batches, "
        f"by {run.cost_error_late:.1%} in the second"
    )
    if run.faults:
        faults = (f"{count} {name.replace('_', ' ')}" for name, count in run.faults.items())
        yield f"faults       {', '.join(faults)}"


def _table(head: Sequence[str], rows: Iterator[tuple[str, ...]]) -> list[str]:
    lines = [tuple(head), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
