"""The fence: newer epochs pass and count, older ones do not."""

import pytest

from fastvideo.errors import Fenced, InvalidField
from fastvideo_worker.fence import Fence


def test_only_a_newer_epoch_is_new() -> None:
    fence = Fence()
    assert [fence.check(epoch) for epoch in (1, 1, 3, 3)] == [True, False, True, False]
    assert fence.epoch == 3


def test_an_older_epoch_is_refused() -> None:
    fence = Fence()
    fence.check(3)
    with pytest.raises(Fenced) as caught:
        fence.check(2)
    assert caught.value.attributes == {"epoch": "3"}
    assert fence.epoch == 3


def test_an_epoch_that_no_election_gave_locks_nobody_out() -> None:
    fence = Fence()
    fence.check(7_000_000)
    with pytest.raises(InvalidField, match="epoch"):
        fence.check(2**63)
    assert fence.epoch == 7_000_000
    assert fence.check(7_000_001)
