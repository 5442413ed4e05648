from fastvideo.events.store import partition_of

PLACES = [6, 8, 6, 3, 0, 0, 7, 9]


def test_a_stream_keeps_its_partition_for_ever() -> None:
    assert [partition_of(f"request-req_{i}", 16) for i in range(8)] == PLACES


def test_streams_spread_over_partitions() -> None:
    places = [partition_of(f"request-req_{i}", 16) for i in range(1600)]
    assert set(places) == set(range(16))
    assert max(map(places.count, range(16))) < 150


def test_one_partition_takes_all() -> None:
    assert {partition_of(f"request-{i}", 1) for i in range(10)} == {0}
