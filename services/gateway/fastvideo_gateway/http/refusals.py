"""Errors as answers, each in the words of the API that was called."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from fastvideo.errors import FastVideoError, Unauthenticated
from fastvideo.rpc.errors import RETRY_AFTER
from fastvideo.telemetry import metrics
from fastvideo.telemetry.instruments import ERRORS, REASON, reason_label
from fastvideo.telemetry.logging import get_logger
from fastvideo_gateway.http.answers import INTERNAL, error_record, json_answer, status_of
from fastvideo_gateway.http.openai.errors import PREFIX, openai_answer
from fastvideo_gateway.http.views import ErrorRecord, Refused

_LOG: Final = get_logger(__name__)

# What the gateway calls a parameter of a list, and what paths under /api call it.
_PARAMETERS: Final[Mapping[str, str]] = {
    "page_size": "limit",
    "page_token": "cursor",
    "filter.types": "type",
}


def refusal(path: str, record: ErrorRecord, status: int) -> Response:
    """The answer of an error on a path."""
    field = _PARAMETERS.get(record.field)
    if field is not None and not path.startswith(PREFIX):
        message = record.message.replace(record.field, field)
        record = replace(record, field=field, message=message)
    metrics.counter(ERRORS).add(1, {REASON: reason_label(record.reason)})
    openai = path.startswith(PREFIX)
    answer = openai_answer(record, status) if openai else json_answer(Refused(record), status)
    if retry_after := record.attributes.get(RETRY_AFTER, ""):
        answer.headers["Retry-After"] = retry_after
    return answer


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
    record = ErrorRecord("REFUSED", error.detail, "", {})
    headers = dict(error.headers or {})
    if error.status_code == 404:
        says = "there is no such path; /openapi.json has those that there are"
        record = ErrorRecord("NO_SUCH_PATH", says, "path", {})
    elif error.status_code == 405:
        # What is no route of its own is a file of the page.
        methods = ", ".join(sorted(_methods_of(request) or {"GET", "HEAD"}))
        headers["Allow"] = methods
        says = f"the method is {request.method[:20]}; allowed: {methods}"
        record = ErrorRecord("METHOD_NOT_ALLOWED", says, "method", {"allowed": methods})
    answer = refusal(request.url.path, record, error.status_code)
    answer.headers.update(headers)
    return answer


def _methods_of(request: Request) -> set[str]:
    """What a path can be asked with: several routes may have it, and each knows its own.

    Nothing for a file of the page.
    """
    routes = [one for one in request.app.routes if isinstance(one, Route)]
    matching = (one.path for one in routes if one.matches(request.scope)[0] is not Match.NONE)
    path = next(matching, None)
    return {method for one in routes if one.path == path for method in one.methods or ()}


async def unexpected_error(request: Request, error: Exception) -> Response:
    """The answer to a defect; the server's log has its stack."""
    hidden = FastVideoError(str(error))
    return refusal(request.url.path, error_record(hidden), INTERNAL)
