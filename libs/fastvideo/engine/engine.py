"""Engine: the loops that serve, in this process, with no server.

    engine = fastvideo.Engine.from_deployment("deployment.yaml")
    video = engine.generate("a red three moving left", seed=7)
    video.save("out.mp4")

The scheduling core, the executor and the loops are those of the services, so concurrent
requests share forwards, a cancel lands at a boundary, and the bits are the same.

**API boundary.**
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from fastvideo.artifacts.types import ArtifactKind, Producer
from fastvideo.cache.features import TextFeatureCache
from fastvideo.clock import SystemClock, milliseconds
from fastvideo.deployment.card import DeploymentCard, EngineOffer, RolePoolSpec
from fastvideo.deployment.catalog import Catalog, CatalogEntry
from fastvideo.deployment.offer import deployment_card
from fastvideo.engine.artifact_writer import LOOP_ID, ArtifactWriter
from fastvideo.engine.budgets import machine_bytes, pool_budgets, unit_budgets
from fastvideo.engine.deployment_file import read_deployment
from fastvideo.engine.driver import LocalDriver, Terminal
from fastvideo.engine.executor import Executor
from fastvideo.engine.fingerprint import library_versions, machine_fingerprint
from fastvideo.engine.loading import CatalogLoader, quiet_libraries
from fastvideo.engine.request_inputs import RequestInputs
from fastvideo.engine.residents import Residents
from fastvideo.engine.results import Artifact, Generation, RequestHandle, Video
from fastvideo.engine.sink import LocalArtifacts, LocalBlobs, NewArtifact
from fastvideo.engine.startup import start_models
from fastvideo.errors import Cancelled, FailedPrecondition, FastVideoError, InvalidField
from fastvideo.ids import derived_id, new_id
from fastvideo.loops.contract import SharedTier
from fastvideo.media.images import decode_image
from fastvideo.memory.pools import MemoryPools, MemoryTag
from fastvideo.model.embedded import EMBEDDED_MODEL_ID
from fastvideo.requests.draft import RequestDraft
from fastvideo.requests.durations import frames_of
from fastvideo.requests.failures import error_of
from fastvideo.requests.inputs import IMAGE, IMAGE_TO_VIDEO, NEGATIVE_PROMPT, PROMPT
from fastvideo.requests.sampling import SEED_MAX
from fastvideo.requests.types import (
    ImagePart,
    InputPart,
    OutputSpec,
    RequestKind,
    SamplingOverrides,
    TextPart,
)
from fastvideo.requests.validation import resolve_request
from fastvideo.scheduling.core import SchedulerCore
from fastvideo.scheduling.deployed import DeployedModels
from fastvideo.scheduling.events import CancelRequest, CompleteRequest, FailRequest, WorkerAttached
from fastvideo.scheduling.inputs import CancelRequested
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.work import CancelScope, CancelScopeKind

_WORKER_ID: Final = "engine"
_COMPUTE_SLOTS: Final = 1
_IO_SLOTS: Final = 2
# What is saved in this process goes with it: only requests that are set aside are saved.
_POLICY: Final = SchedulingPolicy(snapshot_overhead_max=0)


class Engine:
    """Models of one process, warm. Close it, or use it as a context.

    `families` are import names of packages with model families of your own, each with the
    files of `fastvideo.models.wan`: cards, programs.yaml, program.py. `tier` is a tier of
    caches that outlives the process, such as `fastvideo.cache.redis_tier.RedisTier`; `policy`
    has the knobs of scheduling; `engine_id` is its name on its deployment card.

    Raises NotFound for a model that no card has and CheckpointError for one without weights.
    """

    def __init__(
        self,
        models: Sequence[str] = (EMBEDDED_MODEL_ID,),
        *,
        checkpoints: Path | str | None = None,
        threads: int | None = None,
        memory_bytes: int | None = None,
        families: Sequence[str] = (),
        tier: SharedTier | None = None,
        policy: SchedulingPolicy | None = None,
        engine_id: str = _WORKER_ID,
    ) -> None:
        quiet_libraries()
        self._engine_id = engine_id
        self._models = tuple(models)
        self._threads = threads
        self._clock = SystemClock()
        self._catalog = Catalog.load(
            models, Path(checkpoints) if checkpoints else None, packages=families
        )
        self._pools = MemoryPools(pool_budgets(memory_bytes or machine_bytes()))
        self._artifacts = LocalArtifacts(self._clock)
        self._residents = Residents(
            self._pools,
            CatalogLoader(self._catalog, _WORKER_ID, families),
            {LOOP_ID: ArtifactWriter(self._artifacts, _WORKER_ID, library_versions())},
        )
        self._executor = Executor(
            worker_id=_WORKER_ID,
            pools=self._pools,
            residents=self._residents,
            features=TextFeatureCache(self._pools.budgets_bytes[MemoryTag.CACHES]),
            clock=self._clock,
            tier=tier,
            shelf=LocalBlobs(self._pools.budgets_bytes[MemoryTag.STAGING]),
        )
        self._core = SchedulerCore(DeployedModels(self._catalog), policy=policy or _POLICY)
        self._driver = LocalDriver(
            core=self._core,
            executor=self._executor,
            inputs=RequestInputs(self._artifacts, self._executor.values),
            clock=self._clock,
            start=self._start,
        )
        self._driver.start()

    @classmethod
    def from_deployment(cls, path: Path | str) -> Self:
        """An engine with the models that a deployment file names.

        Raises NotFound and InvalidDocument for the file, and as the constructor does.
        """
        deployment = read_deployment(Path(path))
        return cls(
            deployment.models,
            checkpoints=deployment.checkpoints_path,
            threads=deployment.threads or None,
            memory_bytes=deployment.memory_bytes or None,
            policy=replace(deployment.scheduling, snapshot_overhead_max=0),
        )

    def generate(self, prompt: str, *, timeout_s: float | None = None, **options: Any) -> Video:
        """Generate a video and wait for it; `options` are those of `submit`.

        Raises InvalidField for what cannot be run, and what the request failed of.
        """
        generation = self.submit(prompt, **options).result(timeout_s)
        if not isinstance(generation, Video):
            raise FailedPrecondition(
                f"program {generation.request.program_id} makes no video; use submit",
                subject="program",
            )
        return generation

    def submit(
        self,
        prompt: str = "",
        *,
        model: str = "",
        program: str = "",
        kind: RequestKind | None = None,
        negative_prompt: str | None = None,
        image: Path | str | bytes | None = None,
        inputs: Sequence[InputPart] = (),
        size: tuple[int, int] | None = None,
        num_frames: int | None = None,
        duration: float | None = None,
        fps: int | None = None,
        steps: int | None = None,
        guidance_scale: float | None = None,
        flow_shift: float | None = None,
        seed: int | None = None,
        sampler: str | None = None,
        noise_level: float | None = None,
        outputs: OutputSpec | None = None,
        priority: int = 0,
        deadline: datetime | None = None,
        required_weights_version: str = "",
    ) -> RequestHandle:
        """Ask for a generation; it runs beside the others.

        `model` is the engine's first unless named; `size` is width and height in pixels;
        `duration` in seconds takes the nearest number of frames that the model can make. With
        an `image`, a path or bytes, the video starts from its middle in the shape of the size;
        nothing is stretched. `sampler` is one that the card offers, such as "flow_sde". With
        `outputs.capture` the result has `behaviors`. With `required_weights_version` it runs on
        these weights or fails. What is left out takes the card's default. Raises InvalidField
        naming the field, and OSError for an image that cannot be read.
        """
        entry = self._catalog.get(model or self._models[0])
        request_id = new_id("req", milliseconds(self._clock.now()))
        if image is not None:
            program = program or IMAGE_TO_VIDEO
            inputs = (*inputs, self._keep_image(request_id, image))
        if duration is not None:
            if num_frames is not None:
                raise InvalidField("duration", duration, "left out when num_frames is given")
            num_frames = frames_of(entry.card, "duration", duration, fps)
        width, height = size or (None, None)
        texts = {PROMPT: prompt or None, NEGATIVE_PROMPT: negative_prompt}
        draft = RequestDraft(
            model_id=entry.card.model_id,
            inputs=(
                *(
                    TextPart(role=role, text=text)
                    for role, text in texts.items()
                    if text is not None
                ),
                *inputs,
            ),
            kind=kind,
            program_id=program,
            sampling=SamplingOverrides(
                width=width,
                height=height,
                num_frames=num_frames,
                fps=fps,
                steps=steps,
                guidance_scale=guidance_scale,
                flow_shift=flow_shift,
                seed=seed,
                sampler=sampler,
                noise_level=noise_level,
            ),
            outputs=outputs,
            priority=priority,
            deadline=deadline,
            required_weights_version=required_weights_version,
        )
        try:
            return self._submit(request_id, draft, entry)
        except FastVideoError:
            self._artifacts.discard(request_id)
            raise

    def deployment_card(self) -> DeploymentCard:
        """What this engine offers to whoever routes to it."""
        return self._driver.look(self._card)

    def offer(self) -> EngineOffer:
        """The card with what there is to do now, by which `fastvideo.deployment.fleet` chooses."""
        return self._driver.look(lambda: EngineOffer(card=self._card(), load=self._core.load))

    def _card(self) -> DeploymentCard:
        return deployment_card(
            self._engine_id,
            [self._catalog.get(model_id) for model_id in self._models],
            pools=(RolePoolSpec(role=_WORKER_ID, replicas=1, models=self._models),),
            costs=self._core.cost_model,
            slo_targets=self._core.slo_targets,
        )

    @property
    def memory_bytes(self) -> Mapping[str, int]:
        """Bytes in use by pool: weights, activations, caches, staging."""
        return {tag.value: size for tag, size in self._pools.in_use_bytes().items()}

    def close(self) -> None:
        """Stop after the step that runs; requests that have not ended fail as Unavailable."""
        self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self) -> WorkerAttached:
        start = start_models(
            self._catalog, self._residents, self._executor, self._models, self._threads
        )
        return WorkerAttached(
            worker_id=_WORKER_ID,
            instances=tuple(instance.state() for instance in self._residents.all()),
            memory_bytes=unit_budgets(self._pools.budgets_bytes),
            compute_slots=_COMPUTE_SLOTS,
            io_slots=_IO_SLOTS,
            snapshots=True,
            resident_requests=self._executor.places,
            fingerprint=machine_fingerprint(start.threads),
        )

    def _keep_image(self, request_id: str, image: Path | str | bytes) -> ImagePart:
        """Keep an image for as long as its request runs. Raises InvalidField and OSError."""
        data = image if isinstance(image, bytes) else Path(image).read_bytes()
        decode_image(data, "image")  # Here, where the caller still waits.
        artifact = NewArtifact(
            artifact_id=derived_id("art", request_id, "image"),
            kind=ArtifactKind.IMAGE,
            name="image",
            content_type="application/octet-stream",
            producer=Producer(request_id=request_id),
        )
        record = self._artifacts.put(artifact, data)
        return ImagePart(role=IMAGE, artifact_id=record.artifact_id)

    def _submit(self, request_id: str, draft: RequestDraft, entry: CatalogEntry) -> RequestHandle:
        spec = resolve_request(
            draft,
            entry,
            request_id=request_id,
            tenant_id="",
            random_seed=secrets.randbelow(SEED_MAX + 1),
            now=self._clock.now(),
        )
        handle = RequestHandle(spec, self._cancel)
        self._driver.submit(
            spec,
            handle.report,
            lambda end, values: self._end(handle, end, values),
            handle.note,
        )
        return handle

    def _cancel(self, request_id: str, reason: str) -> None:
        scope = CancelScope(kind=CancelScopeKind.REQUEST, target_id=request_id)
        self._driver.cancel(CancelRequested(scope=scope, reason=reason))

    def _end(self, handle: RequestHandle, end: Terminal, values: Mapping[str, Any]) -> None:
        """Give the handle its result; nothing of the request stays behind."""
        outcome = self._outcome(handle, end, values)
        self._artifacts.discard(end.request_id)
        if isinstance(outcome, Generation):
            handle.complete(outcome)
        else:
            handle.fail(outcome)

    def _outcome(
        self, handle: RequestHandle, end: Terminal, values: Mapping[str, Any]
    ) -> Generation | FastVideoError:
        if isinstance(end, FailRequest):
            return error_of(end.error)
        if isinstance(end, CancelRequest):
            return Cancelled(
                f"request {end.request_id} was cancelled at {end.boundary}",
                subject=end.request_id,
                attributes={"boundary": end.boundary, "reason": end.reason},
            )
        try:
            return self._generation(handle, end, values)
        except FastVideoError as error:
            return error

    def _generation(
        self, handle: RequestHandle, end: CompleteRequest, values: Mapping[str, Any]
    ) -> Generation:
        taken = [self._artifacts.take(artifact_id) for artifact_id in end.artifact_ids]
        common: dict[str, Any] = {
            "request": handle.request,
            "notes": handle.notes,
            "artifacts": tuple(Artifact(record=record, data=data) for record, data in taken),
            "latents_digest": end.latents_digest,
            "scores": end.scores,
            "metrics": end.metrics,
        }
        frames = [value for name, value in values.items() if name.endswith(".frames")]
        return Video(frames=frames[-1].numpy(), **common) if frames else Generation(**common)
