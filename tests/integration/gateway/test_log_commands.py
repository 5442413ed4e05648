"""`fastvideo log` and the client's `log`, against a gateway over real Postgres."""

import asyncio
import json
import os
import sys
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fastvideo.client import AsyncClient, EventFilter
from fastvideo.errors import InvalidField
from fastvideo.events.records import AppendCommand, NewEvent, StreamAppend
from fastvideo.events.types import Event
from fastvideo.requests.events import RequestProgressed, RequestStarted
from fastvideo.requests.state import stream_of
from tests.integration.gateway.test_event_log import shared_batch
from tests.integration.gateway.worlds import World, gateway_config, world_of

PROGRAM = str(Path(sys.executable).with_name("fastvideo"))
COMMAND_S_MAX = 180.0


@dataclass(frozen=True)
class Outcome:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def records(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


async def command(world: World, *arguments: str) -> Outcome:
    """Run `fastvideo log ...` against the world's gateway."""
    process = await asyncio.create_subprocess_exec(
        PROGRAM,
        "log",
        *arguments,
        "--gateway",
        world.gateway.address,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(COMMAND_S_MAX):
        out, err = await process.communicate()
    assert process.returncode is not None
    return Outcome(process.returncode, out.decode(), err.decode())


async def forge(dsn: str, offset: int) -> None:
    """Flip a byte of a payload as only a superuser can, past the guards."""
    connection = await asyncpg.connect(dsn)
    try:
        tables = await connection.fetch(
            "SELECT relid::regclass AS name FROM pg_partition_tree('events')"
        )
        for table in tables:
            await connection.execute(f"ALTER TABLE {table['name']} DISABLE TRIGGER USER")
        await connection.execute(
            "UPDATE events SET payload = set_byte(payload, 0, get_byte(payload, 0) # 1)"
            ' WHERE "offset" = $1',
            offset,
        )
        for table in tables:
            await connection.execute(
                f"ALTER TABLE {table['name']} ENABLE ALWAYS TRIGGER events_append_only"
            )
    finally:
        await connection.close()


async def test_show_tells_a_request_and_what_it_shared(world: World) -> None:
    first, second = await world.submit(), await world.submit()
    await world.append("scheduler-0", shared_batch("w0", first, second))
    await world.schedule(first, RequestStarted(attempt=1))
    shown = await command(world, "show", first, "--json")
    assert shown.code == 0, shown.err
    assert [r["name"] for r in shown.records] == [
        "request.accepted",
        "trace.step",
        "request.started",
    ]
    stream = await command(world, "show", "scheduler-0")
    assert stream.code == 0
    assert "diffusion_step x2" in stream.out
    unknown = await command(world, "show", "req_of_nobody")
    assert unknown.code == 1
    assert "req_of_nobody" in unknown.err
    newest = await command(world, "show", "--type", "request.*", "--limit", "1", "--json")
    assert [r["name"] for r in newest.records] == ["request.started"]


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
async def test_export_writes_every_event_once(world: World, tmp_path: Path, ending: str) -> None:
    request_id = await world.submit()
    await world.schedule(request_id, *(RequestProgressed(fraction=i / 20) for i in range(20)))
    unknown = NewEvent("evt_new", "RequestPostponed", 1, b"\x08\x01")
    stream = StreamAppend(stream_of(request_id), (unknown,))
    await world.log.append(AppendCommand(streams=(stream,)))
    file = tmp_path / f"log.{ending}"
    outcome = await command(world, "export", str(file), "--json")
    # What could not be read is told, and has its place.
    assert outcome.code == 1, outcome.err
    assert "22 events in" in outcome.err
    assert "1 event could not be read:\n  0:22 " in outcome.err
    assert "UNREADABLE RequestPostponed" in outcome.err
    (told,) = outcome.records
    assert (told["events"], told["unreadable_count"]) == (22, 1)
    assert [event["offset"] for event in told["unreadable"]] == ["22"]
    assert os.listdir(tmp_path) == [file.name]
    if ending == "jsonl":
        records = [json.loads(line) for line in file.read_text().splitlines()]
        assert [r["sequence"] for r in records[:-1]] == list(range(1, 22))
        assert records[-1]["unreadable"]["type"] == "RequestPostponed"
        return
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(file)
    assert table.column("offset").to_pylist() == list(range(1, 23))
    assert table.column("unreadable").to_pylist()[-1] == "UNKNOWN_SCHEMA"
    assert json.loads(table.column("payload")[2].as_py())["fraction"] == 0.05
    whole = await command(world, "export", str(file), "--type", "request.accepted")
    assert (whole.code, "1 events in" in whole.err, "could not" in whole.err) == (0, True, False)
    refused = await command(world, "export", str(tmp_path / "log.txt"))
    assert (refused.code, ".parquet" in refused.err) == (2, True)


async def test_stats_and_verify_of_an_intact_log(world: World) -> None:
    request_id = await world.submit()
    await world.schedule(request_id, RequestStarted(attempt=1))
    stats = await command(world, "stats", "--json")
    assert stats.records[0]["events"] == 2
    verified = await command(world, "verify")
    assert verified.code == 0, verified.out
    assert "2 events checked" in verified.out


async def test_a_forged_event_is_named_and_the_rest_is_checked(
    world: World, postgres_dsn: str
) -> None:
    request_id = await world.submit()
    await world.schedule(request_id, *(RequestProgressed(fraction=i / 9) for i in range(9)))
    (victim,) = await world.log.read_partition(0, 4, 1)
    await forge(postgres_dsn, 5)
    verified = await command(world, "verify", "--json")
    assert verified.code == 1
    (fault,) = verified.records[0]["faults"]
    assert (fault["kind"], fault["offset"], fault["event_id"], fault["stream_id"]) == (
        "payload_digest",
        "5",
        victim.event_id,
        stream_of(request_id),
    )
    assert verified.records[0]["events_checked"] == 10
    # Whoever reads is told of it, and of all others.
    shown = await command(world, "show", stream_of(request_id), "--json")
    assert shown.code == 0
    assert [i for i, r in enumerate(shown.records, 1) if "unreadable" in r] == [5]


@pytest.mark.row("REQ-07")
async def test_a_tail_loses_and_doubles_nothing_over_restarts(postgres_dsn: str) -> None:
    seen: list[int] = []
    async with world_of(gateway_config(postgres_dsn)) as world:
        address = world.gateway.address
        request_id = await world.submit()
        client = AsyncClient(world.gateway.address)
        wanted = EventFilter(request_ids=(request_id,))
        told = asyncio.Event()

        async def follow() -> None:
            async with aclosing(client.log.subscribe(wanted)) as entries:
                async for entry in entries:
                    assert isinstance(entry, Event)
                    seen.append(entry.stream_version)
                    told.set()

        task = asyncio.create_task(follow())
        async with asyncio.timeout(30):
            await told.wait()
    # The gateway is gone; the log grows meanwhile.
    restarted = replace(gateway_config(postgres_dsn), listen=address)
    async with world_of(restarted) as world:
        await world.schedule(request_id, *(RequestProgressed(fraction=i / 50) for i in range(50)))
        async with asyncio.timeout(30):
            while len(seen) < 51:
                await asyncio.sleep(0.05)
        task.cancel()
        await client.close()
    assert seen == list(range(1, 52))


async def test_the_client_refuses_with_the_field(world: World) -> None:
    async with AsyncClient(world.gateway.address) as client:
        entries = client.log.read(EventFilter(types=("no.such",)))
        with pytest.raises(InvalidField) as caught:
            await anext(entries)
        assert caught.value.field == "filter.types"
