"""A run's steps, done again and compared with the logged ones."""

import time
from dataclasses import dataclass, field
from typing import Any

from fastvideo.artifacts.types import ArtifactRecord
from fastvideo.errors import FastVideoError
from fastvideo.recompute.comparable import is_cached, is_comparable
from fastvideo.recompute.host import Host
from fastvideo.replay.tally import Tally, Tell
from fastvideo.replay.types import Comparison, LoggedStep, ReplayProgress
from fastvideo.requests.types import RequestSpec, RequestStatus
from fastvideo.scheduling.traces import ComponentsTraced
from fastvideo.scheduling.work import LoopResult, StepResult

StepKey = tuple[str, int]
"""A node, and the version of its loop's state after the step."""


@dataclass(slots=True, kw_only=True)
class Again:
    """What came of a run that was done again."""

    seconds: float = 0.0
    # The first step whose state differs, and what differed.
    first: StepKey | None = None
    # By node.
    results: dict[str, LoopResult] = field(default_factory=dict)
    # By id.
    artifacts: dict[str, ArtifactRecord] = field(default_factory=dict)
    # What was handed on as latents, [1, C, T, H, W].
    latents: Any | None = None
    # Filled where layers were traced.
    traces: dict[StepKey, ComponentsTraced] = field(default_factory=dict)
    # What it failed of, where the original did not.
    error: FastVideoError | None = None


def run_again(host: Host, request: RequestSpec, tally: Tally, tell: Tell) -> Again:
    """Do a run's steps again, each compared as it is done.

    A run that did not complete is done as far as it came.
    """
    logged = logged_steps(host)
    whole = host.run.status is RequestStatus.COMPLETED
    missing = dict(logged)
    again = Again()
    began = time.monotonic()
    if not logged and not whole:
        return again
    try:
        for batch in host.batches(request):
            [result] = batch.results
            key = (result.loop.node_id, result.state_version)
            _keep(again, host, result)
            for note in batch.notes:
                if isinstance(note, ComponentsTraced):
                    again.traces[key] = note
            step = missing.pop(key, None)
            if step is not None and is_comparable(host, step, result):
                comparison = _compared(step, result)
                if not comparison.equal:
                    again.first = again.first or key
                tally.add(comparison, told_by_results=True)
                tell(_progress(len(logged) - len(missing), len(logged), comparison.subject))
            if not whole and all(is_cached(host, node_id) for node_id, _ in missing):
                break
    except FastVideoError as error:
        again.error = error
    again.seconds = time.monotonic() - began
    for key, step in missing.items():
        if is_cached(host, step.node_id):
            continue
        again.first = again.first or key
        tally.add(_not_done(step, again.error))
    return again


def trace_step(host: Host, wanted: StepKey) -> ComponentsTraced | None:
    """The components of one step, from a run with traced layers that ends there.

    The layers are in the host's blobs when this returns.
    """
    for batch in host.batches(host.detailed):
        [result] = batch.results
        if (result.loop.node_id, result.state_version) == wanted:
            traced = [note for note in batch.notes if isinstance(note, ComponentsTraced)]
            host.wait_layers()
            return traced[0] if traced else None
    return None


def logged_steps(host: Host) -> dict[StepKey, LoggedStep]:
    """The steps that can be compared, in order of execution."""
    return {
        (step.node_id, step.state_version): step for step in host.run.steps if step.state_digest
    }


def subject_of(step: LoggedStep) -> str:
    """Such as "denoise 7/20"."""
    return f"{step.node_id} {step.step_range.stop}/{step.step_range.total}"


def _keep(again: Again, host: Host, result: StepResult) -> None:
    for artifact_id in result.artifact_ids:
        again.artifacts[artifact_id], _ = host.stored(artifact_id)
    if result.loop_result is None:
        return
    again.results[result.loop.node_id] = result.loop_result
    if "latents" in result.loop_result.digests:
        again.latents = host.values()[f"{result.loop.node_id}.latents"]


def _compared(step: LoggedStep, result: StepResult) -> Comparison:
    return Comparison(
        subject=subject_of(step),
        equal=step.state_digest == result.state_digest,
        expected=step.state_digest,
        found=result.state_digest,
        node_id=step.node_id,
        step=step.step_range.stop,
    )


def _not_done(step: LoggedStep, error: FastVideoError | None) -> Comparison:
    why = "the run did not come to this step"
    return Comparison(
        subject=subject_of(step),
        equal=False,
        expected=step.state_digest,
        node_id=step.node_id,
        step=step.step_range.stop,
        detail=why if error is None else f"{why}: {error.reason}: {error.message}",
    )


def _progress(done: int, total: int, message: str) -> ReplayProgress:
    return ReplayProgress(done=done, total=total, message=message)
