"""The file of the scheduling policy: strict, and everything wrong is named."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from fastvideo.deployment.scheduling_policy import logged_policy, read_policy
from fastvideo.model.documents import InvalidDocument
from fastvideo.scheduling.policy import SchedulingPolicy, SloClass
from fastvideo.scheduling.work import UnitKind

DOCUMENT = Path(__file__).parents[3] / "docs" / "scheduling.md"


def written(folder: Path, text: str) -> Path:
    path = folder / "scheduling.yaml"
    path.write_text(text)
    return path


def test_what_is_left_out_is_as_it_is_by_default(tmp_path: Path) -> None:
    read = read_policy(written(tmp_path, "window_steps_max: 4\n"))
    assert read == SchedulingPolicy(window_steps_max=4)


def test_json_is_read_too(tmp_path: Path) -> None:
    read = read_policy(written(tmp_path, '{"kind_shares": {"ar_token": 1, "vae_tile": 2.5}}'))
    assert read.kind_shares == {UnitKind.AR_TOKEN: 1, UnitKind.VAE_TILE: 2.5}


def test_the_example_of_the_documentation_is_a_policy(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert example is not None
    read = read_policy(written(tmp_path, example[1]))
    assert read.slo_classes["interactive"] == SloClass(
        priority_min=5, target_seconds=2.0, reserved_places=4
    )
    assert set(yaml.safe_load(example[1])) <= {knob.name for knob in fields(SchedulingPolicy)}


def test_the_documentation_lists_every_knob_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", DOCUMENT.read_text(), re.MULTILINE))
    assert rows.keys() == {knob.name for knob in fields(SchedulingPolicy)}
    for name, shown in rows.items():
        value = getattr(SchedulingPolicy(), name)
        if isinstance(value, int | float):
            assert float(shown) == value, name


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("window_step_max: 4", "window_step_max"),
        ("slo_classes: {fast: {priority: 1}}", "slo_classes.fast.priority"),
        ("kind_shares: {tokens: 1}", "kind_shares"),
        ("window_steps_max: many", "window_steps_max"),
        ("window_steps_max: 0", "window_steps_max"),
        ("tenant_weights: {a: -1}", "tenant_weights.a"),
        ("cost_samples_max: 1.5", "cost_samples_max"),
        ("slo_classes: {fast: {target_seconds: -1}}", "slo_classes.fast"),
        ("- 1", "yaml"),
        ("a: [", "yaml"),
    ],
)
def test_whatever_is_wrong_is_named(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(InvalidDocument) as refused:
        read_policy(written(tmp_path, text))
    assert any(name.startswith(key) for name in refused.value.problems), refused.value.problems


def test_a_log_may_hold_a_policy_that_would_be_refused_today() -> None:
    logged = logged_policy(
        '{"resident_requests_max": 2, "worker_budget": {"gpu_bytes": 1},'
        ' "slo_classes": {"all": {"reserved_places": 2}}}',
        "the policy of epoch 1",
    )
    assert isinstance(logged, SchedulingPolicy)
    assert logged.slo_classes["all"] == SloClass(reserved_places=2)
    assert logged_policy('{"window_steps_max": 4}', "epoch") == SchedulingPolicy(window_steps_max=4)
    with pytest.raises(InvalidDocument, match="window_step_max"):
        logged_policy('{"window_step_max": 4}', "epoch")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidDocument, match=r"nowhere\.yaml"):
        read_policy(tmp_path / "nowhere.yaml")
