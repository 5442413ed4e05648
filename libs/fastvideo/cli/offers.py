"""Deployment cards as tables in the terminal, as data, and from files."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastvideo.deployment.card import DeploymentCard, EngineLoad, EngineOffer
from fastvideo.deployment.fleet import Candidate, PriceSource, Route
from fastvideo.errors import InvalidField
from fastvideo.model.documents import parse, read_document

# Prices that are shown, the best known first; all are in the JSON.
_PRICES_MAX: Final = 20


def offers_record(offers: Sequence[EngineOffer]) -> dict[str, Any]:
    """Offers as data, which `read_offers` reads."""
    return {"engines": TypeAdapter(tuple[EngineOffer, ...]).dump_python(tuple(offers), mode="json")}


def read_offers(path: Path) -> tuple[EngineOffer, ...]:
    """The offers of a file that `fastvideo describe --json` wrote.

    Raises InvalidDocument naming the key that is wrong, and InvalidField for a file that cannot
    be read.
    """
    try:
        document = read_document(path)
    except OSError as error:
        raise InvalidField("--card", str(path), f"a readable file: {error.strerror}") from error
    engines = document.get("engines", [document])
    if not isinstance(engines, list) or not engines:
        raise InvalidField("--card", str(path), "a file of `fastvideo describe --json`")
    return tuple(
        parse(EngineOffer, engine, f"{path.name}: engines.{index}")
        for index, engine in enumerate(engines)
    )


def told_offers(offers: Sequence[EngineOffer]) -> None:
    """Print what engines offer."""
    console = Console(highlight=False)
    if not offers:
        console.print(Text("no scheduler leads, so nothing is offered", style="yellow"))
    for offer in offers:
        _engine(console, offer.card, offer.load)


def told_route(route: Route) -> None:
    """Print a choice with its figures."""
    console = Console(highlight=False)
    console.print(Text(f"{route.engine_id}", style="bold"), Text("is predicted to be done first"))
    _print_rows(
        console,
        ("engine", "done after", "wait", "device", "price", "error", "cached", "why not"),
        map(_candidate, route.candidates),
    )


def route_record(route: Route) -> dict[str, Any]:
    """A choice as data."""
    rows = TypeAdapter(tuple[Candidate, ...]).dump_python(route.candidates, mode="json")
    totals = [one.total_seconds for one in route.candidates]
    return {
        "engine_id": route.engine_id,
        "candidates": [
            {**row, "total_seconds": total} for row, total in zip(rows, totals, strict=True)
        ],
    }


def _candidate(one: Candidate) -> tuple[str, ...]:
    if one.refusal:
        return (one.engine_id, "", "", "", "", "", "", one.refusal)
    known = one.price is not PriceSource.UNKNOWN
    return (
        one.engine_id,
        _seconds(one.done_seconds),
        _seconds(one.wait_seconds),
        _seconds(one.device_seconds) if known else "unknown",
        one.price.value,
        "" if one.relative_error is None else f"{one.relative_error:.0%}",
        f"{one.warm_share:.0%}, {_seconds(one.warm_seconds)}",
        "",
    )


def _engine(console: Console, card: DeploymentCard, load: EngineLoad) -> None:
    console.print(
        Text(card.engine_id, style="bold"),
        Text(f"can do {', '.join(card.capabilities.capabilities) or 'nothing now'}"),
    )
    wait = load.backlog_seconds / max(1, load.compute_slots)
    _print_rows(
        console,
        ("what", "value"),
        (
            ("models", ", ".join(_model(card, load, name) for name in card.model_specs)),
            ("programs", ", ".join(card.supported_programs)),
            (
                "pools",
                ", ".join(
                    f"{pool.role} x {pool.replicas} ({', '.join(pool.models)})"
                    for pool in card.role_pools
                ),
            ),
            (
                "parallel plans",
                ", ".join(_plan(plan.axes) for plan in card.supported_parallel_plans),
            ),
            ("cache events", ", ".join(card.cache_events)),
            (
                "transfer endpoints",
                ", ".join(f"{one.backend} {one.address}" for one in card.transfer_endpoints),
            ),
            ("health", ", ".join(card.health_schema)),
            (
                "classes of service",
                ", ".join(f"{name} within {_seconds(s)}" for name, s in card.slo_schema.items())
                or "none has a target",
            ),
            (
                "load",
                f"{load.live_requests} requests, {load.queued_requests} wait for a place; "
                f"{_seconds(load.backlog_seconds)} of work over {load.compute_slots} slots, "
                f"{_seconds(wait)} to wait",
            ),
            (
                "predictions",
                f"off by {load.prediction_error:.0%} over {load.predictions}"
                if load.predictions
                else "none was compared yet",
            ),
        ),
    )
    entries = sorted(card.cost_model.entries, key=lambda entry: -entry.samples)
    _print_rows(
        console,
        ("model", "phase", "shape", "seconds", "error", "samples"),
        (
            (
                entry.model_id,
                entry.phase,
                entry.shape,
                _seconds(entry.seconds),
                f"{entry.relative_error:.0%}",
                str(entry.samples),
            )
            for entry in entries[:_PRICES_MAX]
        ),
    )
    if len(entries) > _PRICES_MAX:
        left = len(entries) - _PRICES_MAX
        console.print(Text(f"{left} more prices with --json", style="dim"))
    if not entries:
        guesses = len(card.cost_model.priors)
        console.print(Text(f"nothing was measured yet; {guesses} first guesses", style="dim"))


def _model(card: DeploymentCard, load: EngineLoad, model_id: str) -> str:
    ready = "" if model_id in load.ready_models else ", not ready"
    return f"{model_id} (card {card.card_digests.get(model_id, '')[:12]}{ready})"


def _plan(axes: object) -> str:
    return json.dumps(axes) if axes else "one device"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"


def _print_rows(
    console: Console, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]
) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    if table.row_count:
        console.print(table)
