"""Messages on the pipe of a replay's process."""

import io

import pytest

from fastvideo.errors import ResourceExhausted
from fastvideo.replay.framing import MESSAGE_BYTES_MAX, CutOff, frame, read_message


def test_messages_come_as_they_were_written() -> None:
    messages = [b"first", b"", b"x" * 70_000]
    stream = io.BytesIO(b"".join(map(frame, messages)))
    assert [read_message(stream) for _ in messages] == messages
    assert read_message(stream) is None


@pytest.mark.parametrize("kept", [1, 3, 4, 7])
def test_a_pipe_that_ends_within_a_message_says_so(kept: int) -> None:
    with pytest.raises(CutOff):
        read_message(io.BytesIO(frame(b"message")[:kept]))


def test_a_message_that_is_too_large_is_refused_before_it_is_read() -> None:
    stream = io.BytesIO((MESSAGE_BYTES_MAX + 1).to_bytes(4, "big"))
    with pytest.raises(ResourceExhausted, match="most is"):
        read_message(stream)
