"""Requests of sessions: what the session remembers joins their prompts, in the order of the log.

A session whose conditioning is its memory takes one request after another: the request and the
session's memory of it are one append, so that the next prompt has this one before it, whoever
asks and however soon. Other sessions learn of their requests from the log, later.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from fastvideo.deployment.catalog import Catalog
from fastvideo.events.records import AppendCommand, StreamAppend
from fastvideo.events.store import EventLog
from fastvideo.events.types import Event
from fastvideo.requests.inputs import PROMPT
from fastvideo.requests.types import InputPart, RequestSpec, TextPart
from fastvideo.sessions.commands import BeginRequest
from fastvideo.sessions.conditioning import Remembered, conditioning_texts, join_prompt, own_prompt
from fastvideo.sessions.reading import SessionAt, read_session
from fastvideo.sessions.recording import Cause, session_event
from fastvideo.sessions.state import begins_at_acceptance, check_takes, decide, stream_of
from fastvideo.sessions.turns import SessionTurns
from fastvideo_gateway.tokens import PromptLengths

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Turn:
    """A request as its session conditions it, and the session at that moment."""

    spec: RequestSpec
    found: SessionAt
    # The request and the session's memory of it are one append.
    remembers: bool

    def command(self, command: AppendCommand, accepted: Event) -> AppendCommand:
        """The append of the request, with the session's where it is one with it."""
        state = self.found.state
        if not self.remembers or state is None:
            return command
        spec, at = self.spec, accepted.metadata.occurred_at
        begin = BeginRequest(request_id=spec.request_id, prompt=own_prompt(spec), at=at)
        cause = Cause(spec.request_id, spec.program_id, spec.model_id, accepted.event_id)
        events = tuple(session_event(state, told, at, cause) for told in decide(state, begin))
        stream = StreamAppend(stream_of(state.session_id), events, self.found.version)
        return replace(command, streams=(*command.streams, stream))


class RequestTurns:
    """Gives requests of sessions their turns."""

    def __init__(self, log: EventLog, catalog: Catalog, lengths: PromptLengths) -> None:
        self._log = log
        self._catalog = catalog
        self._lengths = lengths
        self._turns = SessionTurns()

    async def take(self, spec: RequestSpec, accept: Callable[[Turn], Awaitable[T]]) -> T:
        """What `accept` makes of the request in its turn.

        Raises NotFound and FailedPrecondition when the session cannot take it, and Conflict when
        others keep writing the session.
        """
        turn = await self._turn(spec)
        if not turn.remembers:
            return await accept(turn)

        async def attempt() -> T:
            return await accept(await self._turn(spec))

        return await self._turns.take(spec.session_id, attempt)

    async def _turn(self, spec: RequestSpec) -> Turn:
        found = await read_session(self._log, spec.session_id)
        check_takes(found.state, spec.session_id, spec.tenant_id, spec.model_id)
        assert found.state is not None  # `check_takes` refuses none.
        remembered = conditioning_texts(found.state)
        if remembered:
            spec = await self._conditioned(spec, remembered)
        return Turn(spec, found, begins_at_acceptance(found.state))

    async def _conditioned(
        self, spec: RequestSpec, remembered: tuple[Remembered, ...]
    ) -> RequestSpec:
        fits = await self._lengths.fitting(self._catalog.get(spec.model_id))

        def joined(part: InputPart) -> InputPart:
            if isinstance(part, TextPart) and part.role == PROMPT:
                return join_prompt(part, remembered, fits)
            return part

        # Counting the tokens of a long memory takes a while.
        inputs = await asyncio.to_thread(lambda: tuple(map(joined, spec.inputs)))
        return replace(spec, inputs=inputs)
