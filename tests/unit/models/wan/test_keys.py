"""A batch key holds everything that must agree in a forward: each part alone changes it."""

from types import SimpleNamespace
from typing import Any

import pytest

from fastvideo.models.wan.keys import batch_key

INSTANCE = {
    "model_instance_id": "w1/moving-digits",
    "weights_version": "v1",
    "adapter_versions": {},
    "precision": "float32",
    "parallel_plan_hash": "",
}
WORK = {
    "loop_id": "denoise",
    "shape": "16x3x6x6",
    "text_length": 32,
    "branches": ("text", "none"),
    "sampler": "euler",
}
OTHERS = {
    "model_instance_id": "w2/moving-digits",
    "weights_version": "v2",
    "adapter_versions": {"style": "v1"},
    "precision": "bfloat16",
    "parallel_plan_hash": "tp2",
    "loop_id": "refine",
    "shape": "16x3x8x8",
    "text_length": 64,
    "branches": ("text",),
    "sampler": "unipc",
}


def key_of(**changes: Any) -> Any:
    instance = SimpleNamespace(**{k: changes.get(k, v) for k, v in INSTANCE.items()})
    work = {k: changes.get(k, v) for k, v in WORK.items()}
    return batch_key(instance, work.pop("loop_id"), **work)


def test_the_same_work_has_the_same_key() -> None:
    assert key_of() == key_of()


@pytest.mark.parametrize("field", OTHERS)
def test_work_that_differs_in_one_part_has_another_key(field: str) -> None:
    assert key_of(**{field: OTHERS[field]}) != key_of()
