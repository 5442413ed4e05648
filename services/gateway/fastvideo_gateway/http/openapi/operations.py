"""What the document says of a route."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
TEXT: Final = "text/plain"


@dataclass(frozen=True, slots=True)
class Header:
    """A header that a caller may send."""

    name: str
    says: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that is no refusal."""

    says: str
    # Media type to the type that it is made of; None for bytes and text that have none.
    contents: Mapping[str, Any] = field(default_factory=dict)
    # Names of headers to what they say.
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A method of a path."""

    operation_id: str
    tag: str
    says: str
    answers: Mapping[int, Answer]
    # The models of its query and of its JSON body.
    query: type[Any] | None = None
    body: type[Any] | None = None
    # Of a body that may come as a form: the field that is a file.
    form_file: str = ""
    examples: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    headers: tuple[Header, ...] = ()
    # Statuses of refusals beside those that every route of its kind has.
    refusals: tuple[int, ...] = ()
    # Operations that go on with the `id` of its answer, and the name of their parameter.
    next: Mapping[str, str] = field(default_factory=dict)


def told(kind: Any, says: str, **headers: str) -> Answer:
    """An answer of JSON; names of headers have underscores for dashes."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Answer(says, {JSON: kind}, named)


def streamed(says: str) -> Answer:
    """An answer of server-sent events."""
    return Answer(says, {EVENTS: None})


RESUMED: Final = Header(
    "Last-Event-ID",
    "The sequence number to go on behind.",
    {"type": "string", "pattern": "^[0-9]{0,18}$"},
)
FILE_HEADERS: Final = (
    Header("Range", "A single range of bytes.", {"type": "string", "examples": ["bytes=0-1023"]}),
    Header("If-Range", "The ETag that the range is of.", {"type": "string"}),
    Header("If-None-Match", "The ETag that the caller has.", {"type": "string"}),
)
FILE: Final[Mapping[str, None]] = {
    "video/mp4": None,
    "image/png": None,
    "image/jpeg": None,
    "image/webp": None,
    "application/octet-stream": None,
}
FILE_ANSWERS: Final[Mapping[int, Answer]] = {
    200: Answer("The file.", FILE, {"ETag": "Its SHA-256."}),
    206: Answer("The range of it.", FILE, {"Content-Range": "Which bytes, and of how many."}),
    304: Answer("The caller has it already."),
}
