"""The peak of a piece of work is what it had allocated at once, buffers of kernels included."""

import threading

import pytest
import torch

from fastvideo.memory.peak import measured_peak

ROW_BYTES = 1000 * 4


def test_what_lives_at_once_counts_and_what_was_freed_before_does_not() -> None:
    def in_turn() -> torch.Tensor:
        kept = torch.ones(1000)
        for _ in range(5):
            kept = kept + 1
        return kept

    def together() -> list[torch.Tensor]:
        return [torch.ones(1000) for _ in range(5)]

    kept, peak = measured_peak(in_turn)
    # And a few bytes for the number that is added.
    assert 2 * ROW_BYTES <= peak < 2 * ROW_BYTES + 100
    assert kept[0] == 6
    assert measured_peak(together)[1] == 5 * ROW_BYTES


def test_what_was_there_before_does_not_count() -> None:
    before = [torch.ones(1000) for _ in range(10)]
    assert measured_peak(lambda: before[0].sum())[1] < ROW_BYTES


def test_buffers_inside_of_kernels_count() -> None:
    torch.manual_seed(0)
    convolution = torch.nn.Conv3d(8, 8, 3, padding=1)
    sample = torch.randn(1, 8, 4, 8, 8)
    with torch.no_grad():
        output, peak = measured_peak(lambda: convolution(sample))
        assert torch.equal(output, convolution(sample))
    assert peak >= output.nbytes


def test_other_threads_do_not_count_and_are_measured_for_themselves() -> None:
    started, proceed = threading.Event(), threading.Event()
    peaks: list[int] = []

    def other() -> torch.Tensor:
        started.set()
        assert proceed.wait(30)
        return torch.ones(50_000)

    thread = threading.Thread(target=lambda: peaks.append(measured_peak(other)[1]))
    thread.start()

    def here() -> torch.Tensor:
        assert started.wait(30)
        proceed.set()
        thread.join(10)
        return torch.ones(1000)

    assert measured_peak(here)[1] == ROW_BYTES
    assert peaks == [50_000 * 4]


def test_one_that_fails_leaves_nothing_behind() -> None:
    def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        measured_peak(fail)
    assert measured_peak(lambda: torch.ones(1000))[1] == ROW_BYTES


def test_within_another_measurement_nothing_is_told() -> None:
    outer = measured_peak(lambda: measured_peak(lambda: torch.ones(1000)))
    (_, inner_peak), peak = outer
    assert (inner_peak, peak) == (0, ROW_BYTES)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_on_a_device_what_it_held_at_most_counts() -> None:
    before = torch.ones(1 << 20, device="cuda")

    def work() -> torch.Tensor:
        kept = [torch.ones(1 << 20, device="cuda") for _ in range(3)]
        return kept[0]

    kept, peak = measured_peak(work)
    assert kept.shape == before.shape
    assert 3 * before.nbytes <= peak < 4 * before.nbytes
