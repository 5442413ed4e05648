"""A short generation of a model's default shape, so that the first request meets no first times."""

import time
from collections.abc import Iterator
from typing import Final

import torch

from fastvideo.deployment.catalog import CatalogEntry
from fastvideo.engine.executor import Executor
from fastvideo.engine.solo import SoloRun, run_solo
from fastvideo.engine.threads import ThreadMeasurement
from fastvideo.ids import new_id
from fastvideo.model.specs import ModelSpec
from fastvideo.program.specs import NodeKind, ProgramEdge, ProgramSpec
from fastvideo.requests.inputs import NEGATIVE_PROMPT
from fastvideo.requests.types import (
    OutputSpec,
    RequestKind,
    RequestSpec,
    SamplingParams,
    TextPart,
)
from fastvideo.scheduling.traces import GraphUsed, TraceNote

_STEPS: Final = 2


def warm_up(executor: Executor, model_instance_id: str, entry: CatalogEntry) -> SoloRun:
    """Run two steps of the default shape through every loop but the writing of files.

    Leaves nothing behind, neither loops nor cached features of its prompt, but what it noted of
    recorded forwards, which stay.
    """
    program = _without_artifacts(entry.program_for(RequestKind.GENERATION))
    request = RequestSpec(
        request_id=new_id("warmup", time.time_ns() // 1_000_000),
        kind=RequestKind.GENERATION,
        model_id=entry.card.model_id,
        card_digest=entry.card_digest,
        program_id=program.program_id,
        inputs=tuple(
            TextPart(role=role, text="" if role == NEGATIVE_PROMPT else "a")
            for role in program.request_inputs
        ),
        sampling=_default_sampling(entry.card),
        outputs=OutputSpec(video=True),
    )
    try:
        run = run_solo(executor, model_instance_id, program, request)
        executor.noting.book.add(*(note for note in _notes(run) if isinstance(note, GraphUsed)))
        return run
    finally:
        # What it kept was never told, so neither is its end.
        executor.features.invalidate(lambda key: key.model_id == entry.card.model_id, told=False)


def _notes(run: SoloRun) -> Iterator[TraceNote]:
    return (note for batch in run.batches for note in batch.notes)


def measure_threads(
    executor: Executor, model_instance_id: str, entry: CatalogEntry, threads: int
) -> ThreadMeasurement:
    """Time a second warm-up on a thread count, which stays set in this thread."""
    torch.set_num_threads(threads)
    warm_up(executor, model_instance_id, entry)
    again = warm_up(executor, model_instance_id, entry)
    seconds = sum(batch.measured_seconds for batch in again.batches)
    return ThreadMeasurement(threads=threads, seconds=seconds, digest=_digest(again))


def _digest(run: SoloRun) -> str:
    """Every state on the way, so that a difference anywhere shows."""
    return "".join(result.state_digest for batch in run.batches for result in batch.results)


def _without_artifacts(program: ProgramSpec) -> ProgramSpec:
    kept = {node.node_id for node in program.nodes if node.kind is not NodeKind.ARTIFACT}

    def inside(edge: ProgramEdge) -> bool:
        return edge.source_node in kept and edge.target_node in kept

    return ProgramSpec(
        program_id=program.program_id,
        kind=program.kind,
        capability=program.capability,
        request_inputs=program.request_inputs,
        nodes=tuple(node for node in program.nodes if node.node_id in kept),
        edges=tuple(edge for edge in program.edges if inside(edge)),
        request_kind=program.request_kind,
    )


def _default_sampling(card: ModelSpec) -> SamplingParams:
    defaults = {name: spec.default_value for name, spec in card.sampling.items()}
    return SamplingParams(
        width=int(defaults["width"]),
        height=int(defaults["height"]),
        num_frames=int(defaults["num_frames"]),
        fps=int(defaults["fps"]),
        steps=_STEPS,
        guidance_scale=defaults["guidance_scale"],
        flow_shift=defaults["flow_shift"],
        seed=0,
    )
