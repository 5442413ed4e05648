"""How two records differ."""

from fastvideo_gateway.http.leaves import ChangedLeaf, changed_leaves


def test_equal_records_do_not_differ() -> None:
    record = {"a": [1, {"b": None}], "c": {}}
    assert changed_leaves(record, record) == ()


def test_each_leaf_that_changed_is_named_by_its_path() -> None:
    before = {"status": "running", "artifacts": [], "spec": {"seed": 1}, "gone": 3}
    after = {"status": "completed", "artifacts": [{"digest": "d"}], "spec": {"seed": 1}}
    assert changed_leaves(before, after) == (
        ChangedLeaf("status", "running", "completed"),
        ChangedLeaf("artifacts.0.digest", None, "d"),
        ChangedLeaf("artifacts", [], None),
        ChangedLeaf("gone", 3, None),
    )
