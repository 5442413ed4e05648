"""The whole stack through its commands: real Postgres, NATS and Redis, stand-in services."""

import asyncio
import json
import os
import shutil
import signal
import socket
from pathlib import Path

import asyncpg
import psutil
import pytest
import redis.asyncio

from tests.integration.local.conftest import Stack, wait_until
from tests.plugins.servers import free_port

_PARTS = [
    "supervisor",
    "postgres",
    "nats",
    "redis",
    "artifacts",
    "sessions",
    "scheduler-1",
    "worker-1",
    "gateway",
]


def passwords(stack: Stack) -> dict[str, str]:
    found: dict[str, str] = json.loads((stack.data / "credentials.json").read_text())
    return found


def database(stack: Stack) -> str:
    port = json.loads((stack.data / "ports.json").read_text())["postgres"]
    password = passwords(stack)["postgres_app"]
    return f"postgresql://fastvideo_app:{password}@127.0.0.1:{port}/fastvideo"


def execute(stack: Stack, statement: str) -> list[asyncpg.Record]:
    async def run() -> list[asyncpg.Record]:
        connection = await asyncpg.connect(database(stack))
        try:
            return list(await connection.fetch(statement))
        finally:
            await connection.close()

    return asyncio.run(run())


def remember(stack: Stack, key: str) -> None:
    execute(stack, f"INSERT INTO commands (idempotency_key, result) VALUES ('{key}', '')")


def remembered(stack: Stack) -> list[str]:
    rows = execute(stack, "SELECT idempotency_key FROM commands ORDER BY 1")
    return [row["idempotency_key"] for row in rows]


@pytest.mark.row("API-06")
def test_up_status_down_and_up_again_keeps_data_and_addresses(fresh_stack: Stack) -> None:
    stack = fresh_stack
    stack.up()
    first = stack.status_json()
    remember(stack, "kept")
    stack.down()

    assert first["running"]
    assert first["ready"]
    assert [part["name"] for part in first["parts"]] == _PARTS
    assert all(part["state"] == "ready" and part["rss_bytes"] > 0 for part in first["parts"])
    assert stack.run("status").returncode == 3
    assert not stack.status_json()["running"]

    stack.up()
    assert stack.run("status").returncode == 0
    assert remembered(stack) == ["kept"]
    assert stack.status().gateway == first["gateway"]
    assert stack.status().gateway_http == first["gateway_http"]


def test_down_without_a_stack_says_so(stack: Stack) -> None:
    done = stack.run("down")

    assert done.returncode == 0
    assert "no stack is running" in done.stdout


def test_a_second_up_names_the_running_pid(stack: Stack) -> None:
    stack.up()
    pid = stack.status().pid

    for second in (stack.run("up", "--detach"), stack.run("up")):
        assert second.returncode == 1
        assert f"pid {pid}" in second.stderr
    assert stack.status().pid == pid
    assert stack.status().ready


@pytest.mark.parametrize("name", ["postgres", "nats", "redis", "worker-1", "gateway"])
def test_a_killed_part_is_started_again(running: Stack, name: str) -> None:
    before = running.part(name)
    running.kill(name)

    wait_until(lambda: running.part(name).restarts > before.restarts, 60, f"{name} is missed")
    running.wait_ready()
    after = running.part(name)
    assert after.pid != before.pid
    assert after.restarts == before.restarts + 1
    assert after.last_exit == "killed by SIGKILL"
    assert after.address == before.address


def test_kill_9_of_the_supervisor_leaves_no_orphan_and_the_next_up_works(stack: Stack) -> None:
    stack.up()
    remember(stack, "kept")
    family = stack.family()
    # A process that does not listen to gentle signals must not stay behind either.
    stack.kill("worker-1", signal.SIGSTOP)
    family[0].kill()

    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []
    assert stack.run("status").returncode == 3

    stack.up()
    assert remembered(stack) == ["kept"]


@pytest.mark.slow
def test_up_right_after_kill_9_waits_for_the_old_processes(stack: Stack) -> None:
    stack.up()
    stack.family()[0].kill()

    stack.up()

    assert stack.status().ready


@pytest.mark.slow
def test_a_stale_pid_file_of_postgres_does_not_stop_it(stack: Stack) -> None:
    stack.up()
    stack.down()
    # After a crash and a reboot, the old pid may be anybody's: here it is this test's.
    pid_file = stack.data / "postgres" / "data" / "postmaster.pid"
    pid_file.write_text(f"{os.getpid()}\n{pid_file.parent}\n1\n5432\n\n127.0.0.1\n 1 1\nready\n")

    stack.up()

    assert stack.status().ready


@pytest.mark.slow
def test_a_wiped_nats_folder_is_made_anew(stack: Stack) -> None:
    stack.up()
    stack.down()
    shutil.rmtree(stack.data / "nats")

    stack.up()

    assert stack.status().ready


@pytest.mark.parametrize(("flag", "name"), [("--grpc", "gateway"), ("--http", "gateway-http")])
def test_a_taken_port_is_named(stack: Stack, flag: str, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = stack.run("up", "--detach", flag, str(port))

    assert done.returncode == 1
    assert f"port {port} ({name}) is taken by" in done.stderr
    assert f"pid {os.getpid()}" in done.stderr
    assert stack.run("status").returncode == 3


@pytest.mark.slow
def test_a_given_port_is_used_and_remembered(stack: Stack) -> None:
    port = free_port()
    stack.up("--grpc", str(port))
    given = stack.status().gateway
    stack.down()
    stack.up()

    assert given == stack.status().gateway == f"127.0.0.1:{port}"


@pytest.mark.slow
def test_an_inner_port_that_was_taken_meanwhile_is_replaced(stack: Stack) -> None:
    stack.up()
    stack.down()
    port = json.loads((stack.data / "ports.json").read_text())["nats"]

    with socket.create_server(("127.0.0.1", port)):
        stack.up()

    assert stack.part("nats").address != f"127.0.0.1:{port}"


def test_a_part_that_does_not_start_is_shown_with_its_last_lines(stack: Stack) -> None:
    done = stack.run("up", "--detach", STAND_IN_FAILS="sessions")

    assert done.returncode == 1
    assert "sessions did not start: exited with 7" in done.stderr
    assert "this part was told to fail" in done.stderr
    assert str(stack.data / "logs" / "sessions.log") in done.stderr
    assert stack.run("status").returncode == 3
    # Nothing stays behind: the folder is free for a start that works.
    stack.up()


def test_foreground_up_prints_addresses_and_ends_on_ctrl_c(stack: Stack) -> None:
    process = stack.foreground()
    try:
        assert process.stdout is not None
        printed = [process.stdout.readline() for _ in range(4)]
        family = stack.family()
        gateway = stack.status().gateway
        process.send_signal(signal.SIGINT)

        assert process.wait(30) == 0
        assert f"  gRPC  {gateway}\n" in printed
        _, alive = psutil.wait_procs(family, timeout=30)
        assert alive == []
        assert stack.run("status").returncode == 3
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_workers_and_schedulers_in_numbers(stack: Stack) -> None:
    stack.up("--workers", "2", "--schedulers", "2")

    names = [part.name for part in stack.status().parts]
    assert names[-5:] == ["scheduler-1", "scheduler-2", "worker-1", "worker-2", "gateway"]
    both = stack.run("logs", "worker").stdout
    assert "worker-1: worker-1 listens" in both
    assert "worker-2: worker-2 listens" in both


def test_logs_of_a_part_and_an_unknown_one(running: Stack) -> None:
    shown = running.run("logs", "gateway")
    unknown = running.run("logs", "gatway")

    assert "gateway listens" in shown.stdout
    assert unknown.returncode == 1
    assert "SERVICE is 'gatway'" in unknown.stderr
    assert "gateway" in unknown.stderr


def test_passwords_are_in_no_log_state_or_command_line(running: Stack) -> None:
    secrets = passwords(running).values()
    lines = running.of_family(lambda process: " ".join(process.cmdline()))
    files = [*(running.data / "logs").iterdir(), running.data / "stack.json"]
    seen = "\n".join([*lines, *(file.read_text() for file in files)])

    assert not [secret for secret in secrets if secret in seen]


def test_files_with_secrets_are_private(running: Stack) -> None:
    for name in ("credentials.json", "stack.json", "config/nats.conf", "config/redis.conf"):
        assert (running.data / name).stat().st_mode & 0o777 == 0o600


async def test_servers_ask_for_a_password(running: Stack) -> None:
    ports = json.loads((running.data / "ports.json").read_text())

    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(database(running).replace(passwords(running)["postgres_app"], "no"))
    reader, writer = await asyncio.open_connection("127.0.0.1", ports["nats"])
    writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
    assert b"-ERR 'Authorization Violation'" in await reader.read()
    writer.close()
    async with redis.asyncio.Redis(port=ports["redis"]) as client:
        with pytest.raises(redis.asyncio.AuthenticationError):
            await client.ping()


def test_everything_listens_on_loopback_alone(running: Stack) -> None:
    listening = {
        connection.laddr.ip.removeprefix("::ffff:")
        for connections in running.of_family(lambda process: process.net_connections("inet"))
        for connection in connections
        if connection.status == psutil.CONN_LISTEN
    }

    assert listening == {"127.0.0.1"}


def test_the_application_may_not_change_an_event(running: Stack) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        execute(running, "DELETE FROM events")


@pytest.mark.slow
def test_a_server_given_by_url_is_used(running: Stack, open_folder: Path) -> None:
    ports = json.loads((running.data / "ports.json").read_text())
    superuser = passwords(running)["postgres_superuser"]
    url = f"postgresql://postgres:{superuser}@127.0.0.1:{ports['postgres']}/fastvideo"
    other = Stack(open_folder / "data", environment={"FASTVIDEO_POSTGRES_URL": url})
    try:
        other.up()

        names = [part.name for part in other.status().parts]
        assert "postgres" not in names
        assert not (other.data / "postgres").exists()
    finally:
        other.destroy()
