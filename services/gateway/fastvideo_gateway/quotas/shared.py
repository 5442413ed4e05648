"""The ledger in Redis, which all replicas keep together: what one lets in, all have counted."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from fastvideo.errors import InvalidField
from fastvideo.requests.tenants import TenantPolicy
from fastvideo_gateway.quotas import scripts
from fastvideo_gateway.quotas.types import (
    PENDING_MS,
    Accepted,
    Admission,
    Change,
    LedgerAway,
    LedgerLost,
    Quota,
    Spent,
)

# A submit waits so long at most, and once: until Redis is back nobody else asks it.
ANSWER_S_MAX: Final = 0.1
# Filling it is nobody's waiting.
FILL_S_MAX: Final = 5.0
CONNECTIONS_MAX: Final = 32


class RedisLedger:
    """A `Ledger`. Close it when it is done with.

    `now_ms` is for tests; without it the time is that of Redis, so that no replica's clock can
    empty the counters of all. Raises InvalidField for what is no URL of a Redis.
    """

    def __init__(self, url: str, log_epoch: int, now_ms: Callable[[], int] | None = None) -> None:
        self._prefix = f"{{fastvideo:quotas:{log_epoch}}}:"
        self._now_ms = now_ms
        # A connection that is taken away in a call is not tried a second time: the log fills in
        # what is missing, and a submit does not wait.
        try:
            pool: Any = redis.BlockingConnectionPool.from_url(
                url,
                max_connections=CONNECTIONS_MAX,
                timeout=ANSWER_S_MAX,
                socket_connect_timeout=FILL_S_MAX,
                socket_timeout=FILL_S_MAX,
                retry=Retry(NoBackoff(), 0),
            )
        except ValueError as error:
            # Without the value, which may hold a password.
            raise InvalidField("redis_url", "no such URL", "redis://HOST:PORT/DATABASE") from error
        self._client: Any = redis.Redis(connection_pool=pool, retry=Retry(NoBackoff(), 0))
        self._pool = pool
        self._begin = self._client.register_script(scripts.BEGIN)
        self._take_in = self._client.register_script(scripts.TAKE_IN)
        self._admit = self._client.register_script(scripts.ADMIT)
        self._withdraw = self._client.register_script(scripts.WITHDRAW)

    async def positions(self) -> Mapping[int, int]:
        async with _answering(ANSWER_S_MAX):
            found = await self._client.hgetall(self._prefix + "positions")
        return {int(partition): int(offset) for partition, offset in found.items()}

    async def begin(self, positions: Mapping[int, int], live: Sequence[Accepted]) -> None:
        places = [part for place in positions.items() for part in place]
        told = [(one.tenant_id, one.request_id, one.predicted_device_seconds) for one in live]
        arguments = [part for one in told for part in one]
        async with _answering(FILL_S_MAX):
            await self._begin(
                [self._prefix], [len(positions), self._prefix + "*", *places, *arguments]
            )

    async def take_in(
        self, partition: int, first: int, last: int, changes: Sequence[Change]
    ) -> None:
        told = [part for change in changes for part in _arguments(change)]
        async with _answering(FILL_S_MAX):
            answer = await self._take_in([self._prefix], [partition, first, last, *told])
        if answer != b"OK":
            raise LedgerLost

    async def set_filled(self) -> None:
        async with _answering(ANSWER_S_MAX):
            await self._client.set(self._prefix + "filled", 1)

    async def check(self) -> None:
        async with _answering(ANSWER_S_MAX):
            filled = await self._client.exists(self._prefix + "filled", self._prefix + "positions")
        if filled != 2:
            raise LedgerLost

    async def admit(self, asked: Admission, policy: TenantPolicy) -> Spent | None:
        arguments: list[str | int | float] = [
            asked.tenant_id,
            asked.request_id,
            asked.predicted_device_seconds,
            policy.requests_per_minute,
            policy.live_requests_max,
            policy.device_seconds_per_hour,
            PENDING_MS,
            "" if self._now_ms is None else self._now_ms(),
        ]
        async with _answering(ANSWER_S_MAX):
            word, retry_after_ms = await self._admit([self._prefix], arguments)
        if word == b"LOST":
            raise LedgerLost
        return None if word == b"OK" else Spent(Quota(word.decode()), int(retry_after_ms))

    async def withdraw(self, asked: Admission) -> None:
        async with _answering(ANSWER_S_MAX):
            await self._withdraw([self._prefix], [asked.tenant_id, asked.request_id])

    async def close(self) -> None:
        """Let go of the connections."""
        await self._client.aclose()
        await self._pool.disconnect()


def _arguments(change: Change) -> tuple[str | int | float, ...]:
    if isinstance(change, Accepted):
        kind, seconds = "accepted", change.predicted_device_seconds
    else:
        kind, seconds = "ended", change.device_seconds
    return kind, change.offset, change.tenant_id, change.request_id, change.at_ms, seconds


@asynccontextmanager
async def _answering(seconds_max: float) -> AsyncIterator[None]:
    """Raise LedgerAway for whatever keeps Redis from an answer in time."""
    try:
        async with asyncio.timeout(seconds_max):
            yield
    except (redis.RedisError, OSError, TimeoutError) as error:
        raise LedgerAway(f"{type(error).__name__}: {error}") from error
