"""One request run alone, node by node, with no scheduler: for warm-up, replay, as a reference."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fastvideo.engine.executor import Executor
from fastvideo.program.specs import ProgramSpec
from fastvideo.requests.failures import error_of
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.commands import ExecuteBatch, PrepareLoop, ReleaseLoops
from fastvideo.scheduling.events import BatchExecuted, LoopFailed
from fastvideo.scheduling.request_scheduler import program_graph
from fastvideo.scheduling.work import LoopRef, LoopResult, WorkPlan

Fetch = Callable[[PrepareLoop], PrepareLoop]
"""Adds the stored inputs of a request to a command, as `RequestInputs.fetch` does."""


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
    batches = tuple(solo_batches(executor, model_instance_id, program, request))
    return SoloRun(
        results={
            result.loop.node_id: result.loop_result
            for batch in batches
            for result in batch.results
            if result.loop_result is not None
        },
        batches=batches,
    )


def solo_batches(
    executor: Executor,
    model_instance_id: str,
    program: ProgramSpec,
    request: RequestSpec,
    *,
    attempt: int = 1,
    fetch: Fetch | None = None,
) -> Iterator[BatchExecuted]:
    """Run a request unit by unit; it is freed at the end, or when nobody asks for more.

    Between two batches all that the ended nodes handed on is in the executor's values. Raises
    the error of the loop or unit that failed.
    """
    graph = program_graph(program)
    results: dict[str, LoopResult] = {}
    try:
        while len(results) < len(graph.nodes):
            node_id = graph.startable(results, results)[0]
            command = PrepareLoop(
                loop=LoopRef(request_id=request.request_id, node_id=node_id, attempt=attempt),
                loop_id=graph.nodes[node_id].loop_id,
                model_instance_id=model_instance_id,
                request=request,
                inputs=graph.inputs_of(node_id, request),
            )
            prepared = executor.prepare(fetch(command) if fetch is not None else command)
            if isinstance(prepared, LoopFailed):
                raise error_of(prepared.error)
            for executed in _loop_batches(executor, prepared.plan):
                yield executed
                [result] = executed.results
                if result.loop_result is not None:
                    results[node_id] = result.loop_result
    finally:
        executor.release(ReleaseLoops(request_id=request.request_id, attempt=attempt))


def _loop_batches(executor: Executor, plan: WorkPlan) -> Iterator[BatchExecuted]:
    waiting = list(plan.units)
    while waiting:
        unit = waiting.pop(0)
        executed = executor.execute(
            ExecuteBatch(batch_id=unit.unit_id, kind=unit.kind, unit_ids=(unit.unit_id,))
        )
        [result] = executed.results
        if result.error is not None:
            raise error_of(result.error)
        if result.next_plan is not None:
            waiting = list(result.next_plan.units)
        yield executed
        if result.loop_result is not None:
            return
