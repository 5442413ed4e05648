import pytest

from fastvideo.errors import Conflict, InvalidField
from fastvideo.events.batch import REPEATED, Batch
from fastvideo.events.records import AppendCommand, Fence, InboxMark, LogLimits, StreamAppend
from fastvideo.events.store import partition_of
from tests.contract.event_store_cases import command, new_event

LIMITS = LogLimits(
    events_per_append_max=10, payload_bytes_max=100, append_bytes_max=300, events_per_read_max=10
)


def batch(*commands: AppendCommand, partitions: int = 1) -> Batch:
    return Batch(commands, partitions, LIMITS)


def test_results_give_each_event_its_place() -> None:
    made = batch(command("a", 2), command("b", 1), command("a", 1))
    results = made.results(offset_bases=[101], version_bases=[10, 20])
    assert [[tuple(p) for p in result.positions] for result in results] == [
        [(0, 101, "a", 11), (0, 102, "a", 12)],
        [(0, 103, "b", 21)],
        [(0, 104, "a", 13)],
    ]


def test_partitions_are_taken_in_ascending_order() -> None:
    made = batch(*(command(f"s-{i}") for i in range(10)), partitions=4)
    assert made.partitions == sorted({partition_of(f"s-{i}", 4) for i in range(10)})
    assert sum(made.partition_counts) == 10


def test_locks_are_distinct_and_sorted() -> None:
    fences = [Fence("b", 1), Fence("a", 2), Fence("b", 1)]
    marks = [InboxMark("c", "2"), InboxMark("c", "1"), None]
    made = batch(
        *(
            command("s", fence=fence, idempotency_key=key, inbox=mark)
            for fence, key, mark in zip(fences, "zyx", marks, strict=True)
        )
    )
    assert made.fences == [("a", 2), ("b", 1)]
    assert [key for key, _ in made.keys] == ["x", "y", "z"]
    assert made.inbox == [InboxMark("c", "1"), InboxMark("c", "2")]


@pytest.mark.parametrize(
    ("expected", "before"),
    [([4, 5], 4), ([None, 5], 4), ([4, None], 4), ([None, None], None), ([0, None], 0)],
)
def test_expected_versions_of_one_stream_become_one(
    expected: list[int | None], before: int | None
) -> None:
    made = batch(*(command("s", 1, version) for version in expected))
    assert made.streams["s"].expected_version == before


@pytest.mark.parametrize("expected", [[4, 4], [4, 6], [None, 0]])
def test_expected_versions_that_contradict_each_other_conflict(
    expected: list[int | None],
) -> None:
    with pytest.raises(Conflict):
        batch(*(command("s", 1, version) for version in expected))


def test_a_key_or_mark_twice_is_a_repeat() -> None:
    mark = InboxMark("c", "1")
    for commands in (
        [command("a", idempotency_key="k"), command("b", idempotency_key="k")],
        [command("a", inbox=mark), command("b", inbox=mark)],
    ):
        with pytest.raises(Conflict) as caught:
            batch(*commands)
        assert caught.value.reason == REPEATED


def test_limits() -> None:
    twin = new_event()
    refused = {
        "events": [command("s", 11)],
        "event_id": [AppendCommand((StreamAppend("s", (twin, twin)),))],
        "payload": [AppendCommand((StreamAppend("s", (new_event(bytes(101)),)),))],
        "append": [
            AppendCommand((StreamAppend("s", tuple(new_event(bytes(99)) for _ in range(4))),))
        ],
    }
    for field, commands in refused.items():
        with pytest.raises(InvalidField) as caught:
            batch(*commands)
        assert caught.value.field == field
