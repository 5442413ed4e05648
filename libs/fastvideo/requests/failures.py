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
_BY_NAME: Final = {kind.__name__: kind for kind in _KINDS.values()}


def error_detail(error: FastVideoError) -> ErrorDetail:
    """What went wrong, as data."""
    return ErrorDetail(
        reason=error.reason,
        message=error.message[:_MESSAGE_CHARACTERS_MAX],
        subject=error.subject,
        attributes=error.attributes,
    )


def error_of(detail: ErrorDetail, kind_name: str = "") -> FastVideoError:
    """The exception of a failure: of the named kind, else of the one that its reason names."""
    kind = _BY_NAME.get(kind_name) or _KINDS.get(detail.reason)
    is_input = InvalidField.__name__ == kind_name or detail.reason == InvalidField.default_reason
    # A reason that no kind has by default, and what is allowed: input that is wrong in its own way.
    if is_input or (kind is None and "allowed" in detail.attributes):
        return InvalidField.retold(
            detail.message,
            field=detail.subject,
            attributes=detail.attributes,
            reason=detail.reason or None,
        )
    return (kind or FastVideoError)(
        detail.message,
        reason=detail.reason,
        subject=detail.subject,
        attributes=detail.attributes,
    )
