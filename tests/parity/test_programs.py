"""The programs of Wan on the executor that serves: each node drives its loop unit by unit."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
import torch

from fastvideo.cache.features import TextFeatureCache
from fastvideo.clock import SystemClock
from fastvideo.engine.artifact_writer import ArtifactWriter
from fastvideo.engine.executor import Executor
from fastvideo.engine.instance import ModelInstance
from fastvideo.engine.residents import Residents
from fastvideo.engine.sink import LocalArtifacts
from fastvideo.loops.runner import run_loop
from fastvideo.media.tensors import decode_tensors
from fastvideo.memory.pools import MemoryPools, MemoryTag
from fastvideo.program.specs import EdgeKind, NodeKind, ProgramNode, ProgramSpec
from fastvideo.program.validation import node_order
from fastvideo.requests.types import OutputSpec, RequestKind, RequestSpec
from fastvideo.scheduling.commands import ExecuteBatch, PrepareLoop
from fastvideo.scheduling.events import LoopPrepared
from fastvideo.scheduling.work import LoopRef, LoopResult, StepResult, UnitKind
from tests.parity.wan import (
    embedded_entry,
    embedded_model,
    generation,
    upstream_pipeline,
)

INSTANCE_ID = "mi_1"


class OneModel:
    """A loader of the model that is already in memory."""

    def expected_bytes(self, model_id: str, checkpoint: str) -> int:
        return 0

    def load(self, model_id: str, checkpoint: str) -> ModelInstance:
        model, entry = embedded_model(), embedded_entry()
        return ModelInstance(
            model_instance_id=INSTANCE_ID,
            card=model.card,
            card_digest=entry.card_digest,
            components=model.components,
            kernels=model.kernels,
            weights_version=model.weights_version,
        )


@dataclass
class Bench:
    """One executor with the embedded model, and what its units were."""

    executor: Executor
    artifacts: LocalArtifacts
    # Node id to unit kinds and steps, in the order that they ran.
    ran: dict[str, list[tuple[UnitKind, int]]] = field(default_factory=dict)
    results: list[StepResult] = field(default_factory=list)

    def run(self, program: ProgramSpec, request: RequestSpec) -> dict[str, LoopResult]:
        """Every node in order; results by node."""
        return {node.node_id: self.node(program, node, request) for node in node_order(program)}

    def node(self, program: ProgramSpec, node: ProgramNode, request: RequestSpec) -> LoopResult:
        prepared = self.executor.prepare(
            PrepareLoop(
                loop=LoopRef(request_id=request.request_id, node_id=node.node_id, attempt=1),
                loop_id=node.loop_id,
                model_instance_id=INSTANCE_ID,
                request=request,
                inputs=self._inputs(program, node, request),
            )
        )
        assert isinstance(prepared, LoopPrepared), prepared
        plan = prepared.plan
        while True:
            [unit] = plan.units
            steps = self.ran.setdefault(node.node_id, [])
            steps.append((unit.kind, unit.step_range.start))
            batch = ExecuteBatch(batch_id="b", kind=unit.kind, unit_ids=(unit.unit_id,))
            [result] = self.executor.execute(batch).results
            assert result.error is None, result.error
            self.results.append(result)
            if result.loop_result is not None:
                return result.loop_result
            assert result.next_plan is not None
            plan = result.next_plan

    def _inputs(
        self, program: ProgramSpec, node: ProgramNode, request: RequestSpec
    ) -> dict[str, str]:
        scope = (request.request_id, 1)
        stored = {
            name: f"request.{name}"
            for name in node.inputs
            if self.executor.values.has(scope, f"request.{name}")
        }
        return stored | {
            edge.value: f"{edge.source_node}.{edge.value}"
            for edge in program.edges
            if edge.target_node == node.node_id and edge.kind is EdgeKind.TENSOR
        }


@pytest.fixture
def bench() -> Iterator[Bench]:
    clock = SystemClock()
    pools = MemoryPools(dict.fromkeys(MemoryTag, 1 << 30))
    artifacts = LocalArtifacts(clock)
    residents = Residents(pools, OneModel(), {"write": ArtifactWriter(artifacts, "w", {})})
    residents.load("moving-digits")
    executor = Executor(
        worker_id="w",
        pools=pools,
        residents=residents,
        features=TextFeatureCache(1 << 20),
        clock=clock,
    )
    yield Bench(executor, artifacts)
    executor.release_all()


def program(kind: RequestKind) -> ProgramSpec:
    return embedded_entry().program_for(kind, "")


@pytest.mark.row("PRG-01", "PRG-06")
def test_text_to_video_runs_its_loops_step_by_step_over_one_model(bench: Bench) -> None:
    request = generation(steps=4, guidance_scale=5.0, seed=3)
    text_to_video = program(RequestKind.GENERATION)
    assert {node.kind for node in text_to_video.nodes} == {NodeKind.MODEL_LOOP, NodeKind.ARTIFACT}

    results = bench.run(text_to_video, request)

    assert list(bench.ran) == ["encode", "denoise", "decode", "write"]
    assert bench.ran["encode"] == [(UnitKind.ENCODER_CHUNK, 0), (UnitKind.ENCODER_CHUNK, 1)]
    assert bench.ran["denoise"] == [(UnitKind.DIFFUSION_STEP, step) for step in range(4)]
    assert bench.ran["decode"] == [(UnitKind.VAE_TILE, step) for step in range(3)]
    assert bench.ran["write"] == [(UnitKind.ARTIFACT_WRITE, 0)]
    model = embedded_model()
    features = run_loop(model.kernels["encode"], request, {}, model).values
    alone = run_loop(model.kernels["denoise"], request, features, model)
    assert results["denoise"].digests == alone.digests
    assert len(results["write"].artifact_ids) == 1
    digests = [result.state_digest for result in bench.results]
    assert len(set(digests)) == len(digests)


@pytest.mark.row("CCH-12")
def test_the_text_features_of_a_second_request_come_from_the_cache(bench: Bench) -> None:
    encode = program(RequestKind.ENCODING)
    outcomes = []
    for request_id in ("r1", "r2"):
        request = replace(generation(request_id), kind=RequestKind.ENCODING)
        bench.results.clear()
        result = bench.node(encode, encode.nodes[0], request)
        outcomes.append([look.outcome for step in bench.results for look in step.cache_lookups])
        bench.results.clear()
        assert (
            result.digests
            == run_loop(embedded_model().kernels["encode"], request, {}, embedded_model()).digests
        )
    assert outcomes == [["miss"], ["hit"]]


@pytest.mark.row("PRG-07")
def test_a_component_node_decodes_given_latents_with_the_vae_alone(bench: Bench) -> None:
    convert = program(RequestKind.CONVERSION)
    node = convert.nodes[0]
    assert (node.kind, node.component_id) == (NodeKind.COMPONENT, "vae")
    latents = torch.randn((1, 8, 3, 6, 6), generator=torch.Generator().manual_seed(4))
    request = generation("c1", kind=RequestKind.CONVERSION)
    bench.executor.values.put(("c1", 1), "request.latents", latents)
    other = Calls("transformer", "text_encoder")

    with other:
        results = bench.run(convert, request)

    assert other.names == []
    assert bench.ran["decode"] == [(UnitKind.VAE_TILE, step) for step in range(3)]
    vae = upstream_pipeline().vae
    shape = (1, -1, 1, 1, 1)
    std = 1.0 / torch.tensor(vae.config.latents_std).view(shape)
    scaled = latents / std + torch.tensor(vae.config.latents_mean).view(shape)
    with torch.no_grad():
        video = vae.decode(scaled, return_dict=False)[0]
    frames = upstream_pipeline().video_processor.postprocess_video(video, output_type="pt")
    expected = (frames[0].permute(0, 2, 3, 1) * 255).round().to(torch.uint8)
    found = bench.executor.values.bind(("c1", 1), {"frames": "decode.frames"})["frames"]
    assert torch.equal(found, expected)
    assert len(results["write"].artifact_ids) == 1


def test_latents_and_scores_are_programs_too(bench: Bench) -> None:
    request = generation("t1", steps=3, kind=RequestKind.TRAINING_SAMPLE)
    sampled = bench.run(
        program(RequestKind.TRAINING_SAMPLE), replace(request, outputs=OutputSpec(latents=True))
    )
    [artifact_id] = sampled["write"].artifact_ids
    _, data = bench.artifacts.take(artifact_id)
    latents = decode_tensors(data)["latents"]

    bench.executor.values.put(("s1", 1), "request.latents", latents)
    scoring = generation("s1", kind=RequestKind.SCORING)
    scored = bench.run(
        program(RequestKind.SCORING), replace(scoring, outputs=OutputSpec(video=False))
    )
    assert set(scored["latent_score"].scores) == {
        "velocity_mse",
        *(f"velocity_mse_sigma_{sigma:.2f}" for sigma in (0.1, 0.3, 0.5, 0.7, 0.9)),
    }
    assert len(scored["write"].artifact_ids) == 1


class Calls:
    """Names of the components that run while it is open."""

    def __init__(self, *names: str) -> None:
        self._watched = names
        self.names: list[str] = []

    def __enter__(self) -> None:
        components = embedded_model().components
        self._handles = [
            components[name].register_forward_pre_hook(
                lambda *_, name=name: self.names.append(name)
            )
            for name in self._watched
        ]

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()
