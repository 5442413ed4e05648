"""The OpenAPI document: valid, whole, and true of the models that it is made from."""

import json
from pathlib import Path
from typing import Any

import pytest

from fastvideo_gateway.access.rules import ROUTES
from fastvideo_gateway.http.answers import to_json
from fastvideo_gateway.http.openapi.document import document
from fastvideo_gateway.http.openapi.table import OPERATIONS, PAGE

ROOT = Path(__file__).resolve().parents[4]
DOCUMENT: dict[str, Any] = json.loads(to_json(document()))


def operations() -> list[dict[str, Any]]:
    return [one for path in DOCUMENT["paths"].values() for one in path.values()]


def test_the_document_is_valid() -> None:
    validator = pytest.importorskip("openapi_spec_validator")
    validator.validate(DOCUMENT)


def test_the_committed_document_is_that_of_the_program() -> None:
    """Regenerate with `python -m fastvideo_gateway.http.openapi > docs/schemas/openapi.json`."""
    committed = json.loads((ROOT / "docs" / "schemas" / "openapi.json").read_text())
    assert {**committed, "info": None} == {**DOCUMENT, "info": None}


def test_every_route_is_in_the_document_or_for_people() -> None:
    assert set(OPERATIONS) | PAGE == set(ROUTES)
    assert not set(OPERATIONS) & PAGE
    assert len(operations()) == len(OPERATIONS)


def test_ids_are_unique_and_every_reference_leads_somewhere() -> None:
    ids = [one["operationId"] for one in operations()]
    assert len(ids) == len(set(ids))
    for one in operations():
        for answer in one["responses"].values():
            assert set(answer.get("links", ())) <= set(ids)
    assert document() is document()


@pytest.mark.parametrize("name", [name for name, one in OPERATIONS.items() if one.examples])
def test_examples_are_what_the_model_takes(name: str) -> None:
    operation = OPERATIONS[name]
    assert operation.body is not None
    for example in operation.examples.values():
        operation.body.model_validate_json(json.dumps(example), strict=True)


def test_who_may_call_is_said() -> None:
    paths = DOCUMENT["paths"]
    assert paths["/health/live"]["get"]["security"] == []
    assert paths["/v1/videos"]["post"]["security"] == [{"key": []}]
    assert "401" in paths["/v1/videos"]["post"]["responses"]
    assert "401" not in paths["/health/live"]["get"]["responses"]
    scheme = DOCUMENT["components"]["securitySchemes"]["key"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")


def test_a_form_has_a_file_and_nothing_null() -> None:
    content = DOCUMENT["paths"]["/v1/videos"]["post"]["requestBody"]["content"]
    assert set(content) == {"application/json", "multipart/form-data"}
    form = content["multipart/form-data"]["schema"]
    fields = DOCUMENT["components"]["schemas"]["VideoAsked"]["properties"]
    assert {name.partition("[")[0] for name in form["properties"]} == set(fields)
    assert {"expires_after[anchor]", "expires_after[seconds]"} < set(form["properties"])
    assert form["properties"]["input_reference"]["format"] == "binary"
    assert "null" not in json.dumps(form)
