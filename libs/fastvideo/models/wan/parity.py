"""Parity of Wan with `diffusers.WanPipeline` on the same weights, or with that for images.

C0 compares each component with the upstream object, C1 the trajectory of the latents step by
step and the final frames. C1 is not run where C0 fails. `python -m fastvideo.models.wan.parity`
prints the report.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import torch
from diffusers import UniPCMultistepScheduler, WanImageToVideoPipeline, WanPipeline
from PIL import Image

from fastvideo.deployment.catalog import Catalog
from fastvideo.errors import FastVideoError
from fastvideo.loops.contract import StepContext
from fastvideo.loops.divergence import compare_trajectories, max_abs_difference
from fastvideo.loops.guidance import Row, predict
from fastvideo.loops.layer_outputs import kept_outputs, layer_differences
from fastvideo.loops.runner import run_loop
from fastvideo.loops.samplers import UniPC
from fastvideo.media.images import Pixels, crop_box, decode_image
from fastvideo.model.embedded import EMBEDDED_MODEL_ID
from fastvideo.model.prompts import clean_prompt
from fastvideo.model.rungs import TapParity, climb, tolerance_of
from fastvideo.model.specs import ModelSpec
from fastvideo.models.parity import (
    ComponentParity,
    ParityReport,
    TrajectoryParity,
    format_report,
    parity_checks,
)
from fastvideo.models.registry import load_instance_parts
from fastvideo.models.resident import StandaloneModel
from fastvideo.models.wan.components import Vae
from fastvideo.models.wan.geometry import default_sampling, latent_shape
from fastvideo.models.wan.text import tokenize
from fastvideo.requests.types import (
    OutputSpec,
    RequestKind,
    RequestSpec,
    SamplingParams,
    TextPart,
)

_SEED: Final = 7


def load_reference(folder: Path) -> Any:
    """The upstream pipeline on the same checkpoint, in float32."""
    pipeline = WanPipeline.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def image_reference(reference: Any) -> Any:
    """The upstream pipeline for images over the same modules, with a timestep a token."""
    modules = ("tokenizer", "text_encoder", "vae", "scheduler", "transformer")
    pipeline = WanImageToVideoPipeline(
        **{name: getattr(reference, name) for name in modules}, expand_timesteps=True
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def parity_report(
    model: StandaloneModel,
    reference: Any,
    prompt: str,
    cases: Sequence[SamplingParams],
    image: Pixels | None = None,
    *,
    layers: bool = False,
) -> ParityReport:
    """C0 of every component, then C1 of every case, from an image if there is one.

    Where a component is too far, no trajectory is run. With `layers`, and where the card has a
    test of a layer, the layers of each component are compared too; they are all held in memory.
    """
    components: list[ComponentParity] = []
    trajectories: list[TrajectoryParity] = []

    def single() -> Iterator[TapParity]:
        for part in component_parity(model, reference, prompt, layers=layers):
            components.append(part)
            yield from part.taps

    def whole() -> Iterator[TapParity]:
        for sampling in cases:
            run = trajectory_parity(model, reference, prompt, sampling, image)
            trajectories.append(run)
            yield from run.taps

    ladder = climb({"C0": single, "C1": whole})
    return ParityReport(
        model_id=model.card.model_id,
        reference=model.card.parity.reference,
        components=tuple(components),
        trajectories=tuple(trajectories),
        not_run=ladder.not_run,
    )


def component_parity(
    model: StandaloneModel, reference: Any, prompt: str, *, layers: bool = False
) -> Iterator[ComponentParity]:
    """C0: tokenizer, text encoder, transformer, sampler and VAE against the upstream objects."""
    for name, compare in (
        ("tokenizer", _tokenizer),
        ("text_encoder", _text_encoder),
        ("transformer", _transformer),
        ("scheduler", _scheduler),
        ("vae", _vae),
    ):
        tests = model.card.components[name].parity_tests
        wanted = layers or any("/" in test.name for test in tests)
        pair = (getattr(model.components[name], "module", None), getattr(reference, name, None))
        modules = [part for part in pair if isinstance(part, torch.nn.Module)]
        compared: dict[str, float] = {}
        with torch.no_grad(), ExitStack() as stack:
            if wanted and len(modules) == len(pair):
                ours, theirs = (stack.enter_context(kept_outputs(module)) for module in modules)
                apart = compare(model, reference, prompt)
                compared = layer_differences(ours, theirs)
            else:
                apart = compare(model, reference, prompt)
        yield ComponentParity(
            component_id=name,
            max_abs_difference=apart,
            allowed=tolerance_of(tests, "C0", name),
            layers=tuple(
                TapParity(
                    rung="C0",
                    tap=f"{name}/{layer}",
                    max_abs_difference=difference,
                    tolerance=tolerance_of(tests, "C0", f"{name}/{layer}"),
                )
                for layer, difference in compared.items()
            ),
        )


def trajectory_parity(
    model: StandaloneModel,
    reference: Any,
    prompt: str,
    sampling: SamplingParams,
    image: Pixels | None = None,
) -> TrajectoryParity:
    """C1: the same prompt, seed and sampling through our loops and through the pipeline.

    With an image, which both see cut to the request's shape, `reference` is still the pipeline
    that `load_reference` gives.
    """
    request = parity_request(model.card, prompt, sampling)
    kernels = model.kernels
    ours: list[torch.Tensor] = []
    context = StepContext()
    values = dict(run_loop(kernels["encode"], request, {}, model).values)
    loop_id = "denoise"
    if image is not None:
        loop_id = "denoise_first_frame"
        given = {"image": torch.from_numpy(image)}
        values |= run_loop(kernels["vae_encode"], request, given, model).values
        reference = image_reference(reference)
    denoised = run_loop(
        kernels[loop_id],
        request,
        values,
        model,
        context=context,
        on_step=lambda state: ours.append(state.latents),
    )
    frames = run_loop(kernels["decode"], request, denoised.values, model).values["frames"]
    theirs, their_pixels = _reference_run(model, reference, prompt, sampling, image)
    their_frames = (their_pixels * 255).round().to(torch.uint8)
    return TrajectoryParity(
        sampling=sampling,
        latents=compare_trajectories(ours, theirs, _allowed(model.card, "latents")),
        latents_allowed=_allowed(model.card, "latents"),
        frames_max_difference=max_abs_difference(frames, their_frames),
        frames_allowed=_allowed(model.card, "frames"),
        forwards=context.forwards,
    )


def parity_request(card: ModelSpec, prompt: str, sampling: SamplingParams) -> RequestSpec:
    """A generation request of a prompt."""
    return RequestSpec(
        request_id="parity",
        kind=RequestKind.GENERATION,
        model_id=card.model_id,
        inputs=(TextPart(role="prompt", text=prompt),),
        sampling=sampling,
        outputs=OutputSpec(video=True),
    )


def _reference_run(
    model: StandaloneModel,
    reference: Any,
    prompt: str,
    sampling: SamplingParams,
    image: Pixels | None,
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Latents after each step, and the pixels [F, height, width, 3] in [0, 1]."""
    trajectory: list[torch.Tensor] = []

    def keep(pipeline: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        trajectory.append(tensors["latents"].clone())
        return {}

    reference.scheduler = UniPCMultistepScheduler.from_config(
        reference.scheduler.config, flow_shift=sampling.flow_shift
    )
    given = {} if image is None else {"image": _cut(image, sampling)}
    pixels = reference(
        **given,
        prompt=prompt,
        width=sampling.width,
        height=sampling.height,
        num_frames=sampling.num_frames,
        num_inference_steps=sampling.steps,
        guidance_scale=sampling.guidance_scale,
        generator=torch.Generator("cpu").manual_seed(sampling.seed),
        max_sequence_length=model.card.processors["text"].max_tokens,
        callback_on_step_end=keep,
        output_type="pt",
    ).frames[0]
    return trajectory, pixels.permute(0, 2, 3, 1)


def _cut(image: Pixels, sampling: SamplingParams) -> Image.Image:
    """The image in the request's shape; scaling it is the pipeline's own doing."""
    whole = Image.fromarray(image)
    return whole.crop(crop_box(whole.size, sampling.width, sampling.height))


def _tokenizer(model: StandaloneModel, reference: Any, prompt: str) -> float:
    length = model.card.processors["text"].max_tokens
    ours, _ = tokenize(model.components["tokenizer"], clean_prompt(prompt), length)
    theirs = reference.tokenizer(
        prompt, padding="max_length", max_length=length, truncation=True, return_tensors="pt"
    )
    return max_abs_difference(ours, theirs.input_ids)


def _text_encoder(model: StandaloneModel, reference: Any, prompt: str) -> float:
    request = parity_request(model.card, prompt, default_sampling(model.card, _SEED))
    ours = run_loop(model.kernels["encode"], request, {}, model).values["text_features"][:1]
    theirs, _ = reference.encode_prompt(
        prompt,
        do_classifier_free_guidance=False,
        max_sequence_length=model.card.processors["text"].max_tokens,
    )
    return max_abs_difference(ours, theirs)


def _transformer(model: StandaloneModel, reference: Any, prompt: str) -> float:
    """Four rows of ours in one forward against four forwards of the upstream module."""
    generator = torch.Generator("cpu").manual_seed(_SEED)
    shape = latent_shape(model.card, default_sampling(model.card, _SEED))
    config = reference.transformer.config
    samples = torch.randn((4, *shape), generator=generator)
    timesteps = torch.randint(1, 1000, (4,), generator=generator)
    length = model.card.processors["text"].max_tokens
    features = torch.randn((4, length, config.text_dim), generator=generator)
    rows_max = model.components["transformer"].measured_rows_max(shape, length)
    ours, _ = predict(
        model.components["transformer"],
        [
            Row(
                sample=samples[row : row + 1],
                timestep=timesteps[row : row + 1],
                features=features[row : row + 1],
            )
            for row in range(4)
        ],
        rows_max,
    )
    theirs = [
        reference.transformer(
            samples[row : row + 1],
            timesteps[row : row + 1],
            features[row : row + 1],
            return_dict=False,
        )[0]
        for row in range(4)
    ]
    return max_abs_difference(torch.cat(ours), torch.cat(theirs))


def _scheduler(model: StandaloneModel, reference: Any, prompt: str) -> float:
    """Ten steps over random velocities, against a scheduler that keeps its own state."""
    sampling = default_sampling(model.card, _SEED)
    shape = (1, *latent_shape(model.card, sampling))
    generator = torch.Generator("cpu").manual_seed(_SEED)
    sampler: UniPC = model.components["scheduler"]
    schedule, state = sampler.schedule(10, sampling.flow_shift), sampler.start()
    upstream = UniPCMultistepScheduler.from_config(
        reference.scheduler.config, flow_shift=sampling.flow_shift
    )
    upstream.set_timesteps(10)
    upstream.set_begin_index(0)
    ours = theirs = torch.randn(shape, generator=generator)
    worst = 0.0
    for timestep in upstream.timesteps:
        velocity = torch.randn(shape, generator=generator)
        state, ours = sampler.step(schedule, state, velocity, ours)
        theirs = upstream.step(velocity, timestep, theirs, return_dict=False)[0]
        worst = max(worst, max_abs_difference(ours, theirs))
    return worst


def _vae(model: StandaloneModel, reference: Any, prompt: str) -> float:
    """Frame by frame against the upstream call on the whole video."""
    sampling = default_sampling(model.card, _SEED)
    generator = torch.Generator("cpu").manual_seed(_SEED)
    latents = torch.randn((1, *latent_shape(model.card, sampling)), generator=generator)
    vae: Vae = model.components["vae"]
    prepared, cache = vae.prepare(latents), (None,) * vae.cached_convolutions
    pixels = []
    for index in range(latents.shape[2]):
        frame = prepared[:, :, index : index + 1]
        decoded, cache = vae.decode_frame(frame, cache, first=index == 0)
        pixels.append(decoded)
    config, shape = reference.vae.config, (1, -1, 1, 1, 1)
    std = 1.0 / torch.tensor(config.latents_std).view(shape)
    scaled = latents / std + torch.tensor(config.latents_mean).view(shape)
    theirs = reference.vae.decode(scaled, return_dict=False)[0]
    return max_abs_difference(torch.cat(pixels, dim=2), theirs)


def _allowed(card: ModelSpec, name: str) -> float:
    return tolerance_of(card.parity.tests, "C1", name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the parity report of a model; the status is 1 when it is beyond what is allowed."""
    parser = argparse.ArgumentParser(prog="python -m fastvideo.models.wan.parity")
    parser.add_argument("--model", default=EMBEDDED_MODEL_ID, help="model id")
    parser.add_argument("--checkpoints", type=Path, help="folder of checkpoints, one a model")
    parser.add_argument("--image", type=Path, help="an image file that the video starts from")
    parser.add_argument("--prompt", default="a red three moving left")
    parser.add_argument("--steps", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--guidance", type=float, nargs="+", default=[1.0, 5.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--layers", action="store_true", help="compare layer by layer too")
    parser.add_argument("--json", action="store_true", help="print each result as JSON, a line")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    try:
        entry = Catalog.load([options.model], options.checkpoints).get(options.model)
        folder = entry.require_checkpoint()
        parts = load_instance_parts(entry.card, folder)
        image = decode_image(options.image.read_bytes(), "--image") if options.image else None
    except FastVideoError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    default = default_sampling(entry.card)
    cases = [
        replace(default, steps=steps, guidance_scale=guidance, seed=seed)
        for steps in options.steps
        for guidance in options.guidance
        for seed in options.seeds
    ]
    model = StandaloneModel(card=entry.card, parts=parts)
    report = parity_report(
        model, load_reference(folder), options.prompt, cases, image, layers=options.layers
    )
    if options.json:
        for check in parity_checks(report, entry.card_digest, parts.fingerprint):
            sys.stdout.write(json.dumps(asdict(check)) + "\n")
    else:
        sys.stdout.write(format_report(report) + "\n")
    return 0 if report.passes else 1


if __name__ == "__main__":
    sys.exit(main())
