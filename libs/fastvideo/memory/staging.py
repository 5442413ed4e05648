"""Host staging: bytes on their way out or in, counted before they are made or kept."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from multiprocessing.shared_memory import SharedMemory

import torch

from fastvideo.memory.pools import MemoryPools, MemoryTag


class BufferKind(StrEnum):
    """Where a staging buffer lies."""

    # Page-locked, so that a device copies to and from it without a stop; pageable without one.
    PINNED = "pinned"
    # Visible to other processes of this machine by its name.
    SHARED = "shared"


class StagingArea:
    """The staging pool of one process: what is held in it, and buffers that lie in it.

    Safe to use from any thread; nothing waits: what does not fit raises OutOfMemory.
    """

    def __init__(self, pools: MemoryPools) -> None:
        self._pools = pools
        self._numbers = itertools.count(1)

    @property
    def in_use_bytes(self) -> int:
        """What is staged now."""
        return self._pools.in_use_bytes()[MemoryTag.STAGING]

    @contextmanager
    def hold(self, what: str, size_bytes: int, *, role: str = "") -> Iterator[None]:
        """Count bytes that somebody keeps while the block runs. Raises OutOfMemory."""
        owner = self._owner(what)
        self._pools.resize(MemoryTag.STAGING, owner, size_bytes, role=role)
        try:
            yield
        finally:
            self._pools.release(owner)

    @contextmanager
    def pinned(self, what: str, size_bytes: int, *, role: str = "") -> Iterator[torch.Tensor]:
        """A uint8 buffer [size_bytes] of host memory. Raises OutOfMemory."""
        with self.hold(f"{BufferKind.PINNED}/{what}", size_bytes, role=role):
            yield torch.empty(size_bytes, dtype=torch.uint8, pin_memory=torch.cuda.is_available())

    @contextmanager
    def shared(self, what: str, size_bytes: int, *, role: str = "") -> Iterator[SharedMemory]:
        """A buffer that other processes open by its `name` while the block runs.

        Raises OutOfMemory.
        """
        with self.hold(f"{BufferKind.SHARED}/{what}", size_bytes, role=role):
            memory = SharedMemory(create=True, size=size_bytes)
            try:
                yield memory
            finally:
                memory.close()
                memory.unlink()

    def _owner(self, what: str) -> str:
        # The same thing may be on its way twice, such as one value to two workers.
        return f"staging:{next(self._numbers)}:{what}"
