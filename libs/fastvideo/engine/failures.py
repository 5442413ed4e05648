"""What may come out of a model, as the typed errors that results carry."""

import torch

from fastvideo.errors import FastVideoError
from fastvideo.requests.failures import error_detail
from fastvideo.requests.types import ErrorDetail


def failure_detail(error: Exception) -> ErrorDetail:
    """What went wrong, as data that users may see.

    Of an unforeseen exception they learn its type alone: its words, which may hold paths and
    values, are for the log of whoever caught it.
    """
    if isinstance(error, FastVideoError):
        return error_detail(error)
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return ErrorDetail(reason="OUT_OF_MEMORY", message="the device ran out of memory")
    return ErrorDetail(
        reason="INTERNAL",
        message=f"internal error ({type(error).__name__}); the log of the worker says more",
        attributes={"type": type(error).__qualname__},
    )
