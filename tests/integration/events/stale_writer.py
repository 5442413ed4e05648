"""A writer under a lease, in a process of its own: told to append, line by line."""

import asyncio
import sys

from fastvideo.errors import FastVideoError
from fastvideo.events.postgres import PostgresEventStore
from tests.contract.event_store_cases import command


async def main(dsn: str) -> None:
    store = await PostgresEventStore.open(dsn)
    lease = await store.acquire_lease("shard", "writer", 1.0)
    assert lease is not None
    sys.stdout.write(f"{lease.epoch}\n")
    sys.stdout.flush()
    while await asyncio.to_thread(sys.stdin.readline):
        try:
            await store.append(command("s", fence=lease.fence))
            answer = "appended"
        except FastVideoError as error:
            answer = type(error).__name__
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
