"""`fastvideo generate`: a prompt becomes files."""

from pathlib import Path
from typing import Annotated

import typer

from fastvideo.cli.options import AsJson, Gateway, parse_size
from fastvideo.cli.stack import DataOption
from fastvideo.model.embedded import EMBEDDED_MODEL_ID
from fastvideo.requests.types import Capture, TraceLevel


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("generate")(generate)


def generate(
    prompt: Annotated[str, typer.Argument(help="What to generate.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The video file; default: REQUEST.mp4, by its id."),
    ] = None,
    image: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The image that the video starts from: PNG, JPEG or WebP. Its middle is taken "
            "in the shape of --size; nothing is stretched.",
        ),
    ] = None,
    sheet: Annotated[
        Path | None, typer.Option(help="Also write a contact sheet of the frames, PNG.")
    ] = None,
    preview: Annotated[
        Path | None, typer.Option(help="Also write the coarse video that is ready first, MP4.")
    ] = None,
    latents: Annotated[
        Path | None, typer.Option(help="Also write the final latents, safetensors.")
    ] = None,
    model: Annotated[str, typer.Option(metavar="ID", help="The model.")] = EMBEDDED_MODEL_ID,
    steps: Annotated[int | None, typer.Option(help="Denoising steps.")] = None,
    guidance: Annotated[float | None, typer.Option(help="Guidance scale.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed; default: a random one, which is told.")
    ] = None,
    frames: Annotated[int | None, typer.Option(help="Number of frames.")] = None,
    size: Annotated[str | None, typer.Option(metavar="WxH", help="Pixels, such as 48x48.")] = None,
    fps: Annotated[int | None, typer.Option(help="Frames per second of the file.")] = None,
    negative: Annotated[str | None, typer.Option(help="What to avoid.")] = None,
    sampler: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A sampler that the model offers; flow_sde adds noise and knows its likelihood.",
        ),
    ] = None,
    noise_level: Annotated[
        float | None, typer.Option(help="How much noise flow_sde adds; 0 adds none.")
    ] = None,
    capture: Annotated[
        Capture | None,
        typer.Option(help="Also record what the policy did, for `fastvideo log behaviors`."),
    ] = None,
    trace: Annotated[
        TraceLevel | None,
        typer.Option(
            help="detail records what every component and layer gives, step by step, so that a "
            "replay can name the layer that differs. It takes longer."
        ),
    ] = None,
    session: Annotated[str, typer.Option(metavar="ID", help="The session it belongs to.")] = "",
    ttl: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="SECONDS",
            help="How long the server keeps what it made; default: its own.",
        ),
    ] = None,
    gateway: Gateway = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Generate a video from a prompt, or from a prompt and an image.

    Starts the embedded stack when no server is given or runs. What is left out takes the
    model's default. With --json a video is written only with -o.
    Ctrl-C cancels the request. Exit codes: 0 done, 1 refused or failed, 2 usage, 130 cancelled.
    """
    from fastvideo.cli.generation import Generation, run_generation

    width, height = parse_size(size) if size is not None else (None, None)
    asked = Generation(
        prompt=prompt,
        image=image,
        output=output,
        sheet=sheet,
        preview=preview,
        latents=latents,
        model_id=model,
        steps=steps,
        guidance_scale=guidance,
        seed=seed,
        num_frames=frames,
        width=width,
        height=height,
        fps=fps,
        negative_prompt=negative,
        sampler=sampler,
        noise_level=noise_level,
        capture=capture,
        trace=trace,
        session_id=session,
        ttl_s=ttl,
    )
    raise typer.Exit(run_generation(asked, gateway, data, as_json=as_json))
