"""What leaves the log: a tenant's texts when they are erased, old ranges when they are archived."""

import asyncio
import gzip
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import nats
import pytest

from fastvideo.client import Client
from fastvideo.local.credentials import load_credentials
from fastvideo.local.folder import DataFolder
from fastvideo.local.servers import DATABASE, SUPERUSER, nats_url, postgres_dsn
from fastvideo.rpc.identity import DEFAULT_TENANT
from tests.e2e.stack import Stack, poll, running_stack
from tests.plugins.servers import postgres_programs

PROMPT = "zanzibarische otternparade auf dem fahrrad"
NEGATIVE = "verwackelte kuckucksuhren"
SECRETS = (PROMPT, NEGATIVE)
RANGE = 25


@pytest.fixture(scope="module")
def own_stack() -> Iterator[Stack]:
    """A stack whose ranges are small, and whose tenant is erased at the end."""
    environment = {"FASTVIDEO_EVENTS_PER_RANGE": str(RANGE)}
    with running_stack(environment=environment) as running:
        yield running


@dataclass(frozen=True)
class Written:
    """A request in a session, completed, before anything was erased."""

    request_id: str
    session_id: str
    watched: list[Any]


@pytest.fixture(scope="module")
def written(own_stack: Stack) -> Written:
    session_id = str(own_stack.run("session", "create", "--json").json["session_id"])
    record = own_stack.generate(
        PROMPT, "--negative", NEGATIVE, "--steps", "4", "--session", session_id
    )
    return Written(record["id"], session_id, own_stack.watch(record["id"]))


def dump(stack: Stack, *options: str) -> str:
    """Everything that is in the database, as pg_dump writes it."""
    done = subprocess.run(
        [str(postgres_programs() / "pg_dump"), "--inserts", *options, _superuser_dsn(stack)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def _superuser_dsn(stack: Stack) -> str:
    folder = DataFolder(stack.data)
    credentials = load_credentials(folder.credentials)
    assert credentials is not None
    port = json.loads(folder.ports.read_text())["postgres"]
    return postgres_dsn(SUPERUSER, credentials.postgres_superuser, port, DATABASE)


def holds(text: str, secret: str) -> bool:
    """Whether a dump has the secret, as text or in a bytea."""
    return secret in text or secret.encode().hex() in text


def everything_told(stack: Stack, written: Written) -> str:
    """What the gateway says of the request and of its session, by every way there is."""
    with Client(stack.gateway) as client:
        return str(
            (
                client.get(written.request_id),
                client.list().items,
                client.get_session(written.session_id),
                client.list_sessions().items,
                list(client.watch(written.request_id)),
                list(client.log.read_stream(f"request-{written.request_id}")),
            )
        )


def shown(stack: Stack, written: Written) -> list[Any]:
    """What `fastvideo log show` says of the request."""
    outcome = stack.run("log", "show", "--request", written.request_id, "--json")
    assert outcome.code == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


async def bus_messages(stack: Stack) -> list[bytes]:
    """All that is kept on the bus."""
    folder = DataFolder(stack.data)
    credentials = load_credentials(folder.credentials)
    assert credentials is not None
    port = json.loads(folder.ports.read_text())["nats"]
    connection = await nats.connect(nats_url(port, credentials))
    try:
        context = connection.jetstream()
        found = []
        for stream in await context.streams_info():
            assert stream.config.name is not None
            for sequence in range(stream.state.first_seq, stream.state.last_seq + 1):
                message = await context.get_msg(stream.config.name, sequence)
                found.append(message.data or b"")
        return found
    finally:
        await connection.close()


def test_what_a_tenant_writes_stands_nowhere_in_the_log_the_bus_or_the_logs(
    own_stack: Stack, written: Written
) -> None:
    async def payloads() -> list[bytes]:
        connection = await asyncpg.connect(own_stack.postgres_dsn)
        try:
            rows = await connection.fetch("SELECT payload, metadata FROM events")
            return [row["payload"] + row["metadata"] for row in rows]
        finally:
            await connection.close()

    def relayed() -> list[bytes] | None:
        messages = asyncio.run(bus_messages(own_stack))
        return messages if any(b"RequestCompleted" in one for one in messages) else None

    stored = asyncio.run(payloads())
    published = poll("the end is on the bus", relayed)
    assert len(stored) > RANGE
    assert any(written.request_id.encode() in message for message in published)
    for secret in SECRETS:
        assert not any(secret.encode() in one for one in (*stored, *published))
        for path in DataFolder(own_stack.data).logs.iterdir():
            data = path.read_bytes()
            assert secret.encode() not in (gzip.decompress(data) if path.suffix == ".gz" else data)
    # And whoever may read it does.
    assert all(secret in everything_told(own_stack, written) for secret in SECRETS)


def test_a_dump_of_the_truth_alone_has_nothing_that_a_tenant_wrote(
    own_stack: Stack, written: Written
) -> None:
    """docs/retention.md says how: without what is made of the log and with what is sealed."""
    whole = dump(own_stack)
    # What lists and their search read is in the clear while the tenant is here.
    assert any(holds(whole, secret) for secret in SECRETS)
    without = dump(
        own_stack,
        *(f"--exclude-schema={pattern}" for pattern in ("gateway*", "sessions*")),
        "--exclude-table-data=snapshots",
    )
    assert written.request_id in without
    assert not any(holds(without, secret) for secret in SECRETS)


def test_a_closed_range_is_archived_and_read_as_before(own_stack: Stack, written: Written) -> None:
    before = shown(own_stack, written)

    def archived() -> list[Any] | None:
        # Refused for as long as somebody has not read it.
        outcome = own_stack.run("log", "archive", "--before", "1000000", "--json")
        return list(outcome.json) if outcome.code == 0 else None

    records = poll("the log is archived", archived, 60.0)
    assert sum(record["events"] for record in records) >= RANGE
    assert own_stack.run("log", "archive", "--before", "1000000", "--json").json == []
    assert own_stack.watch(written.request_id) == written.watched
    assert shown(own_stack, written) == before
    verified = own_stack.run("log", "verify", "--json")
    assert verified.code == 0, verified.out + verified.err
    objects = [p for p in DataFolder(own_stack.data).archive.rglob("*") if p.is_file()]
    assert len(objects) >= len(records)
    assert not any(secret.encode() in p.read_bytes() for p in objects for secret in SECRETS)


def test_an_erased_tenant_keeps_its_history_and_loses_its_texts(
    own_stack: Stack, written: Written
) -> None:
    erased = own_stack.run(
        "log", "erase", "--tenant", DEFAULT_TENANT, "--reason", "asked to", "--yes", "--json"
    )
    assert erased.code == 0, erased.err
    assert len(erased.json["key_ids"]) == 1

    def gone() -> bool | None:
        told = everything_told(own_stack, written)
        assert written.request_id in told
        assert written.session_id in told
        return None if any(secret in told for secret in SECRETS) else True

    poll("every answer is without the texts", gone, 40.0)
    watched = own_stack.watch(written.request_id)
    assert [event["name"] for event in watched] == [event["name"] for event in written.watched]
    assert not any(secret in json.dumps(watched) for secret in SECRETS)
    for arguments in (
        ("log", "show", "--request", written.request_id, "--json"),
        ("replay", "state", written.request_id, "--json"),
        ("log", "verify", "--json"),
    ):
        outcome = own_stack.run(*arguments)
        assert outcome.code == 0, (arguments, outcome.out, outcome.err)
        assert not any(secret in outcome.out for secret in SECRETS)

    def clean() -> bool | None:
        return None if any(holds(dump(own_stack), secret) for secret in SECRETS) else True

    poll("no table has the texts", clean, 40.0)
    assert holds(dump(own_stack), written.request_id)

    again = own_stack.run(
        "log", "erase", "--tenant", DEFAULT_TENANT, "--reason", "asked to", "--yes", "--json"
    )
    assert again.json["repeated"] is True


def test_a_tenant_that_was_erased_goes_on(own_stack: Stack, tmp_path: Path) -> None:
    record = own_stack.generate("a red seven moving down", "--steps", "2")
    with Client(own_stack.gateway) as client:
        assert "a red seven moving down" in str(client.get(record["id"]))


def test_erasing_asks_first(own_stack: Stack) -> None:
    outcome = own_stack.run("log", "erase", "--tenant", "nobody", "--reason", "a test", stdin="n\n")
    assert outcome.code != 0
