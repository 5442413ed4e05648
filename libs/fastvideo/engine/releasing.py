"""What goes: attempts, nodes, scopes of a cancellation, and everything at once."""

from collections.abc import Callable

from fastvideo.engine.live import LiveLoop, LoopTable
from fastvideo.engine.request_memory import RequestMemory
from fastvideo.engine.streams import CancelledStreams
from fastvideo.engine.values import Scope, ValueStore
from fastvideo.errors import InvalidField
from fastvideo.memory.pools import MemoryPools
from fastvideo.scheduling.commands import CancelStream, ReleaseLoops
from fastvideo.scheduling.work import CancelScope, CancelScopeKind, LoopRef


class Releaser:
    """Frees loops, values, claims and notes together; safe to use from any thread."""

    def __init__(
        self,
        *,
        pools: MemoryPools,
        values: ValueStore,
        memory: RequestMemory,
        streams: CancelledStreams,
        loops_max: int,
    ) -> None:
        self._pools = pools
        self._values = values
        self._memory = memory
        self._streams = streams
        self.loops = LoopTable(loops_max, self._on_freed)

    def release(self, command: ReleaseLoops) -> tuple[LoopRef, ...]:
        """Free an attempt, or some nodes of it."""
        scope = (command.request_id, command.attempt)
        if command.node_ids:
            return self._release_nodes(scope, command)
        self.loops.close(scope, again=command.forget)
        gone = self.loops.release(lambda loop: loop.scope == scope, forced=True)
        self.forget(scope)
        return gone

    def cancel(self, scope: CancelScope) -> tuple[LoopRef, ...]:
        """Free the loops that a scope names, each at the next boundary that its plan declares.

        A stream has no loop of its own: nothing more is written of it.
        """
        target = scope.target_id
        match scope.kind:
            case CancelScopeKind.LOOP:
                return self.loops.release(
                    lambda loop: f"{loop.ref.request_id}/{loop.ref.node_id}" == target
                )
            case CancelScopeKind.STREAM:
                self._cancel_stream(target)
                return ()
            case CancelScopeKind.REQUEST:
                gone = self.loops.release(lambda loop: loop.ref.request_id == target)
                ended = self._scopes_of(target)
            case CancelScopeKind.SESSION:
                gone = self.loops.release(lambda loop: loop.session_id == target)
                ended = self._memory.scopes(lambda request: request.session_id == target)
        for attempt in ended | {(ref.request_id, ref.attempt) for ref in gone}:
            self.loops.close(attempt)
            self.forget(attempt)
        return gone

    def cancel_stream(self, command: CancelStream) -> None:
        """Write no more of one output of an attempt."""
        self._streams.cancel((command.request_id, command.attempt), command.name)

    def release_all(self, wanted: Callable[[LiveLoop], bool] | None = None) -> tuple[LoopRef, ...]:
        """Free every loop that is meant; without a choice, values and claims too."""
        gone = self.loops.release(wanted or (lambda loop: True), forced=True)
        if wanted is None:
            for scope in {*self._values.scopes(), *self._memory.scopes()}:
                self.forget(scope)
        return gone

    def forget(self, scope: Scope) -> None:
        """Let go of an attempt's values and of its claim."""
        left = len(self._values.all(scope))
        self._values.release(scope)
        self.loops.drop_ended(scope)
        self._streams.drop(scope)
        self._memory.release(scope, left)

    def _release_nodes(self, scope: Scope, command: ReleaseLoops) -> tuple[LoopRef, ...]:
        """Free some loops of an attempt and what they left; the others go on."""
        for node_id in command.node_ids:
            ref = LoopRef(request_id=scope[0], node_id=node_id, attempt=scope[1])
            self.loops.close(ref, again=command.forget)
            self.loops.drop_ended(scope, node_id)
            self._values.release_node(scope, node_id)
        return self.loops.release(
            lambda loop: loop.scope == scope and loop.ref.node_id in command.node_ids,
            # Of loops that are to be forgotten nobody knows, so nobody runs them on.
            forced=command.forget,
        )

    def _cancel_stream(self, target: str) -> None:
        request_id, _, name = target.rpartition("/")
        if not request_id or not name:
            raise InvalidField("scope.target_id", target, "REQUEST/NAME of an output")
        for scope in self._scopes_of(request_id):
            self._streams.cancel(scope, name)

    def _scopes_of(self, request_id: str) -> set[Scope]:
        """The attempts of a request that hold anything here."""
        held = {(ref.request_id, ref.attempt) for ref in self.loops.refs}
        held |= {*self._values.scopes(), *self._memory.scopes()}
        return {scope for scope in held if scope[0] == request_id}

    def _on_freed(self, loop: LiveLoop) -> None:
        self._pools.release(loop.owner)
        if loop.released:
            # It may have ended while its request was released: then nobody wants its values.
            self._values.release_node(loop.scope, loop.ref.node_id)
            self.loops.drop_ended(loop.scope, loop.ref.node_id)
