"""Builders for the contract of the event store."""

import secrets

from fastvideo.events.records import (
    AppendCommand,
    Fence,
    InboxMark,
    NewEvent,
    StreamAppend,
)


def new_event(payload: bytes = b"payload", type_: str = "ThingHappened") -> NewEvent:
    """An event with a fresh id."""
    return NewEvent(f"evt_{secrets.token_hex(8)}", type_, 1, payload, b"metadata")


def command(
    stream_id: str,
    count: int = 1,
    expected_version: int | None = None,
    *,
    fence: Fence | None = None,
    idempotency_key: str | None = None,
    result: bytes = b"",
    inbox: InboxMark | None = None,
) -> AppendCommand:
    """A command that appends `count` fresh events to one stream."""
    events = tuple(new_event(f"{stream_id}:{i}".encode()) for i in range(count))
    return AppendCommand(
        streams=(StreamAppend(stream_id, events, expected_version),),
        fence=fence,
        idempotency_key=idempotency_key,
        result=result,
        inbox=inbox,
    )
