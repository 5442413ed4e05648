"""Small traces for unit tests."""

from typing import Any

from fastvideo.model.documents import parse
from fastvideo.simulation.reading import Scenario, scenario
from fastvideo.simulation.trace import Trace

SMALL: dict[str, Any] = {
    "duration_s": 2.0,
    "models": {
        "video": {
            "loops": {
                "denoise": {"units": "steps", "base_s": 0.02, "max_batch": 4, "guided": True},
                "write": {"kind": "artifact_write", "units": 1, "base_s": 0.005},
            },
            "program": {
                "denoise": {"loop": "denoise"},
                "write": {"loop": "write", "after": ["denoise"]},
            },
        }
    },
    "pools": {"gpu": {"count": 2, "models": ["video"]}},
    "classes": {
        "video": {
            "model": "video",
            "steps": [2, 3],
            "arrivals": [{"kind": "poisson", "per_s": 20}],
        }
    },
}


def small(**changes: Any) -> Scenario:
    """The small scenario with some of its parts replaced."""
    return scenario(parse(Trace, {**SMALL, **changes}, "small.yaml"), "small.yaml")
