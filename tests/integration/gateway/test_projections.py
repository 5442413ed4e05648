"""Projections of the gateway and of the services behind it, through the gateway's port."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fastvideo.client.projections import list_projections, rebuild_projection
from fastvideo.errors import NotFound
from fastvideo.events.projections.report import RebuildProgress, RebuildReport
from fastvideo_gateway.index_postgres import LAYOUT
from fastvideo_sessions.app import running_sessions
from tests.integration.artifacts.worlds import world_of as artifacts_of
from tests.integration.gateway.worlds import World, gateway_config, world_of
from tests.integration.sessions.worlds import sessions_config


@pytest.fixture
async def both(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[World]:
    """A gateway with both services behind it that keep projections."""
    async with (
        running_sessions(sessions_config(postgres_dsn)) as sessions,
        artifacts_of(postgres_dsn, (tmp_path / "blobs").as_uri()) as artifacts,
        world_of(
            gateway_config(postgres_dsn, sessions=sessions.address, artifacts=artifacts.address)
        ) as world,
    ):
        yield world


async def rebuilt(world: World, name: str, **options: Any) -> RebuildReport:
    """The report of a rebuild, which told of itself before."""
    told: list[RebuildProgress] = []
    async with aclosing(rebuild_projection(world.gateway.address, name, **options)) as steps:
        async for step in steps:
            if isinstance(step, RebuildReport):
                assert told
                return step
            told.append(step)
    raise AssertionError("no report")


async def test_all_are_rebuilt_under_way_through_one_address(both: World) -> None:
    for _ in range(3):
        await both.submit()
    names = {status.name for status in await list_projections(both.gateway.address)}
    assert {"gateway", "sessions", "artifacts"} <= names
    for name in sorted(names):
        report = await rebuilt(both, name)
        assert (report.projection, report.equal, report.swapped) == (name, True, True), report
    with pytest.raises(NotFound, match=r"no projection 'nothing'; there are gateway.*sessions"):
        await rebuilt(both, "nothing")


async def test_a_row_that_is_not_as_the_log_says_is_found_and_mended(
    both: World, postgres_dsn: str
) -> None:
    kept = await both.submit()
    lost = await both.submit()
    while any(s.events_behind for s in await list_projections(both.gateway.address)):
        pass
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute(f"DELETE FROM {LAYOUT.live}.requests WHERE request_id = $1", lost)
    await connection.close()
    report = await rebuilt(both, "gateway", check=True)
    (differing,) = (table for table in report.tables if not table.equal)
    assert (differing.table, differing.rows_live, differing.rows_built) == ("requests", 1, 2)
    assert differing.first_difference == lost != kept
    assert not (await rebuilt(both, "gateway")).swapped
    assert (await rebuilt(both, "gateway", swap_different=True)).swapped
    assert (await rebuilt(both, "gateway", check=True)).equal


async def command_line(world: World, *arguments: str) -> tuple[int, Any, str]:
    """`fastvideo log rebuild` with JSON: exit code, what it printed, what it told."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from fastvideo.cli.main import main; main()"),
        *("log", "rebuild", *arguments, "--json", "--gateway", world.gateway.address),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, told = await asyncio.wait_for(process.communicate(), 60.0)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, json.loads(out or "null"), told.decode()


async def test_the_command_line_rebuilds_all_and_fails_at_a_difference(
    both: World, postgres_dsn: str
) -> None:
    await both.submit()
    code, reports, told = await command_line(both)
    assert code == 0, told
    assert {report["projection"] for report in reports} >= {"gateway", "sessions", "artifacts"}
    assert all(report["equal"] and report["swapped"] for report in reports)
    assert "gateway: swapping" in told
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute(f"UPDATE {LAYOUT.live}.requests SET status = 'failed'")
    await connection.close()
    code, (report,), _ = await command_line(both, "gateway", "--check")
    assert (code, report["equal"], report["swapped"]) == (1, False, False)
    code, (report,), _ = await command_line(both, "gateway", "--swap")
    assert (code, report["equal"], report["swapped"]) == (1, False, True)
    code, (report,), _ = await command_line(both, "gateway", "--check")
    assert code == 0
    assert report["equal"]
