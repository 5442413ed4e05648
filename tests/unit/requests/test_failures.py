"""Failures as data, and back."""

import pytest

from fastvideo.errors import ContractViolation, FastVideoError, InvalidField, NotFound, Unavailable
from fastvideo.requests.failures import error_detail, error_of


@pytest.mark.parametrize(
    "error",
    [
        InvalidField("size", "0x0", "16x16 to 256x256"),
        InvalidField("inputs[1].image", "60000x60000 pixels", "less", reason="INVALID_IMAGE"),
        NotFound("nowhere", subject="model_id", attributes={"allowed": "others"}),
        ContractViolation("broken", subject="loop", attributes={"allowed": "float32"}),
        Unavailable("away", subject="worker-1"),
    ],
)
def test_a_failure_is_told_as_what_it_was(error: FastVideoError) -> None:
    told = error_of(error_detail(error))
    assert type(told) is type(error)
    assert (told.message, told.reason, told.subject) == (error.message, error.reason, error.subject)
    assert told.attributes == error.attributes


def test_a_reason_that_nobody_knows_is_a_failure_of_ours() -> None:
    told = error_of(error_detail(FastVideoError("odd", reason="NON_FINITE")))
    assert (type(told), told.reason) == (FastVideoError, "NON_FINITE")
