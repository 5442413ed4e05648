"""The thread count: faster wins, but never at the price of other bits."""

import pytest

from fastvideo.engine.threads import ThreadMeasurement, choose_threads


@pytest.mark.parametrize(
    ("seconds", "digests", "chosen"),
    [
        ({1: 1.0, 2: 0.6}, {1: "a", 2: "a"}, 2),
        ({1: 1.0, 2: 0.6}, {1: "a", 2: "b"}, 1),
        ({1: 1.0, 2: 0.95}, {1: "a", 2: "a"}, 1),
        ({1: 0.4, 2: 1.2}, {1: "a", 2: "a"}, 1),
        ({1: 1.0, 2: 0.6, 8: 0.2}, {1: "a", 2: "a", 8: "a"}, 8),
    ],
)
def test_the_fastest_count_with_the_same_bits_is_chosen(
    seconds: dict[int, float], digests: dict[int, str], chosen: int
) -> None:
    def measure(threads: int) -> ThreadMeasurement:
        return ThreadMeasurement(threads=threads, seconds=seconds[threads], digest=digests[threads])

    found, measured = choose_threads(sorted(seconds), measure)
    assert found == chosen
    assert [one.threads for one in measured] == sorted(seconds)
