"""Making loops: from their inputs, or from a snapshot."""

from collections.abc import Callable

import torch

from fastvideo.engine.footprint import Storages, storages
from fastvideo.engine.live import LiveLoop, LoopTable
from fastvideo.engine.peaks import PeakBook
from fastvideo.engine.request_memory import RequestMemory
from fastvideo.engine.reservations import Reservations, role_of
from fastvideo.engine.residents import Residents
from fastvideo.engine.snapshotting import Snapshots
from fastvideo.engine.values import Scope, ValueStore
from fastvideo.engine.weights import check_weights
from fastvideo.errors import Cancelled, ContractViolation, FailedPrecondition, FastVideoError
from fastvideo.loops.contract import PlanContext, StateBase
from fastvideo.loops.plans import check_plan
from fastvideo.loops.snapshot_format import Saved
from fastvideo.memory.pools import MemoryPools
from fastvideo.scheduling.commands import PrepareLoop
from fastvideo.scheduling.work import WorkPlan


class Preparer:
    """Takes loops in, each with its state counted and its first plan checked."""

    def __init__(
        self,
        *,
        pools: MemoryPools,
        residents: Residents,
        values: ValueStore,
        loops: LoopTable,
        memory: RequestMemory,
        reservations: Reservations,
        peaks: PeakBook,
        snapshots: Snapshots | None,
        forget: Callable[[Scope], None],
    ) -> None:
        self._pools = pools
        self._residents = residents
        self._values = values
        self._loops = loops
        self._memory = memory
        self._reservations = reservations
        self._peaks = peaks
        self._snapshots = snapshots
        self._forget = forget

    def prepare(self, command: PrepareLoop, saved: Saved | None) -> WorkPlan:
        """A loop's first plan; that of one that had ended is empty.

        Raises whatever forbids it to be made.
        """
        scope = (command.loop.request_id, command.loop.attempt)
        try:
            self._loops.check_room(command.loop)
        except Cancelled:
            # Released meanwhile: what was fetched for it since is nobody's.
            self._forget(scope)
            raise
        check_weights(self._residents, command.request, command.model_instance_id, command.loop_id)
        self._memory.take_now(command)
        with torch.no_grad():
            if command.restore is None:
                inputs = self._values.bind(scope, command.inputs)
                kernel, instance = self._residents.kernel(
                    command.model_instance_id, command.loop_id
                )
                state = kernel.init_state(command.loop, command.request, inputs, instance)
                return self._take_in(command, state, storages(inputs))
            if self._snapshots is None or saved is None:
                raise FailedPrecondition(
                    "this worker restores no loops", reason="SNAPSHOT_UNSUPPORTED"
                )
            if command.restore.ended:
                return self._snapshots.restore_ended(command, saved)
            return self._take_in(command, self._snapshots.restore_state(command, saved), {})

    def _take_in(self, command: PrepareLoop, state: StateBase, given: Storages) -> WorkPlan:
        kernel, _ = self._residents.kernel(command.model_instance_id, command.loop_id)
        context = PlanContext(
            model_instance_id=command.model_instance_id,
            program_id=command.request.program_id,
            session_id=command.request.session_id,
        )
        plan = kernel.plan_step(state, context)
        if plan is None:
            raise ContractViolation(
                "a loop that begins plans nothing",
                subject=f"{command.loop.request_id}/{command.loop.node_id}",
            )
        plan = self._peaks.declare(plan)
        check_plan(plan, state, kernel.spec)
        loop = LiveLoop(
            ref=command.loop,
            loop_id=command.loop_id,
            model_instance_id=command.model_instance_id,
            session_id=command.request.session_id,
            state=state,
            plan_context=context,
            given=given,
            role=role_of(plan.units[0]),
        )
        self._reservations.count_state(loop, state)
        try:
            self._loops.add(loop, plan)
        except FastVideoError:
            self._pools.release(loop.owner)
            raise
        return plan
