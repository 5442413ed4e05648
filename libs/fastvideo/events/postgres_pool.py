"""Connections to the event log's database, and what its errors mean."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from fastvideo.errors import AlreadyExists, Conflict, FailedPrecondition, Fenced, Unavailable
from fastvideo.events.batch import REPEATED
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)

APPLICATION_ROLE = "fastvideo_app"
"""The role of the store's sessions: it may not change or delete an event."""

_CONFLICT, _FENCED, _REPEATED = "FV001", "FV002", "FV003"
# A range of events that may not be dropped.
_KEPT = "FV005"

# The server went away, is starting or stopping, has no room, or the call took too long.
_UNAVAILABLE = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.LockNotAvailableError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)

# The role, a table or a function is missing.
NOT_MIGRATED = (
    asyncpg.InvalidParameterValueError,
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedFunctionError,
)

# Unused for so long, a connection is closed.
IDLE_S_MAX: Final = 300.0

Connection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"
OnConnect: TypeAlias = Callable[["asyncpg.Connection[asyncpg.Record]"], Coroutine[Any, Any, None]]


class PostgresPool:
    """A bounded pool whose connections act as the application role.

    It connects when first used, and again after the server was away. What Postgres itself says
    goes to the log of this process, never into an error, which may reach a user.
    """

    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]") -> None:
        self._pool = pool
        # Said in the log once an outage, however many calls fail.
        self._away = False

    @classmethod
    async def open(
        cls,
        dsn: str,
        *,
        connections_max: int = 8,
        call_timeout_s: float = 30.0,
        connect_timeout_s: float = 10.0,
        settings: Mapping[str, str] | None = None,
        on_connect: OnConnect | None = None,
    ) -> "PostgresPool":
        """A pool for a `postgresql://` URL. Nothing is connected yet.

        `settings` are those of a session, such as a search path; `on_connect` sees each new
        connection first, and then the pool keeps connections however long nobody uses them.
        """
        pool = asyncpg.create_pool(
            dsn,
            min_size=0,
            max_size=connections_max,
            command_timeout=call_timeout_s,
            timeout=connect_timeout_s,
            reset=_keep_session,
            init=on_connect,
            max_inactive_connection_lifetime=0.0 if on_connect else IDLE_S_MAX,
            server_settings={
                "role": APPLICATION_ROLE,
                "application_name": "fastvideo-events",
                # Every statement is an index look-up whose plan never changes.
                "plan_cache_mode": "force_generic_plan",
                "jit": "off",
                "statement_timeout": str(int(call_timeout_s * 1000)),
                **(settings or {}),
            },
        )
        await pool
        return cls(pool)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection. Errors of the database inside come out as errors of the log."""
        try:
            # No time-out of its own, which would cost a task an append: whoever has a
            # connection is bound by the time-out of calls, and connecting by its own.
            async with self._pool.acquire() as connection:
                yield connection
        except _UNAVAILABLE as error:
            self._tell_away(error)
            is_full = isinstance(error, asyncpg.DiskFullError)
            why = "has no room left on its disk" if is_full else "does not answer"
            raise Unavailable(f"the event log's database {why}", subject="postgres") from error
        except asyncpg.PostgresError as error:
            meaning = _meaning(error)
            if meaning is None:
                raise
            raise meaning from error
        else:
            self._away = False

    def _tell_away(self, error: BaseException) -> None:
        if not self._away:
            _LOG.warning("the database is away", error=str(error) or type(error).__name__)
        self._away = True

    async def close(self) -> None:
        """Close all connections, at the latest after five seconds."""
        try:
            async with asyncio.timeout(5.0):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()


async def _keep_session(_connection: object) -> None:
    """Sessions hold no state between calls, so there is nothing to reset."""


def _meaning(
    error: asyncpg.PostgresError,
) -> AlreadyExists | Conflict | FailedPrecondition | Fenced | None:
    if error.sqlstate == _CONFLICT:
        return Conflict(
            str(error.args[0]),
            subject=error.detail or "",
            attributes={"version": error.hint or ""},
        )
    if error.sqlstate == _FENCED:
        return Fenced(str(error.args[0]), subject=error.detail or "")
    if error.sqlstate == _REPEATED:
        return Conflict(str(error.args[0]), reason=REPEATED)
    if error.sqlstate == _KEPT:
        return FailedPrecondition(str(error.args[0]), reason="RANGE_KEPT")
    if isinstance(error, asyncpg.UniqueViolationError):
        return AlreadyExists("it is in the log already", subject=error.constraint_name or "")
    if isinstance(error, NOT_MIGRATED):
        return FailedPrecondition("the event log's database is not migrated", reason="SCHEMA")
    return None
