"""Host staging: bytes on their way out or in, counted before they are made or kept."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.shared_memory import SharedMemory
from types import TracebackType
from typing import Self

import torch

from fastvideo.memory.pools import MemoryPools, MemoryTag


class Staged:
    """Bytes that are counted until they are let go, which may happen twice."""

    def __init__(self, pools: MemoryPools, owner: str) -> None:
        self._pools = pools
        self._owner = owner

    def close(self) -> None:
        """They are counted no more."""
        self._pools.release(self._owner)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


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

    def hold(self, what: str, size_bytes: int, *, role: str = "") -> Staged:
        """Count bytes until they are closed. Raises OutOfMemory."""
        # The same thing may be on its way twice, such as one value to two workers.
        owner = f"staging:{next(self._numbers)}:{what}"
        self._pools.resize(MemoryTag.STAGING, owner, size_bytes, role=role)
        return Staged(self._pools, owner)

    @contextmanager
    def pinned(self, what: str, size_bytes: int, *, role: str = "") -> Iterator[torch.Tensor]:
        """A uint8 buffer [size_bytes] of host memory, page-locked where there is a device.

        Raises OutOfMemory.
        """
        with self.hold(f"pinned/{what}", size_bytes, role=role):
            yield torch.empty(size_bytes, dtype=torch.uint8, pin_memory=torch.cuda.is_available())

    @contextmanager
    def shared(self, what: str, size_bytes: int, *, role: str = "") -> Iterator[SharedMemory]:
        """A buffer that other processes of this machine open by its `name`, for the block.

        Raises OutOfMemory.
        """
        with self.hold(f"shared/{what}", size_bytes, role=role):
            memory = SharedMemory(create=True, size=size_bytes)
            try:
                yield memory
            finally:
                memory.close()
                memory.unlink()
