"""What a leader saves beside the log: read back as it was, or refused."""

from datetime import UTC, datetime

import pytest

from fastvideo.errors import FailedPrecondition
from fastvideo.replay.saved_term import Acceptance, SavedTerm
from fastvideo.scheduling.core import SchedulerCore
from tests.unit.scheduling.world import Catalog, World


def term() -> SavedTerm:
    world = World()
    world.attach()
    for n in range(3):
        world.submit(f"r{n}")
    for _ in range(5):
        world.step()
    acceptances = tuple(
        Acceptance(
            request_id=f"r{n}",
            event_id=f"evt_{n}",
            partition=n,
            offset=10 * n,
            accepted_at=datetime(2026, 1, 1, 0, 0, n, 17, tzinfo=UTC),
            traceparent="00-1-2-01",
        )
        for n in range(3)
    )
    return SavedTerm(
        core=world.core.snapshot(), acceptances=acceptances, cursors={0: 5, 3: 70}, log_epoch=2
    )


def test_a_saved_term_is_read_back_as_it_was():
    saved = term()
    read = SavedTerm.decode(saved.encode())
    assert read.acceptances == saved.acceptances
    assert (read.cursors, read.log_epoch) == ({0: 5, 3: 70}, 2)
    assert SchedulerCore.restore(Catalog(), None, read.core).digest() == saved.core.digest()


@pytest.mark.parametrize("cut", [0, 4, 8, 60])
def test_what_is_damaged_is_refused(cut):
    data = term().encode()
    for damaged in (data[:cut], data[:cut] + b"?" * (len(data) - cut)):
        with pytest.raises(FailedPrecondition) as caught:
            SavedTerm.decode(damaged)
        assert caught.value.reason == "SNAPSHOT_UNREADABLE"
