"""The table as an OpenAPI 3.1 document."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode
from starlette.routing import compile_path

from fastvideo.rpc.identity import Access
from fastvideo.rpc.names import NAME_CHARACTERS_MAX
from fastvideo.version import program_version
from fastvideo_gateway.access.rules import ROUTES
from fastvideo_gateway.http.openai.errors import PREFIX
from fastvideo_gateway.http.openai.objects import Failed
from fastvideo_gateway.http.openapi.operations import JSON, Answer, Header, Operation
from fastvideo_gateway.http.openapi.table import OPERATIONS
from fastvideo_gateway.http.views import Refused

FORM: Final = "multipart/form-data"

_SCHEMAS: Final = "#/components/schemas/"
_ANSWERS: Final = "#/components/responses/"
_KEY: Final = "key"
_REFUSALS: Final[Mapping[int, str]] = {
    400: "Something is not as it must be; the error names it.",
    401: "No key was shown, or one that is not good.",
    403: "The key, or the page that asks, may not do this.",
    404: "There is no such thing, or it is another tenant's.",
    408: "The body did not come in time.",
    409: "Not possible as things stand.",
    410: "Its time is over, or it was deleted.",
    413: "The body is too large.",
    416: "The range is outside of the file.",
    421: "A stack on loopback answers to the names of loopback alone.",
    429: "A limit is reached; `Retry-After`, where it is known, says when to come again.",
    499: "It was cancelled meanwhile.",
    503: "A part that is needed does not answer; try again.",
    504: "It took too long.",
}
_OF_EVERY_ROUTE: Final = frozenset({400, 421, 429, 503, 504})
_OF_A_BODY: Final = frozenset({403, 408, 413})

Schemas = Mapping[tuple[str, JsonSchemaMode], dict[str, Any]]


@cache
def document() -> Mapping[str, Any]:
    """The document of the whole table; not to be changed."""
    schemas, definitions = _schemas()
    paths: dict[str, dict[str, Any]] = {}
    for name, operation in OPERATIONS.items():
        method, _, path = name.partition(" ")
        shown = re.sub(r":[a-z]+}", "}", path)
        one = _Described(path, operation, ROUTES[name], schemas, definitions).record()
        paths.setdefault(shown, {})[method.lower()] = one
    for schema in _queries(schemas):
        definitions.pop(schema, None)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "FastVideo",
            "version": program_version(),
            "description": "Video and image generation. Paths under /v1 are as OpenAI's API has "
            "them, with more parameters; those under /api are read by the page and may change "
            "with it.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(one.tag for one in OPERATIONS.values())],
        "paths": paths,
        "components": {
            "schemas": definitions,
            "responses": _refusals(schemas),
            "securitySchemes": {
                _KEY: {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key. A stack without keys listens on loopback and "
                    "lets everybody in.",
                }
            },
        },
    }


def _schemas() -> tuple[Schemas, dict[str, Any]]:
    """The schema of every type in the table, and what they refer to."""
    kinds: dict[tuple[str, JsonSchemaMode], Any] = {}
    for operation in OPERATIONS.values():
        for given in (operation.query, operation.body):
            if given is not None:
                kinds[_named(given), "validation"] = given
        for answer in operation.answers.values():
            for kind in answer.contents.values():
                if kind is not None:
                    kinds[_named(kind), "serialization"] = kind
    for kind in (Refused, Failed):
        kinds[_named(kind), "serialization"] = kind
    made, whole = TypeAdapter.json_schemas(
        [(name, mode, TypeAdapter(kind)) for (name, mode), kind in kinds.items()],
        ref_template=_SCHEMAS + "{model}",
    )
    return made, whole.get("$defs", {})


def _refusals(schemas: Schemas) -> dict[str, Any]:
    """Every refusal, in both shapes that errors have."""
    return {
        f"{kind.__name__}{status}": {
            "description": says,
            "content": {JSON: {"schema": schemas[_named(kind), "serialization"]}},
        }
        for kind in (Refused, Failed)
        for status, says in _REFUSALS.items()
    }


def _queries(schemas: Schemas) -> Iterator[str]:
    """Names of schemas that are spread out as parameters."""
    for operation in OPERATIONS.values():
        if operation.query is not None:
            schema = schemas[_named(operation.query), "validation"]
            yield schema.get("$ref", "").removeprefix(_SCHEMAS)


def _named(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


class _Described:
    """One operation on its way into the document."""

    def __init__(
        self,
        path: str,
        operation: Operation,
        access: Access,
        schemas: Schemas,
        definitions: Mapping[str, Any],
    ) -> None:
        self._path = path
        self._operation = operation
        self._access = access
        self._schemas = schemas
        self._definitions = definitions

    def record(self) -> dict[str, Any]:
        """What the document has of it."""
        operation = self._operation
        record: dict[str, Any] = {
            "operationId": operation.operation_id,
            "tags": [operation.tag],
            "summary": operation.says,
            "parameters": [*self._path_parameters(), *self._query_parameters(), *self._headers()],
            "responses": self._responses(),
            "security": [] if self._access is Access.PUBLIC else [{_KEY: []}],
        }
        if operation.body is not None:
            record["requestBody"] = {"required": True, "content": self._bodies(operation.body)}
        return record

    def _path_parameters(self) -> Iterator[dict[str, Any]]:
        _, _, converters = compile_path(self._path)
        for name, converter in converters.items():
            is_whole = converter.regex == "[0-9]+"
            text = {"type": "string", "minLength": 1, "maxLength": NAME_CHARACTERS_MAX}
            yield {
                "name": name,
                "in": "path",
                "required": True,
                "schema": {"type": "integer", "minimum": 0} if is_whole else text,
            }

    def _query_parameters(self) -> Iterator[dict[str, Any]]:
        if self._operation.query is None:
            return
        schema = self._resolved(self._schemas[_named(self._operation.query), "validation"])
        required = schema.get("required", ())
        for name, value in schema["properties"].items():
            one = {"name": name, "in": "query", "required": name in required}
            yield {**one, "schema": _without_null(value)}

    def _headers(self) -> Iterator[dict[str, Any]]:
        for header in self._operation.headers:
            yield _header(header)

    def _bodies(self, body: type[Any]) -> dict[str, Any]:
        schema = self._schemas[_named(body), "validation"]
        examples = {name: {"value": value} for name, value in self._operation.examples.items()}
        bodies: dict[str, Any] = {JSON: {"schema": schema}}
        if examples:
            bodies[JSON]["examples"] = examples
        file = self._operation.form_file
        if file:
            bodies[FORM] = {
                "schema": _form(self._resolved(schema), file, self._definitions),
                "encoding": {file: {"contentType": "image/png, image/jpeg, image/webp"}},
            }
        return bodies

    def _responses(self) -> dict[str, Any]:
        operation = self._operation
        answers = {
            str(status): self._answer(answer) for status, answer in operation.answers.items()
        }
        if operation.next:
            first = str(min(operation.answers))
            answers[first]["links"] = {
                name: {"operationId": name, "parameters": {parameter: "$response.body#/id"}}
                for name, parameter in operation.next.items()
            }
        kind = Failed if self._path.startswith(PREFIX) else Refused
        for status in self._refusals():
            answers.setdefault(str(status), {"$ref": f"{_ANSWERS}{kind.__name__}{status}"})
        return dict(sorted(answers.items()))

    def _refusals(self) -> frozenset[int]:
        refusals = _OF_EVERY_ROUTE | frozenset(self._operation.refusals)
        if self._access is not Access.PUBLIC:
            refusals |= {401}
        if self._access is Access.OPERATOR:
            refusals |= {403}
        # Also a method that takes no body is refused a large one.
        return refusals | _OF_A_BODY

    def _answer(self, answer: Answer) -> dict[str, Any]:
        record: dict[str, Any] = {"description": answer.says}
        if answer.contents:
            record["content"] = {
                media: {}
                if kind is None
                else {"schema": self._schemas[_named(kind), "serialization"]}
                for media, kind in answer.contents.items()
            }
        if answer.headers:
            record["headers"] = {
                name: {"description": says, "schema": {"type": "string"}}
                for name, says in answer.headers.items()
            }
        return record

    def _resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        reference = schema.get("$ref", "")
        found: dict[str, Any] = self._definitions[reference.removeprefix(_SCHEMAS)]
        return found


def _header(header: Header) -> dict[str, Any]:
    return {
        "name": header.name,
        "in": "header",
        "required": False,
        "description": header.says,
        "schema": dict(header.schema),
    }


def _form(schema: Mapping[str, Any], file: str, definitions: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a body as a form: flat, one field a file, and nothing null."""
    properties: dict[str, Any] = {}
    for name, value in schema["properties"].items():
        field = _without_null(value)
        inner = definitions.get(field.get("$ref", "").removeprefix(_SCHEMAS), {})
        for part, one in inner.get("properties", {}).items():
            properties[f"{name}[{part}]"] = _without_null(one)
        if "properties" not in inner:
            properties[name] = field
    parts = [name for name in properties if not name.startswith(f"{file}[")]
    return {
        "type": "object",
        "properties": {
            **{name: properties[name] for name in parts},
            file: {"type": "string", "format": "binary", "description": "The file."},
        },
        "required": schema.get("required", []),
        "additionalProperties": False,
    }


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema of what can be given as text, where there is no null: it is left out instead."""
    kept = dict(schema)
    if kept.get("default", ...) is None:
        del kept["default"]
    choices = [one for one in kept.get("anyOf", ()) if one != {"type": "null"}]
    if len(choices) == 1:
        del kept["anyOf"]
        return {**choices[0], **kept}
    if choices:
        kept["anyOf"] = choices
    return kept
