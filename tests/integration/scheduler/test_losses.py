"""Workers, schedulers, Postgres and NATS die; requests do not."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from fastvideo.events.migrate import upgrade
from tests.integration.scheduler.conftest import LOSES_SOON, WAIT_S, Stage, staged, until
from tests.integration.scheduler.scripted_worker import MODEL, ScriptedWorker
from tests.plugins.servers import NatsServer, PostgresServer, free_port


@pytest.mark.row("EVT-04")
async def test_a_dead_worker_s_requests_restart_elsewhere(stage: Stage):
    scheduler = await stage.scheduler()
    first = await stage.worker("w1", scheduler)
    first.script.step_seconds = 0.01
    await stage.submit("r1", steps=1000)

    async def told() -> list[float]:
        history = await stage.history("r1")
        return [e.payload.fraction for e in history if e.type == "RequestProgressed"]

    # It is lost when it has come some way; whoever watches is never told less than that.
    async with asyncio.timeout(WAIT_S):
        while max(await told(), default=0.0) < 0.2:
            await asyncio.sleep(0.01)
    first.script.go.clear()
    second = await stage.worker("w2", scheduler)
    await first.die()
    done = await stage.ended("r1")
    assert done.type == "RequestCompleted"
    assert done.payload.metrics.attempts == 2
    assert {c.loop.attempt for _, c in second.prepared} == {2}
    fractions = await told()
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0


async def test_a_silent_worker_is_lost_although_its_stream_is_open(stage: Stage):
    scheduler = await stage.scheduler(**LOSES_SOON)
    first = await stage.worker("w1", scheduler)
    first.script.go.clear()
    await stage.submit("r1", steps=3)
    await until(lambda: first.batches)
    await stage.worker("w2", scheduler)
    first.script.silent = True
    first.script.go.set()
    assert (await stage.ended("r1")).payload.metrics.attempts == 2


async def test_a_worker_that_starts_anew_begins_with_nothing(stage: Stage):
    scheduler = await stage.scheduler()
    first = await stage.worker("w1", scheduler)
    first.script.go.clear()
    await stage.submit("r1", steps=3)
    await until(lambda: first.batches)
    await first.die()
    await stage.worker("w1", scheduler)
    assert (await stage.ended("r1")).payload.metrics.attempts == 2


async def test_a_second_process_under_a_living_worker_s_name_is_left_alone(stage: Stage):
    scheduler = await stage.scheduler()
    first = await stage.worker("w1", scheduler)
    first.script.step_seconds = 0.02
    second = ScriptedWorker("w1", [scheduler.address])
    await stage.stack.enter_async_context(second)
    await stage.submit("r1", steps=20)
    assert (await stage.ended("r1")).payload.metrics.attempts == 1
    assert not second.epochs
    await first.die()
    await until(lambda: second.epochs)


async def test_a_broken_stream_costs_no_loop(stage: Stage):
    scheduler = await stage.scheduler()
    worker = await stage.worker("w1", scheduler)
    worker.script.step_seconds = 0.01
    await stage.submit("r1", steps=30)
    for batches in (1, 10, 20):
        await until(lambda: len(worker.batches) >= batches)  # noqa: B023 - it is over at once
        worker.end_streams()
    metrics = (await stage.ended("r1")).payload.metrics
    assert (metrics.attempts, metrics.units) == (1, 1 + 30 + 3 + 1)
    assert len(worker.epochs) == 4
    assert len(worker.resumed) == 3
    types = [event.type for event in await stage.shard_events()]
    assert types.count("WorkerDetached") == types.count("WorkerReattached") == 3
    assert "WorkerLost" not in types


async def test_a_worker_that_kept_nothing_begins_anew(stage: Stage):
    scheduler = await stage.scheduler()
    worker = await stage.worker("w1", scheduler)
    worker.script.keeps = False
    worker.script.step_seconds = 0.01
    await stage.submit("r1", steps=10)
    await until(lambda: worker.batches)
    worker.end_streams()
    assert (await stage.ended("r1")).payload.metrics.attempts == 2
    assert len(worker.epochs) == 2


async def test_reports_are_acknowledged_once_they_are_in_the_log(stage: Stage):
    # With its heartbeats, a quarter of this apart.
    scheduler = await stage.scheduler(worker_timeout_s=2.0)
    worker = await stage.worker("w1", scheduler)
    await stage.submit("r1", steps=10)
    await stage.ended("r1")
    await until(lambda: worker.acknowledged == len(worker.outbox) > 0)


async def test_a_worker_that_beats_but_takes_no_command_is_lost(stage: Stage):
    scheduler = await stage.scheduler(**LOSES_SOON)
    first = await stage.worker("w1", scheduler)
    first.script.deaf = True
    first.script.keeps = False
    first.script.go.clear()
    await stage.submit("r1", steps=3)
    await until(lambda: first.batches)
    await stage.worker("w2", scheduler)
    assert (await stage.ended("r1")).payload.metrics.attempts == 2


async def test_a_worker_is_given_no_more_than_it_takes(stage: Stage):
    scheduler = await stage.scheduler()
    worker = ScriptedWorker("w1", [scheduler.address])
    worker.script.credits = 2
    worker.script.go.clear()
    await stage.stack.enter_async_context(worker)
    for n in range(6):
        await stage.submit(f"r{n}", steps=3)
    await until(lambda: worker.batches)
    await asyncio.sleep(0.1)
    assert len(worker.prepared) - len(worker.outbox) + len(worker.batches) <= 2
    worker.script.go.set()
    for n in range(6):
        assert (await stage.ended(f"r{n}")).type == "RequestCompleted"


async def test_too_many_losses_fail_the_request(stage: Stage):
    scheduler = await stage.scheduler(attempts_max=2)
    worker = await stage.worker("w1", scheduler)
    worker.script.keeps = False
    worker.script.go.clear()
    await stage.submit("r1")
    for losses in (1, 2):
        await until(lambda: len(worker.batches) == losses)  # noqa: B023 - it is over at once
        worker.end_streams()
    failed = (await stage.ended("r1")).payload
    assert failed.error.reason == "WORKER_LOST"
    assert failed.metrics.attempts == 2


async def test_a_standby_takes_over_and_no_loop_begins_again(stage: Stage):
    port = free_port()
    address = f"127.0.0.1:{port}"
    with scheduler_process(stage, port) as process:
        await until(lambda: listens(port))
        await stage.until_leads(address)
        standby = await stage.scheduler("scheduler-2")
        worker = ScriptedWorker("w1", [address, standby.address])
        await stage.stack.enter_async_context(worker)
        worker.script.step_seconds = 0.02
        await until(lambda: worker.epochs)
        status = await stage.status(standby)
        assert (status.leader, status.epoch) == (False, 0)
        for n in range(3):
            await stage.submit(f"r{n}", steps=40)
        for n in range(3):
            await stage.until_type(f"r{n}", "RequestStarted")
        process.send_signal(signal.SIGKILL)
        await stage.lease_ends()
        await until(lambda: len(worker.epochs) == 2)
        assert worker.epochs[1] > worker.epochs[0]
        for n in range(3):
            done = await stage.ended(f"r{n}")
            assert done.type == "RequestCompleted"
            metrics = done.payload.metrics
            assert (metrics.attempts, metrics.units) == (1, 1 + 40 + 3 + 1)
        elected = [e.payload for e in await stage.shard_events() if e.type == "LeaderElected"]
        assert [e.scheduler_id for e in elected] == ["scheduler-1", "scheduler-2"]
        assert [e.anew for e in elected] == [True, False]
        assert len(worker.resumed) == 1


async def test_a_scheduler_that_is_told_to_stop_gives_its_lease_back(stage: Stage):
    port = free_port()
    with scheduler_process(stage, port) as process:
        await until(lambda: listens(port))
        await until_elected(stage, 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    await stage.scheduler("scheduler-2")
    await until_elected(stage, 2)


async def test_a_cancel_that_came_while_nobody_led_is_obeyed(stage: Stage):
    await stage.submit("r1")
    await stage.submit("r2")
    await stage.cancel("r1")
    scheduler = await stage.scheduler()
    assert (await stage.ended("r1")).type == "RequestCancelled"
    await stage.worker("w1", scheduler)
    assert (await stage.ended("r2")).type == "RequestCompleted"


async def test_a_new_leader_reads_only_from_the_low_water_mark(stage: Stage):
    async with stage.scheduling() as scheduler:
        async with ScriptedWorker("w1", [scheduler.address]):
            for n in range(5):
                await stage.submit(f"r{n}", steps=2)
            for n in range(5):
                await stage.ended(f"r{n}")
        await stage.submit("open")
        leader = scheduler.shard.leader
        await until(lambda: leader.core.live_requests == 1)
        deadline = time.monotonic() + WAIT_S
        # A mark of before the others' ends may be saved first.
        while (accepted := await accepted_from_the_mark(stage)) != ["request-open"]:
            assert time.monotonic() < deadline, accepted
            await asyncio.sleep(0.05)


async def test_postgres_may_go_and_come_back(own_postgres: PostgresServer, nats_url: str):
    own_postgres.start()
    await asyncio.to_thread(lambda: asyncio.run(upgrade(own_postgres.dsn())))
    async with staged(own_postgres.dsn(), nats_url) as stage:
        scheduler = await stage.scheduler()
        worker = await stage.worker("w1", scheduler)
        worker.script.step_seconds = 0.02
        await stage.submit("r1", steps=60)
        await until(lambda: any("denoise" in b.unit_ids[0] for _, b in worker.batches))
        own_postgres.process.kill()
        await asyncio.sleep(0.5)
        await asyncio.to_thread(own_postgres.start)
        done = await stage.ended("r1")
        assert done.type == "RequestCompleted"
        await stage.submit("r2")
        assert (await stage.ended("r2")).type == "RequestCompleted"
        versions = [e.stream_version for e in await stage.history("r1")]
        assert versions == list(range(1, len(versions) + 1))


async def test_nats_may_be_away(postgres_dsn: str, own_nats: NatsServer):
    own_nats.start()
    async with staged(postgres_dsn, own_nats.url) as stage:
        scheduler = await stage.scheduler()
        await stage.worker("w1", scheduler)
        own_nats.process.kill()
        own_nats.wipe()
        await stage.submit("r1")
        assert (await stage.ended("r1")).type == "RequestCompleted"


# -- helpers -----------------------------------------------------------------------------


async def accepted_from_the_mark(stage: Stage) -> list[str]:
    """The streams of the requests that a new leader would read of."""
    marks = await stage.store.load_checkpoint("scheduler-0")
    read = await stage.store.read_partition(0, marks.get(0, 0), 1_000)
    return [event.stream_id for event in read if event.type == "RequestAccepted"]


@contextmanager
def scheduler_process(stage: Stage, port: int):
    """`python -m fastvideo_scheduler` as a process of its own."""
    environment = {
        **os.environ,
        "FASTVIDEO_LISTEN": f"127.0.0.1:{port}",
        "FASTVIDEO_SERVICE_ID": "scheduler-1",
        "FASTVIDEO_POSTGRES_DSN": stage.dsn,
        "FASTVIDEO_NATS_URL": stage.nats_url,
        "FASTVIDEO_MODELS": MODEL,
        "FASTVIDEO_LEASE_TTL_S": "60",
    }
    process = subprocess.Popen([sys.executable, "-m", "fastvideo_scheduler"], env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def until_elected(stage: Stage, times: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        events = await stage.shard_events()
        if [e.type for e in events].count("LeaderElected") >= times:
            return
        assert time.monotonic() < deadline, "nobody was elected"
        await asyncio.sleep(0.02)
