"""What can go wrong with a stack on this machine.

Each error keeps the plain constructor of FastVideoError, so that one that happened in the detached
supervisor is raised again, the same, in the command that started it.
"""

from collections.abc import Mapping

from fastvideo.errors import AlreadyExists, FailedPrecondition, FastVideoError, Unavailable


class StackRunning(AlreadyExists):
    """Another supervisor holds the data folder; attribute `pid` names it."""

    default_reason = "STACK_RUNNING"


class PortTaken(FailedPrecondition):
    """Somebody else listens on a port that the stack must have; attribute `port` names it."""

    default_reason = "PORT_TAKEN"


class DataUnreachable(FailedPrecondition):
    """The data folder cannot be used; `subject` is the folder at fault."""

    default_reason = "DATA_UNREACHABLE"


class DataDamaged(FailedPrecondition):
    """The data folder holds something that this stack cannot go on from."""

    default_reason = "DATA_DAMAGED"


class ServerMissing(FailedPrecondition):
    """The program of a server is not on this machine; `subject` names the server."""

    default_reason = "SERVER_MISSING"


class PartFailed(Unavailable):
    """A part did not start; `subject` names it, attributes `log` and `tail` say where and why."""

    default_reason = "PART_FAILED"


_KINDS: tuple[type[FastVideoError], ...] = (
    StackRunning,
    PortTaken,
    DataUnreachable,
    DataDamaged,
    ServerMissing,
    PartFailed,
)


def to_record(error: FastVideoError) -> dict[str, object]:
    """The error as plain JSON values."""
    return {
        "reason": error.reason,
        "message": error.message,
        "subject": error.subject,
        "attributes": dict(error.attributes),
    }


def from_record(record: Mapping[str, object]) -> FastVideoError:
    """The error that `to_record` wrote, of its own class where that is one of this module."""
    reason = str(record["reason"])
    kind = next((kind for kind in _KINDS if kind.default_reason == reason), FastVideoError)
    attributes = record.get("attributes")
    return kind(
        str(record["message"]),
        reason=reason,
        subject=str(record.get("subject", "")),
        attributes={str(k): str(v) for k, v in attributes.items()}
        if isinstance(attributes, Mapping)
        else {},
    )
