"""The most memory that a piece of work had allocated at once, measured on the device that ran it.

Measuring costs a record of every operation on a CPU and a synchronisation on CUDA, so it is done
on the first runs of a shape only. It changes no bits: allocators are watched, nothing is replaced.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import torch
from torch._C._autograd import (
    _disable_profiler_legacy,
    _enable_profiler_legacy,
    _profiler_enabled,
)
from torch._C._profiler import ProfilerConfig, ProfilerState, _ExperimentalConfig

T = TypeVar("T")

_ALLOCATION: Final = "memory_alloc"


def measured_peak(work: Callable[[], T]) -> tuple[T, int]:
    """What the work gives, and the bytes that it had allocated at most beyond those before it.

    On CUDA those of the current device, when the work used it. On a CPU the allocations of this
    thread through torch's allocator, buffers inside of kernels included; 0 bytes when this
    thread is being profiled by somebody else.
    """
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return _on_cpu(work)
    (result, host), device = _on_cuda(lambda: _on_cpu(work))
    return result, device or host


def _on_cuda(work: Callable[[], T]) -> tuple[T, int]:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = work()
    torch.cuda.synchronize()
    return result, max(0, torch.cuda.max_memory_allocated() - before)


def _on_cpu(work: Callable[[], T]) -> tuple[T, int]:
    if _profiler_enabled():
        return work(), 0
    # The profiler of one thread: the common one records all threads and is one a process.
    _enable_profiler_legacy(_memory_only())
    try:
        result = work()
    finally:
        threads = _disable_profiler_legacy()
    return result, max((_peak(records) for records in threads), default=0)


def _memory_only() -> ProfilerConfig:
    return ProfilerConfig(
        ProfilerState.CPU,
        False,  # shapes
        True,  # memory
        False,  # stacks
        False,  # flops
        False,  # modules
        _ExperimentalConfig(),
    )


def _peak(records: Iterable[Any]) -> int:
    level = peak = 0
    for record in records:
        if record.kind() == _ALLOCATION:
            level += record.cpu_memory_usage()
            peak = max(peak, level)
    return peak
