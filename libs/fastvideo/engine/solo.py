"""One request run alone, node by node, with no scheduler: for warm-up and as a reference."""

from dataclasses import dataclass

from fastvideo.engine.executor import Executor
from fastvideo.program.specs import ProgramSpec
from fastvideo.requests.failures import error_of
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.commands import ExecuteBatch, PrepareLoop, ReleaseLoops
from fastvideo.scheduling.events import BatchExecuted, LoopFailed
from fastvideo.scheduling.request_scheduler import program_graph
from fastvideo.scheduling.work import LoopRef, LoopResult, WorkPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloRun:
    """What a request gave: the result of each node, and every batch in order."""

    results: dict[str, LoopResult]
    batches: tuple[BatchExecuted, ...]

    @property
    def latents_digest(self) -> str:
        """SHA-256 of the final latents' float32 bytes; empty when the program has none."""
        digests = [result.digests.get("latents", "") for result in self.results.values()]
        return next(filter(None, digests), "")


def run_solo(
    executor: Executor, model_instance_id: str, program: ProgramSpec, request: RequestSpec
) -> SoloRun:
    """Run a request to its end and free it. Raises the error of the loop or unit that failed."""
    graph = program_graph(program)
    results: dict[str, LoopResult] = {}
    batches: list[BatchExecuted] = []
    try:
        while len(results) < len(graph.nodes):
            node_id = graph.startable(results, results)[0]
            command = PrepareLoop(
                loop=LoopRef(request_id=request.request_id, node_id=node_id, attempt=1),
                loop_id=graph.nodes[node_id].loop_id,
                model_instance_id=model_instance_id,
                request=request,
                inputs=graph.inputs_of(node_id, request),
            )
            prepared = executor.prepare(command)
            if isinstance(prepared, LoopFailed):
                raise error_of(prepared.error)
            results[node_id] = _run_loop(executor, prepared.plan, batches)
    finally:
        executor.release(ReleaseLoops(request_id=request.request_id, attempt=1))
    return SoloRun(results=results, batches=tuple(batches))


def _run_loop(executor: Executor, plan: WorkPlan, batches: list[BatchExecuted]) -> LoopResult:
    waiting = list(plan.units)
    while True:
        unit = waiting.pop(0)
        executed = executor.execute(
            ExecuteBatch(batch_id=unit.unit_id, kind=unit.kind, unit_ids=(unit.unit_id,))
        )
        batches.append(executed)
        [result] = executed.results
        if result.error is not None:
            raise error_of(result.error)
        if result.loop_result is not None:
            return result.loop_result
        if result.next_plan is not None:
            waiting = list(result.next_plan.units)
