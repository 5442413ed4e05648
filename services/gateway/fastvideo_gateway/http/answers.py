"""Domain values as JSON, and typed errors as records."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import pydantic_core
from starlette.responses import Response

from fastvideo.artifacts.input_files import UPLOAD_TOO_LARGE
from fastvideo.errors import (
    AlreadyExists,
    Cancelled,
    Conflict,
    DeadlineExceeded,
    FailedPrecondition,
    FastVideoError,
    Gone,
    InvalidField,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from fastvideo.rpc.errors import from_status, to_status
from fastvideo_gateway.http.views import ErrorRecord

BODY_TOO_LARGE: Final = "BODY_TOO_LARGE"
BODY_TOO_SLOW: Final = "BODY_TOO_SLOW"

# As google.rpc maps its codes to HTTP.
_STATUSES: Final[tuple[tuple[type[FastVideoError], int], ...]] = (
    (InvalidField, 400),
    (Unauthenticated, 401),
    (PermissionDenied, 403),
    (NotFound, 404),
    (AlreadyExists, 409),
    (Gone, 410),
    (FailedPrecondition, 400),
    (ResourceExhausted, 429),
    (Conflict, 409),
    (Cancelled, 499),
    (DeadlineExceeded, 504),
    (Unavailable, 503),
)
# Those of a body that HTTP has a status of its own for.
_REASONS: Final[Mapping[str, int]] = MappingProxyType(
    {BODY_TOO_LARGE: 413, UPLOAD_TOO_LARGE: 413, BODY_TOO_SLOW: 408}
)
INTERNAL: Final = 500


def to_json(value: Any) -> bytes:
    """A dataclass, or what is made of such, with the field names of its message."""
    return pydantic_core.to_json(
        value, bytes_mode="base64", inf_nan_mode="strings", fallback=_plain
    )


def to_record(value: Any) -> Any:
    """As `to_json`, as dictionaries, lists and plain values."""
    return pydantic_core.to_jsonable_python(
        value, bytes_mode="base64", inf_nan_mode="strings", fallback=_plain
    )


def _plain(value: Any) -> Any:
    """Mappings that cannot be changed are mappings nevertheless."""
    return dict(value)


def json_answer(value: Any, status: int = 200) -> Response:
    """An answer that nobody keeps."""
    headers = {"Cache-Control": "no-store"}
    return Response(to_json(value), status, headers=headers, media_type="application/json")


def error_record(error: FastVideoError) -> ErrorRecord:
    """What a caller may see of an error; as over gRPC, without paths, queries and secrets."""
    seen = from_status(to_status(error))
    return ErrorRecord(seen.reason, seen.message, seen.subject, seen.attributes)


def status_of(error: FastVideoError) -> int:
    """The HTTP status of an error."""
    if error.reason in _REASONS:
        return _REASONS[error.reason]
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), INTERNAL)
