"""Exceptions as the typed errors that results and the log carry."""

from typing import Final

import torch

from fastvideo.errors import FastVideoError
from fastvideo.requests.types import ErrorDetail

_MESSAGE_CHARACTERS_MAX: Final = 500


def error_detail(error: Exception) -> ErrorDetail:
    """What went wrong, as data; an unforeseen exception is INTERNAL and named by its type."""
    if isinstance(error, FastVideoError):
        return ErrorDetail(
            reason=error.reason,
            message=error.message[:_MESSAGE_CHARACTERS_MAX],
            subject=error.subject,
            attributes=error.attributes,
        )
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return ErrorDetail(reason="OUT_OF_MEMORY", message="the device ran out of memory")
    return ErrorDetail(
        reason="INTERNAL",
        message=f"{type(error).__name__}: {error}"[:_MESSAGE_CHARACTERS_MAX],
        attributes={"type": type(error).__qualname__},
    )
