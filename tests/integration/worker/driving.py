"""One request of a program, driven over a scheduler's client alone."""

from dataclasses import dataclass, field, replace

from fastvideo.deployment.catalog import CatalogEntry
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.commands import PrepareLoop
from fastvideo.scheduling.events import BatchExecuted, RequestSnapshotted
from fastvideo.scheduling.request_scheduler import ProgramGraph, program_graph
from fastvideo.scheduling.work import LoopRef, LoopResult, StepResult, WorkPlan
from tests.integration.worker.scheduler_client import SchedulerClient


@dataclass
class Driven:
    """What a request gave when it was driven alone over the stream."""

    results: dict[str, LoopResult] = field(default_factory=dict)
    batches: list[BatchExecuted] = field(default_factory=list)


class Driver:
    """Drives one request of a program over a client, node by node."""

    def __init__(self, client: SchedulerClient, entry: CatalogEntry, spec: RequestSpec) -> None:
        self._client = client
        self._spec = spec
        self._graph: ProgramGraph = program_graph(entry.programs[spec.program_id])
        assert client.attached is not None
        self._instance_id = client.attached.instances[0].model_instance_id

    def command(self, node_id: str, attempt: int = 1) -> PrepareLoop:
        return PrepareLoop(
            loop=LoopRef(request_id=self._spec.request_id, node_id=node_id, attempt=attempt),
            loop_id=self._graph.nodes[node_id].loop_id,
            model_instance_id=self._instance_id,
            request=self._spec,
            inputs=self._graph.inputs[node_id],
        )

    async def run_loop(
        self, node_id: str, driven: Driven, attempt: int = 1, plan: WorkPlan | None = None
    ) -> None:
        """Run a loop to its end, from a plan of it or from its beginning."""
        plan = plan or await self._client.prepare(self.command(node_id, attempt))
        while True:
            executed = await self._client.execute(plan)
            driven.batches.append(executed)
            result: StepResult = executed.results[0]
            assert result.error is None, result.error
            if result.loop_result is not None:
                driven.results[node_id] = result.loop_result
                return
            assert result.next_plan is not None
            plan = result.next_plan

    async def until(self, node_id: str) -> WorkPlan:
        """Run the nodes before one and prepare it; returns its first plan."""
        driven = Driven()
        while (ready := self._graph.startable(driven.results, driven.results)[0]) != node_id:
            await self.run_loop(ready, driven)
        return await self._client.prepare(self.command(node_id))

    async def restore(self, event: RequestSnapshotted, attempt: int) -> tuple[Driven, WorkPlan]:
        """Make an attempt of what another had; its results, and the plan of its live loop."""
        driven, plans = Driven(), []
        for saved in event.snapshots:
            command = replace(self.command(saved.loop.node_id, attempt), restore=saved)
            plan = await self._client.prepare(command)
            if saved.ended:
                assert plan.units == ()
                assert saved.loop_result is not None
                driven.results[saved.loop.node_id] = saved.loop_result
            else:
                plans.append(plan)
        [plan] = plans
        return driven, plan

    async def go_on(self, driven: Driven, plan: WorkPlan) -> Driven:
        """Run a restored attempt to its end and release it."""
        attempt = plan.loop.attempt
        await self.run_loop(plan.loop.node_id, driven, attempt, plan)
        while len(driven.results) < len(self._graph.nodes):
            node_id = self._graph.startable(driven.results, driven.results)[0]
            await self.run_loop(node_id, driven, attempt)
        await self._client.release(self._spec.request_id, attempt)
        return driven

    async def run(self) -> Driven:
        driven = Driven()
        while len(driven.results) < len(self._graph.nodes):
            node_id = self._graph.startable(driven.results, driven.results)[0]
            await self.run_loop(node_id, driven)
        await self._client.release(self._spec.request_id)
        return driven
