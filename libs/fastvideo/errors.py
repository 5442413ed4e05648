"""The exceptions of FastVideo, one tree with typed attributes.

FastVideoError
├── InvalidField          bad input: names the field, the value and what is allowed
├── NotFound              the thing that an id names does not exist
├── AlreadyExists         an id or key is taken by something else
├── FailedPrecondition    right in form, impossible in this state
│   ├── CheckpointError   a checkpoint is absent, corrupt or of another shape
│   └── Gone              it was there, and will not be again: expired or deleted
├── ResourceExhausted     a limit was reached; names the resource
├── Conflict              a stream was at another version
├── Fenced                a newer epoch exists; the writer must stop
├── Cancelled             stopped at a declared boundary
├── DeadlineExceeded      the time allowed ran out
├── Unavailable           a part that is needed does not answer; try again
├── ContractViolation     code broke a declared contract
└── CorruptLog            the event log breaks its own rules

Domain errors know no transport: the gateway maps them to gRPC and HTTP.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import ClassVar, Final, Self

_NAME_CHARACTERS_MAX: Final = 100


def meant_name(given: str, names: Iterable[str]) -> str:
    """Which of the names was probably meant by one that there is not; empty when none was."""
    # To compare takes time with the length, and whoever gives a name may give any length.
    if len(given) > _NAME_CHARACTERS_MAX:
        return ""
    return next(iter(get_close_matches(given, list(names), 1)), "")


class FastVideoError(Exception):
    """Root of all errors: a stable upper-case reason, a message, and who is at fault."""

    default_reason: ClassVar[str] = "INTERNAL"

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        subject: str = "",
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.subject = subject
        self.attributes: dict[str, str] = dict(attributes or {})


class InvalidField(FastVideoError):
    """Input is wrong: `subject` names the field, `allowed` says what would be right."""

    default_reason = "INVALID_FIELD"

    def __init__(
        self, field: str, value: object, allowed: str, *, reason: str | None = None
    ) -> None:
        shown = repr(value)
        if len(shown) > 80:
            shown = f"{shown[:77]}..."
        super().__init__(
            f"{field} is {shown}; allowed: {allowed}",
            reason=reason,
            subject=field,
            attributes={"allowed": allowed},
        )
        self.field = field
        self.allowed = allowed

    @classmethod
    def unknown(cls, field: str, known: Iterable[str]) -> Self:
        """A name that nothing has, with the one that may have been meant and all that there are."""
        names = list(known)
        allowed = ", ".join(names) or "nothing"
        meant = meant_name(field.rpartition(".")[2], names)
        near = f"did you mean {meant}? " if meant else ""
        return cls.retold(
            f"{field} is not known; {near}allowed: {allowed}",
            field=field,
            attributes={"allowed": allowed},
            reason="UNKNOWN_FIELD",
        )

    @classmethod
    def retold(
        cls,
        message: str,
        *,
        field: str,
        attributes: Mapping[str, str],
        reason: str | None = None,
    ) -> Self:
        """An error that came from elsewhere, with the message made where the value was known."""
        error = cls(field, None, attributes.get("allowed", ""), reason=reason)
        error.args, error.message, error.attributes = (message,), message, dict(attributes)
        return error


class NotFound(FastVideoError):
    """The thing that an id names does not exist."""

    default_reason = "NOT_FOUND"


class AlreadyExists(FastVideoError):
    """An id or key is taken by something else."""

    default_reason = "ALREADY_EXISTS"


class FailedPrecondition(FastVideoError):
    """The request is right in form but impossible in this state."""

    default_reason = "FAILED_PRECONDITION"


class CheckpointError(FailedPrecondition):
    """A checkpoint is absent, corrupt or of another shape than its manifest says."""

    default_reason = "CHECKPOINT_INVALID"


class Gone(FailedPrecondition):
    """What an id names was there, and will not be again: it expired, or was deleted."""

    default_reason = "GONE"


class StaleWeights(FailedPrecondition):
    """A request must run on other weights than those that are there."""

    default_reason = "STALE_WEIGHTS"


class ResourceExhausted(FastVideoError):
    """A limit was reached; `subject` names the resource."""

    default_reason = "RESOURCE_EXHAUSTED"


class Unauthenticated(FastVideoError):
    """Nobody knows who calls."""

    default_reason = "UNAUTHENTICATED"


class PermissionDenied(FastVideoError):
    """The caller is known, and may not do this."""

    default_reason = "PERMISSION_DENIED"


class Conflict(FastVideoError):
    """A stream was at another version than the writer expected."""

    default_reason = "CONFLICT"


class Fenced(FastVideoError):
    """A newer epoch exists; the writer must stop."""

    default_reason = "FENCED"


class Cancelled(FastVideoError):
    """Stopped at a declared boundary because somebody asked for it."""

    default_reason = "CANCELLED"


class DeadlineExceeded(FastVideoError):
    """The time allowed ran out."""

    default_reason = "DEADLINE_EXCEEDED"


class Unavailable(FastVideoError):
    """A part that is needed does not answer; the call may be tried again."""

    default_reason = "UNAVAILABLE"


class ContractViolation(FastVideoError):
    """Code broke a contract that it declared."""

    default_reason = "CONTRACT_VIOLATION"


class CorruptLog(FastVideoError):
    """The event log breaks its own rules: a gap, a wrong hash, an unknown schema."""

    default_reason = "CORRUPT_LOG"
