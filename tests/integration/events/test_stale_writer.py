"""A writer that is stopped for longer than its lease, and goes on."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from fastvideo.events.postgres import PostgresEventStore
from tests.contract.event_store_cases import command
from tests.plugins.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]


async def test_a_paused_writer_s_append_is_refused_by_its_epoch(postgres_dsn: str) -> None:
    store = await PostgresEventStore.open(postgres_dsn)
    program = "tests.integration.events.stale_writer"
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(
            subprocess.Popen(  # noqa: ASYNC220 - it has begun when the call returns
                [sys.executable, "-m", program, postgres_dsn],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        # Else whatever fails here would wait for ever for one that is stopped.
        stack.callback(writer.kill)
        assert writer.stdin is not None
        assert writer.stdout is not None

        def ask() -> str:
            assert writer.stdin is not None
            assert writer.stdout is not None
            writer.stdin.write("append\n")
            writer.stdin.flush()
            return writer.stdout.readline().strip()

        epoch = int(await asyncio.to_thread(writer.stdout.readline))
        assert await asyncio.to_thread(ask) == "appended"
        writer.send_signal(signal.SIGSTOP)
        # It was told while it was stopped, and does it as soon as it goes on.
        writer.stdin.write("append\n")
        writer.stdin.flush()

        async def taken() -> bool:
            lease = await store.acquire_lease("shard", "other", 60.0)
            return lease is not None and lease.epoch == epoch + 1

        await eventually(taken, timeout_s=30.0, every_s=0.1)
        lease = await store.read_lease("shard")
        assert lease is not None
        await store.append(command("s", fence=lease.fence))
        writer.send_signal(signal.SIGCONT)
        assert (await asyncio.to_thread(writer.stdout.readline)).strip() == "Fenced"
        assert await asyncio.to_thread(ask) == "Fenced"
        writer.stdin.close()
        assert await asyncio.to_thread(writer.wait, 60) == 0
    assert [event.fence_epoch for event in await store.read_stream("s")] == [epoch, epoch + 1]
    await store.close()
