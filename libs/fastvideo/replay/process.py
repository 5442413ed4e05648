"""Replays of logged runs, each in a process of its own (`python -m fastvideo.recompute`)."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from fastvideo.api.replay.v1 import replay_pb2
from fastvideo.api.worker.v1 import worker_pb2
from fastvideo.errors import (
    DeadlineExceeded,
    FastVideoError,
    ResourceExhausted,
    Unavailable,
)
from fastvideo.replay.framing import HEADER, check_size, frame
from fastvideo.requests.failures import error_of
from fastvideo.requests.types import ErrorDetail
from fastvideo.rpc.tls import SYSTEM, ClientTls
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)

# The rest of what a process says is read and dropped.
_STDERR_LINES_MAX: Final = 200
_LINE_BYTES_MAX: Final = 64 * 1024
_KILLED_S_MAX: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayLimits:
    """The most that one replay takes."""

    seconds: float = 3600.0
    # Of all its answers together.
    answer_bytes: int = 256 * 1024 * 1024


def tls_options(tls: ClientTls | None) -> list[str]:
    """The part of the command that lets the process dial as whoever starts it does."""
    if tls is None:
        return []
    options = ["--tls-ca", str(tls.ca or SYSTEM), "--tls-peer-name", tls.name]
    if tls.certificate is not None:
        options += ["--tls-cert", str(tls.certificate), "--tls-key", str(tls.key)]
    return options


class Replays:
    """Runs one replay at a time; `close` leaves no process behind.

    `environment` is the process's; None is this one's. Secrets go there, never into the command.
    """

    def __init__(
        self,
        command: Sequence[str],
        limits: ReplayLimits | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command = tuple(command)
        self._environment = environment
        self._limits = limits or ReplayLimits()
        self._process: asyncio.subprocess.Process | None = None
        self._taken = False
        self._closed = False

    @property
    def is_busy(self) -> bool:
        """Whether a replay runs."""
        return self._taken

    async def run(
        self, request: worker_pb2.ReplayRequest
    ) -> AsyncGenerator[replay_pb2.ReplayResponse, None]:
        """What the process answers; it is gone once this generator is closed.

        Raises ResourceExhausted while another replay runs and for too much of an answer,
        DeadlineExceeded when it takes too long, Unavailable when the process dies or the worker
        stops, and what the replay itself raises.
        """
        if self._closed:
            raise Unavailable("this worker stops", reason="DRAINING")
        if self._taken:
            raise ResourceExhausted(
                "this worker runs a replay already; it runs one at a time",
                reason="REPLAY_RUNNING",
                subject="replays",
                attributes={"replays_max": "1"},
            )
        self._taken = True
        try:
            # The place is free when the process is gone, not before.
            async with aclosing(self._run(request)) as responses:
                async for response in responses:
                    yield response
        finally:
            self._taken = False

    async def close(self) -> None:
        """End the replay that runs, and take no other."""
        self._closed = True
        if self._process is not None:
            await _end(self._process)

    async def _run(
        self, request: worker_pb2.ReplayRequest
    ) -> AsyncGenerator[replay_pb2.ReplayResponse, None]:
        deadline_s = asyncio.get_running_loop().time() + self._limits.seconds
        pipe = asyncio.subprocess.PIPE
        message = frame(request.SerializeToString())
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            limit=_LINE_BYTES_MAX,
            env=self._environment,
        )
        self._process = process
        _LOG.info("replay started", pid=process.pid, kind=int(request.replay.kind))
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        said = asyncio.create_task(_gather(process.stderr))
        try:
            if self._closed:
                raise Unavailable("this worker stops", reason="DRAINING")
            with suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write(message)
                # It stays open: a process whose input ends knows that it is not wanted any more.
                async with self._until(deadline_s):
                    await process.stdin.drain()
            size = 0
            while True:
                async with self._until(deadline_s):
                    answer = await _next_answer(process.stdout)
                if answer is None:
                    break
                size += len(answer)
                if size > self._limits.answer_bytes:
                    raise ResourceExhausted(
                        f"the replay answers more than {self._limits.answer_bytes} bytes",
                        subject="answer_bytes",
                    )
                yield replay_pb2.ReplayResponse.FromString(answer)
            async with self._until(deadline_s):
                code = await process.wait()
            if code != 0:
                raise _error_of(code, await said, stopping=self._closed)
        finally:
            await _end(process)
            if self._process is process:
                self._process = None
            for line in await said:
                _LOG.info("replay said", pid=process.pid, line=line)
            _LOG.info("replay ended", pid=process.pid, code=process.returncode)

    @asynccontextmanager
    async def _until(self, deadline_s: float) -> AsyncIterator[None]:
        """Bound one wait; never around a yield, where it would cancel whoever reads."""
        try:
            async with asyncio.timeout_at(deadline_s):
                yield
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"the replay did not end within {self._limits.seconds:g} s", subject="replay"
            ) from error


async def _next_answer(stream: asyncio.StreamReader) -> bytes | None:
    """The next message; None when there are no more, also when one was cut off."""
    try:
        (size,) = HEADER.unpack(await stream.readexactly(HEADER.size))
        check_size(size)
        return await stream.readexactly(size)
    except asyncio.IncompleteReadError:
        return None


async def _gather(stream: asyncio.StreamReader) -> tuple[str, ...]:
    """The last lines of a process's standard error."""
    lines: list[str] = []
    while True:
        try:
            line = await stream.readline()
        except ValueError:
            # Longer than what is read at once; what follows of it is a line of its own.
            continue
        if not line:
            return tuple(lines)
        lines.append(line.decode(errors="replace").rstrip())
        del lines[:-_STDERR_LINES_MAX]


def _error_of(code: int, said: Sequence[str], *, stopping: bool) -> FastVideoError:
    """The error that a process ended with, or that it ended at all."""
    if stopping:
        return Unavailable("this worker stops", reason="DRAINING")
    with suppress(ValueError, TypeError, KeyError, IndexError):
        told: Any = json.loads(said[-1])
        if isinstance(told, Mapping):
            return error_of(ErrorDetail(**told["detail"]), told["kind"])
    return Unavailable(
        f"the replay's process ended with status {code}",
        reason="REPLAY_DIED",
        attributes={"status": str(code)},
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a process that runs, and wait until it is gone."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.kill()
    await asyncio.wait_for(process.wait(), _KILLED_S_MAX)
