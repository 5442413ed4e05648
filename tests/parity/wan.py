"""The embedded model, its upstream pipeline, and requests to both."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from fastvideo.deployment.catalog import Catalog, CatalogEntry
from fastvideo.models.registry import load_instance_parts
from fastvideo.models.resident import StandaloneModel
from fastvideo.models.wan.geometry import default_sampling
from fastvideo.models.wan.parity import load_reference
from fastvideo.requests.types import (
    OutputSpec,
    RequestKind,
    RequestSpec,
    SamplingParams,
    TextPart,
)

PROMPT = "a red three moving left"


@cache
def embedded_entry() -> CatalogEntry:
    """The catalog's entry of the embedded model."""
    return Catalog.load(["moving-digits"]).get("moving-digits")


def embedded_folder() -> Path:
    """The embedded checkpoint's folder."""
    return embedded_entry().require_checkpoint()


@cache
def embedded_model() -> StandaloneModel:
    """The embedded model, loaded once a test run; nothing may change it."""
    torch.set_num_threads(1)
    entry = embedded_entry()
    return StandaloneModel(
        card=entry.card, parts=load_instance_parts(entry.card, embedded_folder())
    )


@cache
def upstream_pipeline() -> Any:
    """`diffusers.WanPipeline` on the same checkpoint, loaded once a test run."""
    torch.set_num_threads(1)
    return load_reference(embedded_folder())


def sampling(**changes: Any) -> SamplingParams:
    """The embedded model's defaults with seed 0, and what is changed."""
    return replace(default_sampling(embedded_entry().card), **changes)


def generation(
    request_id: str = "r1",
    *,
    prompt: str = PROMPT,
    negative_prompt: str | None = None,
    kind: RequestKind = RequestKind.GENERATION,
    **changes: Any,
) -> RequestSpec:
    """A request to the embedded model."""
    inputs = [TextPart(role="prompt", text=prompt)]
    if negative_prompt is not None:
        inputs.append(TextPart(role="negative_prompt", text=negative_prompt))
    return RequestSpec(
        request_id=request_id,
        kind=kind,
        model_id="moving-digits",
        inputs=tuple(inputs),
        sampling=sampling(**changes),
        outputs=OutputSpec(video=True),
    )
