"""Who writes a session waits for who writes it, and goes again when another was first."""

import asyncio

import pytest

from fastvideo.errors import Conflict, NotFound
from fastvideo.sessions.turns import SessionTurns


async def test_one_session_has_one_writer_at_a_time_and_others_have_theirs() -> None:
    turns = SessionTurns()
    writing: list[str] = []
    seen: list[list[str]] = []

    async def write(session_id: str) -> str:
        writing.append(session_id)
        await asyncio.sleep(0)
        seen.append(list(writing))
        writing.remove(session_id)
        return session_id

    async def take(session_id: str) -> str:
        return await turns.take(session_id, lambda: write(session_id))

    asked = ["a", "b"] * 5
    assert await asyncio.gather(*map(take, asked)) == asked
    assert max(at_once.count("a") for at_once in seen) == 1
    assert any({"a", "b"} <= set(at_once) for at_once in seen)


async def test_a_conflict_is_tried_again_and_other_errors_are_not() -> None:
    turns = SessionTurns()
    tries: list[int] = []

    async def contended() -> int:
        tries.append(1)
        if len(tries) < 4:
            raise Conflict("another was first")
        return len(tries)

    async def refused() -> int:
        tries.append(1)
        raise NotFound("no such session")

    assert await turns.take("a", contended) == 4
    tries.clear()
    with pytest.raises(NotFound):
        await turns.take("a", refused)
    assert len(tries) == 1
    # Nobody's failure keeps the next from its turn.
    tries[:] = [1, 1, 1]
    assert await turns.take("a", contended) == 4
