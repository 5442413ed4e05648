"""What is on its way out or in is counted while it is, and only then."""

from multiprocessing.shared_memory import SharedMemory

import pytest

from fastvideo.memory.pools import MemoryPools, MemoryTag, OutOfMemory
from fastvideo.memory.staging import StagingArea


@pytest.fixture
def area() -> StagingArea:
    budgets = dict.fromkeys(MemoryTag, 0) | {MemoryTag.STAGING: 1_000}
    return StagingArea(MemoryPools(budgets, {"write": {MemoryTag.STAGING: 400}}))


def test_bytes_are_counted_until_they_are_let_go_even_twice(area: StagingArea) -> None:
    first, second = area.hold("payload", 300), area.hold("payload", 300)
    assert area.in_use_bytes == 600
    first.close()
    first.close()
    assert area.in_use_bytes == 300
    second.close()
    assert area.in_use_bytes == 0


@pytest.mark.row("MEM-05")
def test_pinned_and_shared_buffers_are_accounted_and_bounded(area: StagingArea) -> None:
    with area.pinned("frames", 600) as pinned:
        assert (pinned.shape, area.in_use_bytes) == ((600,), 600)
        with pytest.raises(OutOfMemory) as caught, area.shared("latents", 500):
            pass
        assert caught.value.subject == "staging"
        with area.shared("latents", 400) as shared:
            assert area.in_use_bytes == 1_000
            elsewhere = SharedMemory(shared.name)
            assert shared.buf is not None
            assert elsewhere.buf is not None
            shared.buf[:3] = b"abc"
            assert bytes(elsewhere.buf[:3]) == b"abc"
            elsewhere.close()
    assert area.in_use_bytes == 0
    with pytest.raises(FileNotFoundError):
        SharedMemory(shared.name)


def test_a_role_stages_no_more_than_its_share(area: StagingArea) -> None:
    with area.hold("file", 400, role="write"):
        with pytest.raises(OutOfMemory) as caught:
            area.hold("file", 1, role="write")
        assert caught.value.subject == "write/staging"


def test_a_failure_lets_go(area: StagingArea) -> None:
    with pytest.raises(ValueError, match="broken"), area.hold("file", 10):
        raise ValueError("broken")
    assert area.in_use_bytes == 0
