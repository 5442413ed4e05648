"""Messages on a pipe: four bytes of length, most significant first, then so many bytes."""

import struct
from typing import BinaryIO, Final

from fastvideo.errors import FastVideoError, ResourceExhausted

MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024
"""The most that one message takes."""

HEADER: Final = struct.Struct(">I")


class CutOff(FastVideoError):
    """A pipe ended within a message."""

    default_reason = "CUT_OFF"


def frame(message: bytes) -> bytes:
    """A message as it goes over the pipe. Raises ResourceExhausted for one that is too large."""
    check_size(len(message))
    return HEADER.pack(len(message)) + message


def check_size(size_bytes: int) -> None:
    """Raise ResourceExhausted for a message that is too large."""
    if size_bytes > MESSAGE_BYTES_MAX:
        raise ResourceExhausted(
            f"a message of {size_bytes} bytes; the most is {MESSAGE_BYTES_MAX}",
            subject="message_bytes",
        )


def read_message(stream: BinaryIO) -> bytes | None:
    """The next message; None when the pipe ends before one.

    Raises CutOff when it ends within one, ResourceExhausted for one that is too large.
    """
    header = stream.read(HEADER.size)
    if not header:
        return None
    if len(header) < HEADER.size:
        raise CutOff("the pipe ended within a length")
    (size,) = HEADER.unpack(header)
    check_size(size)
    message = stream.read(size)
    if len(message) < size:
        raise CutOff(f"the pipe ended after {len(message)} of {size} bytes")
    return message
