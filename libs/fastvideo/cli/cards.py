"""Cards and deployments as tables in the terminal, and as data."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import TypeAdapter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastvideo.deployment.catalog import CatalogEntry
from fastvideo.deployment.project import Project
from fastvideo.model.card import card_digest
from fastvideo.model.specs import ModelSpec, ParameterSpec
from fastvideo.model.state_schemas import StateSchema, StateSchemas, states_of
from fastvideo.model.tensors import TensorSchema
from fastvideo.program.specs import ProgramSpec


def card_record(entry: CatalogEntry) -> dict[str, Any]:
    """A model as data."""
    return {
        "card": TypeAdapter(ModelSpec).dump_python(entry.card, mode="json"),
        "card_digest": entry.card_digest,
        "programs": sorted(entry.programs),
        "state_schemas": TypeAdapter(dict[str, StateSchema]).dump_python(
            states_of(entry.card, entry.state_schemas), mode="json"
        ),
        "checkpoint": str(entry.checkpoint_path or ""),
        "unavailable_reason": entry.unavailable_reason,
    }


def told_card(entry: CatalogEntry) -> None:
    """Print a model's card."""
    console = Console(highlight=False)
    _card(console, entry.card, entry.programs, entry.state_schemas)
    if entry.checkpoint_path is not None:
        console.print(Text(f"checkpoint {entry.checkpoint_path}"))
    else:
        console.print(Text(f"no checkpoint: {entry.unavailable_reason}", style="yellow"))


def told_project(project: Project) -> None:
    """Print what a folder deploys."""
    console = Console(highlight=False)
    if project.card is not None:
        _card(console, project.card, project.programs, project.state_schemas)
    deployment = project.deployment
    console.print(Text("Deployment", style="bold"))
    console.print(
        _table(
            ("what", "value"),
            (
                ("models", ", ".join(project.cards) or "none"),
                (
                    "pools",
                    ", ".join(f"{p.role} x {p.replicas}" for p in deployment.role_pools)
                    or "workers that run everything",
                ),
                ("transport", deployment.transport.backend or "none"),
                ("classes of service", ", ".join(deployment.scheduling.slo_classes) or "none"),
                ("fleet", deployment.fleet.router or "none"),
                ("verified checkpoints", ", ".join(project.checkpoints) or "none found"),
            ),
        )
    )
    training = project.training
    if training is not None:
        rollout = training.rollout
        console.print(Text("Training", style="bold"))
        console.print(
            _table(
                ("what", "value"),
                (
                    ("method", training.method),
                    ("rollout", f"{rollout.program_id}, groups of {rollout.group_size}"),
                    ("rewards", ", ".join(f"{r.name} x {r.weight:g}" for r in training.rewards)),
                    ("weight sync", f"{training.weight_sync.policy.value}"),
                ),
            )
        )
    console.print(Text(f"{project.folder}: sound", style="green"))


def _card(
    console: Console,
    card: ModelSpec,
    programs: Mapping[str, ProgramSpec],
    schemas: StateSchemas,
) -> None:
    console.print(Text(card.model_id, style="bold"), Text(card.description))
    console.print(
        Text(
            f"family {card.family}, card {card_digest(card)[:12]}, "
            f"can do {', '.join(card.capabilities.capabilities)}",
            style="dim",
        )
    )
    console.print(
        _table(
            ("component", "kind", "class", "dtype"),
            (
                (name, part.kind.value, part.load_id, part.precision_policy.param_dtype)
                for name, part in card.components.items()
            ),
        )
    )
    console.print(
        _table(
            ("loop", "unit", "components", "batch", "caches", "guidance"),
            (
                (
                    name,
                    loop.unit_kind.value,
                    ", ".join(loop.components),
                    str(loop.step_policy.max_batch),
                    ", ".join(loop.cache_contracts),
                    loop.guidance_policy,
                )
                for name, loop in card.loops.items()
            ),
        )
    )
    console.print(
        _table(
            ("loop", "state schema", "state", "step"),
            (
                (name, loop.state_schema, _tensors(known.state), _tensors(known.step))
                for name, loop in card.loops.items()
                if (known := schemas.get(loop.state_schema)) is not None
            ),
        )
    )
    console.print(
        _table(
            ("program", "kind", "nodes"),
            (
                (
                    name,
                    program.request_kind.value + (", default" if program.is_default else ""),
                    " > ".join(node.node_id for node in program.nodes),
                )
                for name, program in programs.items()
            ),
        )
    )
    console.print(
        _table(
            ("parameter", "default", "from", "to"),
            (
                # A seed that is left out is drawn, whatever the card says.
                (name, "random" if name == "seed" else _number(p.default_value), *_bounds(p))
                for name, p in card.sampling.items()
            ),
        )
    )


def _bounds(parameter: ParameterSpec) -> tuple[str, str]:
    return _number(parameter.minimum), _number(parameter.maximum)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:g}"


def _tensors(tensors: Iterable[TensorSchema]) -> str:
    told = (f"{one.name} {one.dtype}[{', '.join(one.dims)}]" for one in tensors)
    return "\n".join(told) or "no tensors"


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table
