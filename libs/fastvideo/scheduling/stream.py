"""The stream of a shard: its inputs and decisions, in the order in which they were taken."""

from typing import Final

STREAM_PREFIX: Final = "scheduler-"


def shard_stream(shard: str) -> str:
    """The stream of a shard's inputs and decisions; also the name of its lease."""
    return f"{STREAM_PREFIX}{shard}"
