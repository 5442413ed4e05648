"""Exceptions as the typed errors that results and the log carry."""

from typing import Final

import torch

from fastvideo import errors
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


def error_of(detail: ErrorDetail) -> FastVideoError:
    """The exception of a typed error, of the kind that its reason names if one does."""
    if detail.reason == errors.InvalidField.default_reason:
        invalid = errors.InvalidField(detail.subject, None, detail.attributes.get("allowed", ""))
        # The message was made where the value was known.
        invalid.args, invalid.message = (detail.message,), detail.message
        return invalid
    kind = _KINDS.get(detail.reason, FastVideoError)
    return kind(
        detail.message,
        reason=detail.reason,
        subject=detail.subject,
        attributes=detail.attributes,
    )


_KINDS: Final[dict[str, type[FastVideoError]]] = {
    kind.default_reason: kind
    for kind in vars(errors).values()
    if isinstance(kind, type)
    and issubclass(kind, FastVideoError)
    and kind is not errors.InvalidField
}
