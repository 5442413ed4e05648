"""A small card with two programs, as data."""

from datetime import UTC, datetime

import pytest

from fastvideo.deployment.catalog import CatalogEntry
from fastvideo.model.specs import (
    CapabilityMatrix,
    CostPrior,
    LoopSpec,
    ModelSpec,
    ParallelismContract,
    ParameterSpec,
    ParityContract,
    ProcessorSpec,
    StepPolicy,
)
from fastvideo.program.specs import NodeKind, ProgramKind, ProgramNode, ProgramSpec
from fastvideo.requests.types import RequestKind
from fastvideo.scheduling.work import UnitKind


@pytest.fixture
def now() -> datetime:
    return datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def loop(loop_id: str, unit_kind: UnitKind, behavior: str | None = None) -> LoopSpec:
    return LoopSpec(
        loop_id=loop_id,
        unit_kind=unit_kind,
        behavior_record_schema=behavior,
        step_policy=StepPolicy(),
        cost=CostPrior(),
    )


def node(loop_id: str, kind: NodeKind, inputs: tuple[str, ...], output: str) -> ProgramNode:
    return ProgramNode(
        node_id=loop_id, kind=kind, loop_id=loop_id, inputs=inputs, outputs=(output,)
    )


@pytest.fixture
def card() -> ModelSpec:
    size = ParameterSpec(default_value=48, minimum=16, maximum=256, multiple_of=16)
    return ModelSpec(
        model_id="digits",
        family="wan",
        loops={
            "encode": loop("encode", UnitKind.ENCODER_CHUNK),
            "denoise": loop("denoise", UnitKind.DIFFUSION_STEP, "flow_matching.v1"),
            "decode": loop("decode", UnitKind.VAE_TILE),
            "write": loop("write", UnitKind.ARTIFACT_WRITE),
        },
        capabilities=CapabilityMatrix(capabilities=("text_to_video", "vae_decode")),
        processors={"text": ProcessorSpec(processor_id="text", max_characters=100)},
        parallelism=ParallelismContract(),
        parity=ParityContract(),
        sampling={
            "width": size,
            "height": size,
            "num_frames": ParameterSpec(
                default_value=9, minimum=1, maximum=49, multiple_of=4, offset=1
            ),
            "fps": ParameterSpec(default_value=8, minimum=1, maximum=60, multiple_of=1),
            "steps": ParameterSpec(default_value=20, minimum=1, maximum=1000, multiple_of=1),
            "guidance_scale": ParameterSpec(default_value=3.0, minimum=1.0, maximum=20.0),
            "flow_shift": ParameterSpec(default_value=3.0, minimum=0.1, maximum=20.0),
            "seed": ParameterSpec(minimum=0, maximum=2**53 - 1, multiple_of=1),
            "noise_level": ParameterSpec(default_value=0.7, minimum=0.0, maximum=1.0),
        },
        sampler="unipc_multistep",
        samplers=("flow_sde",),
    )


@pytest.fixture
def text_to_video() -> ProgramSpec:
    loop_node, artifact = NodeKind.MODEL_LOOP, NodeKind.ARTIFACT
    return ProgramSpec(
        program_id="text_to_video",
        kind=ProgramKind.INLINE,
        capability="text_to_video",
        request_kind=RequestKind.GENERATION,
        is_default=True,
        request_inputs=("prompt", "negative_prompt"),
        nodes=(
            node("encode", loop_node, ("prompt", "negative_prompt"), "text_features"),
            node("denoise", loop_node, ("text_features",), "latents"),
            node("decode", loop_node, ("latents",), "frames"),
            node("write", artifact, ("frames", "latents"), "artifacts"),
        ),
    )


@pytest.fixture
def decode_latents() -> ProgramSpec:
    return ProgramSpec(
        program_id="decode_latents",
        kind=ProgramKind.INLINE,
        capability="vae_decode",
        request_kind=RequestKind.CONVERSION,
        is_default=True,
        request_inputs=("latents",),
        nodes=(
            node("decode", NodeKind.MODEL_LOOP, ("latents",), "frames"),
            node("write", NodeKind.ARTIFACT, ("frames",), "artifacts"),
        ),
    )


@pytest.fixture
def entry(card: ModelSpec, text_to_video: ProgramSpec, decode_latents: ProgramSpec) -> CatalogEntry:
    programs = {program.program_id: program for program in (text_to_video, decode_latents)}
    return CatalogEntry(
        card=card,
        card_digest="d1",
        programs=programs,
        checkpoint_path=None,
        unavailable_reason="",
    )
