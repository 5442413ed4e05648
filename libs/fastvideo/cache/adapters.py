"""Adapters' tensors, kept by key: loaded when a unit needs them, given back when none does."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import torch

from fastvideo.cache.evictable import CacheUsage, EvictableStore
from fastvideo.cache.keys import key_digest
from fastvideo.cache.recorded import kept, look, planned_unit, record, record_kept, record_look
from fastvideo.cache.values import value_digest
from fastvideo.loops.contract import StepContext
from fastvideo.memory.pools import MemoryPools, MemoryTag
from fastvideo.model.caching import CacheClass, CacheKey

CACHE_CLASS: Final = CacheClass.WEIGHTS_AND_ADAPTERS

Tensors = Mapping[str, torch.Tensor]


class AdapterCache:
    """The manager of the class weights_and_adapters; safe to use from any thread.

    Adapters lie in the weights' pool. One that a unit uses is never evicted; an idle one makes
    room for others, and for models that are loaded.
    """

    def __init__(self, pools: MemoryPools, load: Callable[[CacheKey], Tensors]) -> None:
        self._store = EvictableStore(CACHE_CLASS, pools.budgets_bytes[MemoryTag.WEIGHTS])
        self._store.join(pools, MemoryTag.WEIGHTS)
        self._load = load

    @property
    def usage(self) -> CacheUsage:
        """What is resident now."""
        return self._store.usage

    @contextmanager
    def use(self, key: CacheKey, context: StepContext) -> Iterator[Tensors]:
        """The adapter's tensors, for the context's unit, for as long as the block runs.

        Raises ContractViolation when the unit has not planned to read the key, OutOfMemory
        when what is in use leaves no room, and what loading raises.
        """
        digest = key_digest(key)
        unit = planned_unit(context, digest, "read")
        with self._store.pinned((digest,)):
            entry = self._store.find(digest)
            record_look(context, unit, key, look(self._store, digest, entry))
            if entry is not None:
                tensors: Tensors = entry.value
            else:
                tensors = self._load(key)
                size = sum(tensor.nbytes for tensor in tensors.values())
                record(context, unit.unit_id, self._store.add(key, tensors, size))
                made = kept(CACHE_CLASS, digest, size, value_digest(tensors))
                record_kept(context, unit, key, made)
            yield tensors

    def invalidate(self, stale: Callable[[CacheKey], bool]) -> int:
        """Drop the adapters whose keys are stale and say how many there were."""
        return self._store.invalidate(stale)
