"""Typed errors as data and back: what the log and results carry of a failure."""

from typing import Final

from fastvideo import errors
from fastvideo.errors import FastVideoError, InvalidField
from fastvideo.requests.types import ErrorDetail

_MESSAGE_CHARACTERS_MAX: Final = 500

_KINDS: Final[dict[str, type[FastVideoError]]] = {
    kind.default_reason: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, FastVideoError) and kind is not InvalidField
}


def error_detail(error: FastVideoError) -> ErrorDetail:
    """What went wrong, as data."""
    return ErrorDetail(
        reason=error.reason,
        message=error.message[:_MESSAGE_CHARACTERS_MAX],
        subject=error.subject,
        attributes=error.attributes,
    )


def error_of(detail: ErrorDetail) -> FastVideoError:
    """The exception of a failure, of the kind that its reason names if one does."""
    if detail.reason == InvalidField.default_reason:
        return InvalidField.retold(
            detail.message, field=detail.subject, attributes=detail.attributes
        )
    kind = _KINDS.get(detail.reason, FastVideoError)
    return kind(
        detail.message,
        reason=detail.reason,
        subject=detail.subject,
        attributes=detail.attributes,
    )
