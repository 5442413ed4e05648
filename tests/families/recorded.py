"""Runs of an in-process engine as the log would have them."""

from collections.abc import Sequence
from typing import Any

from fastvideo.engine.engine import Engine
from fastvideo.engine.fingerprint import machine_fingerprint
from fastvideo.engine.results import Generation
from fastvideo.errors import NotFound
from fastvideo.replay.types import LoggedRun, LoggedStep
from fastvideo.requests.types import RequestStatus
from fastvideo.scheduling.traces import ComponentsTraced
from tests.families.served import Log, run


class EngineSources:
    """Artifacts of ended requests, and the blobs that an engine keeps."""

    def __init__(self, engine: Engine, generations: Sequence[Generation] = ()) -> None:
        self._engine = engine
        self._files = {
            artifact.record.artifact_id: artifact.data
            for generation in generations
            for artifact in generation.artifacts
        }

    def get(self, artifact_id: str) -> bytes:
        if artifact_id not in self._files:
            raise NotFound(f"no artifact {artifact_id}", subject=artifact_id)
        return self._files[artifact_id]

    def blob(self, digest: str) -> bytes:
        layers = self._engine._executor.layers
        assert layers is not None
        assert layers.wait_stored(30.0)
        return layers._shelf.get_blob(digest, 0)


def logged_run(engine: Engine, log: Log, made: Generation) -> LoggedRun:
    """What a log would say of a run that the engine did while it was noted."""
    [instance] = [
        instance
        for instance in engine._residents.all()
        if instance.card.model_id == made.request.model_id
    ]
    traces = {
        note.unit_id: note
        for ran in log.batches
        for note in ran.executed.notes
        if isinstance(note, ComponentsTraced)
    }
    steps = [
        LoggedStep(
            node_id=result.loop.node_id,
            loop_id=result.loop.node_id,
            unit_id=result.unit_id,
            state_version=result.state_version,
            step_range=result.step_range,
            state_digest=result.state_digest,
            measured_seconds=ran.executed.measured_seconds / ran.size,
            batch_size=ran.size,
            cache_lookups=result.cache_lookups,
            components=traces.get(result.unit_id),
        )
        for ran in log.batches
        for result in ran.executed.results
        if result.loop.request_id == made.request_id
    ]
    facts = {
        f"{instance.card.model_id}/{name}": fact for name, fact in instance.fingerprint.items()
    }
    return LoggedRun(
        spec=made.request,
        status=RequestStatus.COMPLETED,
        attempt=1,
        instance=instance.state(),
        fingerprint=machine_fingerprint(1) | facts,
        steps=tuple(steps),
        latents_digest=made.latents_digest,
        original_seconds=sum(step.measured_seconds for step in steps),
        scores=dict(made.scores),
        artifacts=tuple(artifact.record for artifact in made.artifacts),
    )


def record(engine: Engine, *asked: dict[str, Any]) -> tuple[list[LoggedRun], EngineSources]:
    """Run requests at once; each as the log would have it, and what is left of them all."""
    made, log = run(engine, *asked)
    return [logged_run(engine, log, one) for one in made], EngineSources(engine, made)
