"""Named values between the nodes of a request: "node.output" to tensors, on this worker."""

import threading
from collections.abc import Mapping
from typing import Any

from fastvideo.engine.footprint import resident_bytes, storages
from fastvideo.errors import FailedPrecondition, ResourceExhausted
from fastvideo.memory.pools import MemoryPools, MemoryTag
from fastvideo.memory.pressure import Evictions
from fastvideo.memory.staging import StagingArea

Scope = tuple[str, int]
"""A request's id and its attempt."""


class ValueStore:
    """Values by scope and name, counted in the activations' pool; safe from any thread."""

    def __init__(self, pools: MemoryPools, values_max: int) -> None:
        # Of what comes from outside and goes there.
        self.staging = StagingArea(pools)
        self._pools = pools
        self._values_max = values_max
        self._scopes: dict[Scope, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def put(self, scope: Scope, name: str, value: Any, *, role: str = "") -> Evictions:
        """Keep a value, in the memory of a role; returns what was evicted for it.

        Raises ResourceExhausted when a scope holds too many, OutOfMemory when it does not fit.
        """
        with self._lock:
            values = self._scopes.setdefault(scope, {})
            if name not in values and len(values) >= self._values_max:
                raise ResourceExhausted(
                    f"request {scope[0]} holds {self._values_max} values, which is the most",
                    subject="values",
                    attributes={"values_max": str(self._values_max)},
                )
            # Two names for one tensor hold it once.
            others = {key: kept for key, kept in values.items() if key != name}
            size = resident_bytes(value, excluding=storages(others))
            evicted = self._pools.resize(
                MemoryTag.ACTIVATIONS,
                _owner(scope, name),
                size,
                role=role,
                scope=scope_name(scope),
            )
            values[name] = value
            return evicted

    def bind(self, scope: Scope, inputs: Mapping[str, str]) -> dict[str, Any]:
        """Input name to value, from input name to "node.output".

        Raises FailedPrecondition for a value that is not here.
        """
        with self._lock:
            values = self._scopes.get(scope, {})
            for source in inputs.values():
                if source not in values:
                    raise FailedPrecondition(
                        f"value {source!r} of request {scope[0]} is not on this worker",
                        reason="VALUE_MISSING",
                        subject=source,
                        attributes={"present": ", ".join(sorted(values)) or "none"},
                    )
            return {name: values[source] for name, source in inputs.items()}

    def all(self, scope: Scope) -> dict[str, Any]:
        """All values of a scope by name."""
        with self._lock:
            return dict(self._scopes.get(scope, {}))

    def has(self, scope: Scope, name: str) -> bool:
        """Whether a value is here."""
        with self._lock:
            return name in self._scopes.get(scope, {})

    def release(self, scope: Scope) -> None:
        """Let go of all values of a scope."""
        with self._lock:
            for name in self._scopes.pop(scope, {}):
                self._pools.release(_owner(scope, name))

    def release_node(self, scope: Scope, node_id: str) -> None:
        """Let go of what one node of a scope made."""
        with self._lock:
            values = self._scopes.get(scope, {})
            for name in [name for name in values if name.startswith(f"{node_id}.")]:
                del values[name]
                self._pools.release(_owner(scope, name))

    def scopes(self) -> tuple[Scope, ...]:
        """The scopes that hold values now."""
        with self._lock:
            return tuple(self._scopes)


def scope_name(scope: Scope) -> str:
    """A scope's name in the memory pools."""
    return f"{scope[0]}/{scope[1]}"


def _owner(scope: Scope, name: str) -> str:
    return f"value:{scope_name(scope)}/{name}"
