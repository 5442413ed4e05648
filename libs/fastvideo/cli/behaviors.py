"""`fastvideo log behaviors`: what policies did, found by any field of the record."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from fastvideo.cli.options import AsJson, Gateway, gateway_target
from fastvideo.cli.stack import DataOption

if TYPE_CHECKING:
    from fastvideo.cli.connection import Target


def register(app: typer.Typer) -> None:
    """Add the command to the group of commands about the log."""
    app.command("behaviors")(behaviors)


def behaviors(
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=VALUE",
            help="A condition; several must all hold. Of a list: a value that it holds, such as "
            "seeds=7. Of a map, and of a record in the record: FIELD=KEY=VALUE, such as "
            "guidance_settings=scale=3.0 or cache_assumptions=outcome=hit; deeper, one more KEY=.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest.")] = 100,
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """List what policies did, newest first; with --json one record a line.

    Requests record it with `fastvideo generate --capture behavior`.
    """
    from fastvideo.cli.report import print_json, print_lines
    from fastvideo.cli.running import run

    conditions = parse_conditions(where or ())
    found = run(_collect(gateway_target(gateway, data), conditions, limit))
    if as_json:
        for record in found:
            print_json(record)
        return
    print_lines([_line(record) for record in found])


def parse_conditions(where: Sequence[str]) -> dict[str, str]:
    """Field to value, of "FIELD=VALUE". Raises BadParameter for another form and for a repeat."""
    conditions: dict[str, str] = {}
    for condition in where:
        field, equals, value = condition.partition("=")
        if not equals or not field:
            raise typer.BadParameter(
                f"{condition!r} is not of the form FIELD=VALUE", param_hint="--where"
            )
        if field in conditions:
            raise typer.BadParameter(f"{field} is there twice", param_hint="--where")
        conditions[field] = value
    return conditions


async def _collect(
    target: "Target", conditions: dict[str, str], limit: int
) -> list[dict[str, object]]:
    from fastvideo.cli.report import plain_record

    async with (
        target.client() as client,
        aclosing(client.behaviors(conditions, limit=limit)) as found,
    ):
        return [plain_record(behavior) async for behavior in found]


def _line(behavior: dict[str, object]) -> str:
    record = behavior["record"]
    assert isinstance(record, dict)
    likely = record["logprobs"]
    mean = f"{sum(likely) / len(likely):+.4f}" if likely else "deterministic"
    return (
        f"{behavior['behavior_id']}  {record['request_id']}  {record['model_id']}  "
        f"policy {record['policy_version'][:12]}  "
        f"seed {','.join(str(seed) for seed in record['seeds'])}  {record['sampler']}  {mean}"
    )
