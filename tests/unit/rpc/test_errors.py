"""FastVideoError to google.rpc.Status and back."""

from typing import Any

import grpc
import pytest
from google.rpc import code_pb2, error_details_pb2, status_pb2

from fastvideo import errors
from fastvideo.rpc.errors import DOMAIN, from_rpc_error, from_status, to_status

KINDS = [
    (errors.NotFound("no request req_1", subject="req_1"), code_pb2.NOT_FOUND),
    (errors.AlreadyExists("taken", subject="key-1"), code_pb2.ALREADY_EXISTS),
    (errors.FailedPrecondition("closed", subject="ses_1"), code_pb2.FAILED_PRECONDITION),
    (errors.CheckpointError("no such folder", subject="wan"), code_pb2.FAILED_PRECONDITION),
    (errors.Fenced("epoch 3 is over", attributes={"epoch": "4"}), code_pb2.FAILED_PRECONDITION),
    (errors.ResourceExhausted("too long", subject="queue"), code_pb2.RESOURCE_EXHAUSTED),
    (errors.Conflict("version 3", subject="request-1"), code_pb2.ABORTED),
    (errors.Cancelled("asked to", subject="req_1"), code_pb2.CANCELLED),
    (errors.DeadlineExceeded("late"), code_pb2.DEADLINE_EXCEEDED),
    (errors.Unavailable("the log does not answer", subject="postgres"), code_pb2.UNAVAILABLE),
]


def detail(status: status_pb2.Status, kind: Any) -> Any:
    """The one detail of a kind."""
    found = [slot for slot in status.details if slot.Is(kind.DESCRIPTOR)]
    assert len(found) == 1
    return kind.FromString(found[0].value)


@pytest.mark.parametrize(("error", "code"), KINDS, ids=lambda value: type(value).__name__)
def test_every_kind_survives_the_wire(error: errors.FastVideoError, code: int) -> None:
    status = to_status(error)
    assert status.code == code
    back = from_status(status_pb2.Status.FromString(status.SerializeToString()))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert (back.reason, back.subject, back.attributes) == (
        error.reason,
        error.subject,
        error.attributes,
    )


def test_an_invalid_field_is_a_bad_request_that_names_field_and_allowed_values() -> None:
    status = to_status(
        errors.InvalidField("sampling.size", "63x64", "multiples of 16", reason="BAD_SIZE")
    )
    assert status.code == code_pb2.INVALID_ARGUMENT
    violation = detail(status, error_details_pb2.BadRequest).field_violations[0]
    assert violation.field == "sampling.size"
    assert "'63x64'" in violation.description
    assert "multiples of 16" in violation.description
    info = detail(status, error_details_pb2.ErrorInfo)
    assert (info.reason, info.domain) == ("BAD_SIZE", DOMAIN)
    back = from_status(status)
    assert isinstance(back, errors.InvalidField)
    assert (back.field, back.subject, back.allowed) == (
        "sampling.size",
        "sampling.size",
        "multiples of 16",
    )
    assert str(back) == status.message
    assert back.reason == "BAD_SIZE"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("select * from secrets where dsn = 'x'"), "INTERNAL"),
        (errors.ContractViolation("loop kept a tensor"), "CONTRACT_VIOLATION"),
    ],
)
def test_what_the_caller_cannot_act_on_is_internal_and_leaks_nothing(
    error: Exception, reason: str
) -> None:
    status = to_status(error)
    assert status.code == code_pb2.INTERNAL
    assert str(error) not in str(status)
    assert detail(status, error_details_pb2.ErrorInfo).reason == reason


def test_a_damaged_log_is_told_with_its_place_and_without_its_words() -> None:
    error = errors.CorruptLog("gap at 7 in /var/lib/x", reason="WRONG_DIGEST", subject="evt_7")
    status = to_status(error)
    assert status.code == code_pb2.DATA_LOSS
    assert "/var" not in str(status)
    back = from_status(status)
    assert isinstance(back, errors.CorruptLog)
    assert (back.reason, "evt_7" in back.message) == ("WRONG_DIGEST", True)


def test_secrets_and_long_texts_stay_out_of_a_status() -> None:
    error = errors.Unavailable(
        "cannot reach postgresql://app:hunter2@db/fv " + "ü" * 20_000,
        subject="s" * 20_000,
        attributes={f"key{index}": "v" * 5_000 for index in range(100)} | {"password": "hunter2"},
    )
    status = to_status(error)
    assert "hunter2" not in str(status)
    # Base 64 in the trailers, beside the percent-encoded message, under 8 KiB in all.
    assert len(status.SerializeToString()) * 4 / 3 + len(status.message.encode()) * 3 < 8192


def test_a_limit_says_when_to_try_again() -> None:
    error = errors.ResourceExhausted(
        "10 requests a minute are allowed",
        reason="QUOTA_REQUESTS",
        subject="requests_per_minute",
        attributes={"retry_after_s": "7"},
    )
    status = to_status(error)
    assert detail(status, error_details_pb2.RetryInfo).retry_delay.seconds == 7
    assert from_status(status).attributes == {"retry_after_s": "7"}


def test_a_foreign_status_without_details_keeps_its_kind() -> None:
    back = from_status(status_pb2.Status(code=code_pb2.UNAVAILABLE, message="connection refused"))
    assert type(back) is errors.Unavailable
    assert back.reason == "UNAVAILABLE"


def test_a_malformed_detail_does_not_hide_the_error() -> None:
    status = to_status(errors.NotFound("gone", subject="req_1"))
    status.details[0].value = b"\xff\xff\xff"
    back = from_status(status)
    assert type(back) is errors.NotFound
    assert back.subject == "req_1"


@pytest.mark.parametrize(
    ("address", "told"), [("ipv4:10.0.0.1:5051", "10.0.0.1:5051"), ("ipv6:%5B::1%5D:1", "[::1]:1")]
)
def test_who_does_not_answer_is_named_in_our_words(address: str, told: str) -> None:
    words = f"failed to connect to all addresses; last error: UNKNOWN: {address}: "
    why = "Failed to connect to remote host: Connection refused"
    none = grpc.aio.Metadata()
    call = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, none, none, details=words + why)
    error = from_rpc_error(call)
    assert isinstance(error, errors.Unavailable)
    assert error.message == f"{told} does not answer (Connection refused)"
