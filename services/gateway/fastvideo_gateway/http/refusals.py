"""Errors as answers, each in the words of the API that was called."""

from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from fastvideo.errors import FastVideoError, Unauthenticated
from fastvideo.telemetry import metrics
from fastvideo.telemetry.instruments import ERRORS, REASON, reason_label
from fastvideo.telemetry.logging import get_logger
from fastvideo_gateway.http.answers import INTERNAL, error_record, json_answer, status_of
from fastvideo_gateway.http.openai.errors import PREFIX, openai_answer
from fastvideo_gateway.http.views import ErrorRecord, Refused

_LOG: Final = get_logger(__name__)


def refusal(path: str, record: ErrorRecord, status: int) -> Response:
    """The answer of an error on a path."""
    metrics.counter(ERRORS).add(1, {REASON: reason_label(record.reason)})
    if path.startswith(PREFIX):
        return openai_answer(record, status)
    return json_answer(Refused(record), status)


async def typed_error(request: Request, error: Exception) -> Response:
    """The answer of a typed error."""
    assert isinstance(error, FastVideoError)
    status = status_of(error)
    if status == INTERNAL:
        _LOG.error("request failed", error=error.message, reason=error.reason, exc_info=error)
    answer = refusal(request.url.path, error_record(error), status)
    if isinstance(error, Unauthenticated):
        answer.headers["WWW-Authenticate"] = 'Bearer realm="fastvideo"'
    return answer


async def http_error(request: Request, error: Exception) -> Response:
    """The answer when there is no such path, or not by that method."""
    assert isinstance(error, HTTPException)
    reason = {404: "NO_SUCH_PATH", 405: "METHOD_NOT_ALLOWED"}.get(error.status_code, "REFUSED")
    record = ErrorRecord(reason, error.detail, "", {})
    answer = refusal(request.url.path, record, error.status_code)
    answer.headers.update(error.headers or {})
    return answer


async def unexpected_error(request: Request, error: Exception) -> Response:
    """The answer to a defect; the server's log has its stack."""
    hidden = FastVideoError(str(error))
    return refusal(request.url.path, error_record(hidden), INTERNAL)
