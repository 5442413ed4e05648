"""FastVideoError on the wire: google.rpc.Status with the standard error details.

Every status has an ErrorInfo (the reason, the domain, the attributes). What names the subject
depends on the kind: BadRequest for a field, ResourceInfo for a thing, PreconditionFailure for
a state, QuotaFailure for a limit. A limit that says when to try again has RetryInfo too.
"""

import re
from collections.abc import Mapping
from typing import Final, TypeVar
from urllib.parse import unquote

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError, Message
from google.rpc import code_pb2, error_details_pb2, status_pb2

from fastvideo import errors
from fastvideo.rpc.handshakes import handshake_error
from fastvideo.telemetry.redaction import REDACTED, is_secret, redact_text

DOMAIN: Final = "fastvideo"
# A status travels in HTTP/2 trailers, which may hold 8 KiB: the message three times (once
# percent-encoded), the subject, the attributes, and a third more for base 64.
TEXT_BYTES_MAX: Final = 512
ATTRIBUTES_BYTES_MAX: Final = 1536
# Of a longer text only the start is looked at; far more than is shown, so that no secret is cut
# in two within what is.
_LOOKED_AT_CHARACTERS_MAX: Final = 16_384
RETRY_AFTER: Final = "retry_after_s"
"""The attribute with the whole seconds after which it may be tried again."""
DETAILS_KEY: Final = "grpc-status-details-bin"

# In gRPC's own words: "failed to connect to all addresses; last error: UNKNOWN:
# ipv4:127.0.0.1:1: Failed to connect to remote host: Connection refused", and "Received message
# larger than max (20 vs. 10)".
_NOBODY: Final = re.compile(r"last error: \w+: (?:ipv[46]:)?(\S+): (?:.*: )?(.+)$")
_TOO_LARGE: Final = re.compile(r"message larger than max \((\d+) vs\. (\d+)\)")

MessageT = TypeVar("MessageT", bound=Message)

_CODES: Final[tuple[tuple[type[errors.FastVideoError], int], ...]] = (
    (errors.InvalidField, code_pb2.INVALID_ARGUMENT),
    (errors.NotFound, code_pb2.NOT_FOUND),
    (errors.AlreadyExists, code_pb2.ALREADY_EXISTS),
    (errors.Fenced, code_pb2.FAILED_PRECONDITION),
    (errors.FailedPrecondition, code_pb2.FAILED_PRECONDITION),
    (errors.ResourceExhausted, code_pb2.RESOURCE_EXHAUSTED),
    (errors.Unauthenticated, code_pb2.UNAUTHENTICATED),
    (errors.PermissionDenied, code_pb2.PERMISSION_DENIED),
    (errors.Conflict, code_pb2.ABORTED),
    (errors.Cancelled, code_pb2.CANCELLED),
    (errors.DeadlineExceeded, code_pb2.DEADLINE_EXCEEDED),
    (errors.Unavailable, code_pb2.UNAVAILABLE),
    # Whoever asks can do nothing but say which event it is; the people who run it need that.
    (errors.CorruptLog, code_pb2.DATA_LOSS),
)
_CLASSES: Final[dict[int, type[errors.FastVideoError]]] = {
    code_pb2.NOT_FOUND: errors.NotFound,
    code_pb2.ALREADY_EXISTS: errors.AlreadyExists,
    code_pb2.FAILED_PRECONDITION: errors.FailedPrecondition,
    code_pb2.RESOURCE_EXHAUSTED: errors.ResourceExhausted,
    code_pb2.UNAUTHENTICATED: errors.Unauthenticated,
    code_pb2.PERMISSION_DENIED: errors.PermissionDenied,
    code_pb2.ABORTED: errors.Conflict,
    code_pb2.CANCELLED: errors.Cancelled,
    code_pb2.DEADLINE_EXCEEDED: errors.DeadlineExceeded,
    code_pb2.UNAVAILABLE: errors.Unavailable,
    code_pb2.DATA_LOSS: errors.CorruptLog,
}
_PRECONDITIONS: Final[dict[str, type[errors.FastVideoError]]] = {
    kind.default_reason: kind for kind in (errors.Fenced, errors.CheckpointError, errors.Gone)
}


def to_status(error: BaseException) -> status_pb2.Status:
    """The status that a caller may see.

    Anything that is not the caller's to act on is INTERNAL with a fixed message, so that no
    path, query or stack leaves the process.
    """
    code = _code(error)
    if code is None or not isinstance(error, errors.FastVideoError):
        reason = error.reason if isinstance(error, errors.FastVideoError) else "INTERNAL"
        return _status(
            code_pb2.INTERNAL,
            "internal error; the server's log says more",
            [error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN)],
        )
    if isinstance(error, errors.CorruptLog):
        # Where, and what to do; its own words may tell of files.
        where = f": {error.subject}" if error.subject else ""
        error = errors.CorruptLog(
            f"the event log is damaged ({error.reason}{where}); `fastvideo log verify` says where",
            reason=error.reason,
            subject=error.subject,
        )
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN)
    info.metadata.update(_bounded_attributes(error.attributes))
    details: list[Message] = [info]
    subject = _subject_detail(error, code)
    if subject is not None:
        details.append(subject)
    seconds = error.attributes.get(RETRY_AFTER, "")
    if seconds.isdecimal():
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.seconds = int(seconds)
        details.append(retry)
    return _status(code, _bounded(error.message), details)


def from_status(status: status_pb2.Status) -> errors.FastVideoError:
    """The typed error that a status tells of; a foreign status gives the kind of its code."""
    info = _detail(status, error_details_pb2.ErrorInfo())
    request = _detail(status, error_details_pb2.BadRequest())
    failure = _detail(status, error_details_pb2.PreconditionFailure())
    quota = _detail(status, error_details_pb2.QuotaFailure())
    subjects = [
        *(violation.field for violation in request.field_violations),
        *(violation.subject for violation in failure.violations),
        *(violation.subject for violation in quota.violations),
        _detail(status, error_details_pb2.ResourceInfo()).resource_name,
    ]
    subject = next(filter(None, subjects), "")
    reason = info.reason or None
    attributes = dict(info.metadata)
    if status.code == code_pb2.INVALID_ARGUMENT:
        return errors.InvalidField.retold(
            status.message, field=subject, attributes=attributes, reason=reason
        )
    kind = _CLASSES.get(status.code, errors.FastVideoError)
    for violation in failure.violations:
        kind = _PRECONDITIONS.get(violation.type, kind)
    return kind(status.message, reason=reason, subject=subject, attributes=attributes)


def from_rpc_error(error: grpc.RpcError) -> errors.FastVideoError:
    """The typed error behind a failed call, whether our server, gRPC or a proxy made it."""
    # A blocking call's error is its call, which knows the same.
    if not isinstance(error, grpc.aio.AioRpcError | grpc.Call):
        return errors.Unavailable(f"the call failed: {redact_text(str(error))}")
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY and isinstance(value, bytes):
            try:
                return from_status(status_pb2.Status.FromString(value))
            except DecodeError:
                break  # Not ours; the code below still says what kind it is.
    code: tuple[int, str] = error.code().value
    message = redact_text(error.details() or code[1])
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        known = handshake_error(message)
        if known is not None:
            return known
        if nobody := _NOBODY.search(message):
            address, why = unquote(nobody[1]), nobody[2]
            return errors.Unavailable(f"{address} does not answer ({why})", subject=address)
    known_limit = _TOO_LARGE.search(message)
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and known_limit:
        size, limit = known_limit.groups()
        return errors.ResourceExhausted(
            f"a message has at most {limit} bytes, and this one {size}",
            reason="MESSAGE_TOO_LARGE",
            subject="message",
            attributes={"limit_bytes": limit},
        )
    return from_status(status_pb2.Status(code=code[0], message=message))


def _detail(status: status_pb2.Status, empty: MessageT) -> MessageT:
    """The status's detail of that type, or the empty one when it is absent or malformed."""
    for detail in status.details:
        if detail.Is(empty.DESCRIPTOR):
            found = type(empty)()
            try:
                found.MergeFromString(detail.value)
            except DecodeError:
                return empty
            return found
    return empty


def _code(error: BaseException) -> int | None:
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return None


def _subject_detail(error: errors.FastVideoError, code: int) -> Message | None:
    message = _bounded(error.message)
    subject = _bounded(error.subject)
    detail: Message | None = None
    if isinstance(error, errors.InvalidField):
        request = error_details_pb2.BadRequest()
        request.field_violations.add(field=subject, description=message)
        detail = request
    elif code == code_pb2.FAILED_PRECONDITION:
        failure = error_details_pb2.PreconditionFailure()
        failure.violations.add(
            type=type(error).default_reason, subject=subject, description=message
        )
        detail = failure
    elif code == code_pb2.RESOURCE_EXHAUSTED and subject:
        quota = error_details_pb2.QuotaFailure()
        quota.violations.add(subject=subject, description=message)
        detail = quota
    elif subject:
        detail = error_details_pb2.ResourceInfo(resource_name=subject, description=message)
    return detail


def _status(code: int, message: str, details: list[Message]) -> status_pb2.Status:
    packed = []
    for detail in details:
        slot = any_pb2.Any()
        slot.Pack(detail)
        packed.append(slot)
    return status_pb2.Status(code=code, message=message, details=packed)


def _bounded_attributes(attributes: Mapping[str, str]) -> dict[str, str]:
    kept: dict[str, str] = {}
    room = ATTRIBUTES_BYTES_MAX
    for key, value in attributes.items():
        shown = REDACTED if is_secret(key) else _bounded(value)
        room -= len(key.encode()) + len(shown.encode())
        if room < 0:
            break
        kept[key] = shown
    return kept


def _bounded(text: str) -> str:
    encoded = redact_text(text[:_LOOKED_AT_CHARACTERS_MAX]).encode(errors="replace")
    if len(encoded) <= TEXT_BYTES_MAX:
        return encoded.decode()
    return f"{encoded[: TEXT_BYTES_MAX - 3].decode(errors='ignore')}..."
