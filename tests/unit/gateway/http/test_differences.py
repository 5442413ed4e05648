"""How two records differ."""

from fastvideo_gateway.http.differences import Difference, differences


def test_equal_records_do_not_differ() -> None:
    record = {"a": [1, {"b": None}], "c": {}}
    assert differences(record, record) == ()


def test_each_leaf_that_changed_is_named_by_its_path() -> None:
    before = {"status": "running", "artifacts": [], "spec": {"seed": 1}, "gone": 3}
    after = {"status": "completed", "artifacts": [{"digest": "d"}], "spec": {"seed": 1}}
    assert differences(before, after) == (
        Difference("status", "running", "completed"),
        Difference("artifacts.0.digest", None, "d"),
        Difference("artifacts", [], None),
        Difference("gone", 3, None),
    )
