"""The memory that whole requests keep on a worker: expected, claimed before they begin, learned."""

from collections.abc import Callable
from dataclasses import dataclass

from fastvideo.engine.budgets import unit_budgets
from fastvideo.engine.claims import Claims, Granted
from fastvideo.engine.reservations import Reservations
from fastvideo.engine.residency import ResidencyBook
from fastvideo.engine.values import Scope, scope_name
from fastvideo.memory.pools import MemoryPools, MemoryTag, OutOfMemory
from fastvideo.memory.pressure import Evictions
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.commands import PrepareLoop


@dataclass(frozen=True, slots=True)
class _Request:
    """Whose memory a scope is."""

    model_instance_id: str
    spec: RequestSpec
    # Of its span.
    traceparent: str


class RequestMemory:
    """Claims by request and attempt; safe to use from any thread."""

    def __init__(self, pools: MemoryPools, reservations: Reservations) -> None:
        budgets = pools.budgets_bytes
        tag = MemoryTag.ACTIVATIONS
        self._limit_bytes = budgets[tag] - unit_budgets(budgets)[tag]
        self._reservations = reservations
        self._claims = Claims(pools, self._limit_bytes, self._evicted)
        self._book = ResidencyBook()
        self._requests: dict[Scope, _Request] = {}

    @property
    def waiting(self) -> int:
        """Requests that wait for memory."""
        return self._claims.waiting

    @property
    def places(self) -> int:
        """How many requests of a usual size have room at a time; 0 when none was seen yet."""
        typical = self._book.typical_bytes()
        return max(1, self._limit_bytes // typical) if typical else 0

    def take(self, command: PrepareLoop) -> Granted:
        """Claim what the loop's request will keep; done at once, or when others gave back.

        Raises OutOfMemory when it can never be had, ResourceExhausted when too many wait.
        """
        scope = (command.loop.request_id, command.loop.attempt)
        model_instance_id = command.model_instance_id
        expected = self._book.expected_bytes(model_instance_id, command.request)
        granted = self._claims.take(scope_name(scope), expected)
        self._requests[scope] = _Request(model_instance_id, command.request, command.traceparent)
        return granted

    def take_now(self, command: PrepareLoop) -> None:
        """Claim without waiting. Raises OutOfMemory when others hold what it needs."""
        if self.take(command).done():
            return
        scope = (command.loop.request_id, command.loop.attempt)
        self.release(scope, values=0)
        expected = self._book.expected_bytes(command.model_instance_id, command.request)
        raise OutOfMemory(
            MemoryTag.ACTIVATIONS, expected, self._limit_bytes, owner=scope_name(scope)
        )

    def release(self, scope: Scope, values: int) -> None:
        """Give a claim back, and learn from what the request held and left."""
        peak_bytes = self._claims.release(scope_name(scope))
        request = self._requests.pop(scope, None)
        self._reservations.forget(scope)
        if request is not None:
            self._book.note(request.model_instance_id, request.spec, peak_bytes, values)

    def give_up(self, error: Exception) -> None:
        """Let no request wait any longer: what waits fails with the error."""
        self._claims.give_up(error)

    def scopes(self, wanted: Callable[[RequestSpec], bool] = lambda _: True) -> set[Scope]:
        """The requests that hold or await a claim, of those that are wanted."""
        return {scope for scope, held in list(self._requests.items()) if wanted(held.spec)}

    def traceparent(self, scope: Scope) -> str:
        """Of the span of a request that holds or awaits a claim; empty of another."""
        known = self._requests.get(scope)
        return known.traceparent if known is not None else ""

    def forget(self, model_instance_id: str) -> None:
        """Drop what was learned of a model that is gone."""
        self._book.forget(model_instance_id)

    def _evicted(self, scope: str, evicted: Evictions) -> None:
        request_id, _, attempt = scope.rpartition("/")
        self._reservations.tell((request_id, int(attempt)), evicted)
