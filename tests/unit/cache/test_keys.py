import subprocess
import sys
from dataclasses import fields, replace
from typing import Any

import pytest

from fastvideo.cache.keys import key_digest, text_hash
from fastvideo.model.caching import CacheKey

KEY = CacheKey(
    model_id="m",
    component_id="text_encoder",
    loop_id="encode",
    weights_version="w1",
    adapter_versions={"style": "1"},
    precision="float32",
    parallel_plan_hash="p",
    shape_signature="1x32",
    layout_signature="L,D",
    scheduler_signature="unipc",
    guidance_signature="cfg",
    seed=1,
    input_hashes={"text": text_hash("a red three")},
    step_index=0,
    cache_contract_version="1",
)
OTHERS: dict[str, Any] = {
    "model_id": "n",
    "component_id": "vae",
    "loop_id": None,
    "weights_version": "w2",
    "adapter_versions": {"style": "2"},
    "precision": "bfloat16",
    "parallel_plan_hash": "q",
    "shape_signature": "1x64",
    "layout_signature": "D,L",
    "scheduler_signature": None,
    "guidance_signature": "none",
    "seed": 2,
    "input_hashes": {"text": text_hash("a red four")},
    "step_index": None,
    "cache_contract_version": "2",
}


@pytest.mark.row("CCH-01")
def test_a_key_has_fifteen_fields() -> None:
    assert {field.name for field in fields(CacheKey)} == set(OTHERS)
    assert len(OTHERS) == 15


@pytest.mark.row("CCH-01")
@pytest.mark.parametrize("field", list(OTHERS))
def test_changing_any_one_field_gives_another_digest(field: str) -> None:
    assert key_digest(replace(KEY, **{field: OTHERS[field]})) != key_digest(KEY)


def test_fields_do_not_run_into_each_other() -> None:
    left = replace(KEY, model_id="ab", component_id="c")
    right = replace(KEY, model_id="a", component_id="bc")
    assert key_digest(left) != key_digest(right)
    assert key_digest(replace(KEY, seed=None)) != key_digest(replace(KEY, seed=0))


@pytest.mark.row("CCH-02")
@pytest.mark.parametrize("hash_seed", ["0", "1", "12345"])
def test_the_same_text_hashes_alike_in_every_process(hash_seed: str) -> None:
    code = (
        "from fastvideo.cache.keys import key_digest, text_hash;"
        "from fastvideo.model.caching import CacheKey;"
        f"print(text_hash('caf\\u00e9'), key_digest({KEY!r}))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": hash_seed, "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()
    assert told == [text_hash("café"), key_digest(KEY)]


def test_the_encoding_is_frozen() -> None:
    assert key_digest(CacheKey(model_id="m")) == GOLDEN


GOLDEN = "83abd7ebfb7846398266721295e82971a8e8128a5e23c9585cbcda1b6941620f"
