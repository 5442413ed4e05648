"""JSON Schemas of the authoring files, for editors."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ConfigDict, TypeAdapter

from fastvideo.deployment.authoring import (
    DeploymentDocument,
    LoopsDocument,
    ParallelDocument,
    ProgramsDocument,
    TrainingDocument,
)
from fastvideo.model.specs import ModelSpec

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

# What of a card is written in other files.
_ELSEWHERE: Final = ("loops", "caches", "parallelism")


def authoring_schemas() -> Mapping[str, dict[str, Any]]:
    """The schema of each file, by its name without the ending."""
    return {
        "model": _model(),
        "loops": _schema(LoopsDocument, "loops.yaml"),
        "parallel": _schema(ParallelDocument, "parallel.yaml"),
        "programs": _schema(ProgramsDocument, "programs.yaml"),
        "deployment": _schema(DeploymentDocument, "deployment.yaml"),
        "training": _schema(TrainingDocument, "training.yaml"),
    }


def _model() -> dict[str, Any]:
    schema = _schema(ModelSpec, "model.yaml")
    for name in _ELSEWHERE:
        del schema["properties"][name]
    schema["properties"]["base"] = {
        "type": "string",
        "description": "A card that this one differs from; what is left out is as there.",
    }
    # With a base everything may be left out.
    schema.pop("required", None)
    return schema


def _schema(cls: Any, title: str) -> dict[str, Any]:
    # A configuration reaches dataclasses only through a container.
    adapter = TypeAdapter(dict[str, cls], config=ConfigDict(extra="forbid"))
    whole = adapter.json_schema()
    definitions = whole.pop("$defs")
    own = definitions.pop(cls.__name__)
    return {"$schema": _DIALECT, **own, "title": title, "$defs": definitions}
