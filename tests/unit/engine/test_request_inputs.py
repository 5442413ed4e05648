"""Stored inputs become values once, under the role's name; what they cannot be is named."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from fastvideo.engine.request_inputs import RequestInputs
from fastvideo.engine.values import ValueStore
from fastvideo.errors import InvalidField
from fastvideo.media.tensors import encode_tensors
from fastvideo.memory.pools import MemoryPools, MemoryTag
from fastvideo.requests.types import (
    ImagePart,
    InputPart,
    LatentPart,
    OutputSpec,
    RequestKind,
    RequestSpec,
    SamplingParams,
    TextPart,
)
from fastvideo.scheduling.commands import PrepareLoop
from fastvideo.scheduling.work import LoopRef

PIXELS = np.random.default_rng(1).integers(0, 256, (6, 8, 3), dtype=np.uint8)
LATENTS = torch.arange(4.0)


def png() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(PIXELS).save(buffer, format="PNG")
    return buffer.getvalue()


class Store:
    """Stored artifacts, and how often each was read."""

    def __init__(self, **stored: bytes) -> None:
        self._stored = stored
        self.reads: list[str] = []

    def get(self, artifact_id: str) -> bytes:
        self.reads.append(artifact_id)
        return self._stored[artifact_id]


def command(*parts: InputPart, node_id: str = "n") -> PrepareLoop:
    return PrepareLoop(
        loop=LoopRef(request_id="r", node_id=node_id, attempt=1),
        loop_id="l",
        model_instance_id="m",
        request=RequestSpec(
            kind=RequestKind.GENERATION,
            inputs=(TextPart(role="prompt", text="p"), *parts),
            sampling=SamplingParams(),
            outputs=OutputSpec(),
        ),
    )


IMAGE = ImagePart(role="image", artifact_id="a")
LATENT = LatentPart(role="latents", artifact_id="a")


def values() -> ValueStore:
    return ValueStore(MemoryPools(dict.fromkeys(MemoryTag, 1 << 20)), 8)


def test_an_image_becomes_pixels_and_is_read_once_for_all_loops() -> None:
    kept, store = values(), Store(a=png())
    inputs = RequestInputs(store, kept)
    for node_id in ("one", "two"):
        asked = command(IMAGE, node_id=node_id)
        assert inputs.needed(asked)
        fetched = inputs.fetch(asked)
        bound = kept.bind(("r", 1), fetched.inputs)
        assert torch.equal(bound["image"], torch.from_numpy(PIXELS))
    assert store.reads == ["a"]


def test_latents_become_their_tensor() -> None:
    kept = values()
    store = Store(a=encode_tensors({"latents": LATENTS}))
    fetched = RequestInputs(store, kept).fetch(command(LATENT))
    assert torch.equal(kept.bind(("r", 1), fetched.inputs)["latents"], LATENTS)


def test_texts_alone_need_nothing() -> None:
    assert not RequestInputs(Store(), values()).needed(command())


@pytest.mark.parametrize(
    ("part", "data", "field", "reason"),
    [
        (IMAGE, b"no image", "inputs.image", "INVALID_IMAGE"),
        (IMAGE, png()[:-30], "inputs.image", "INVALID_IMAGE"),
        (LATENT, encode_tensors({"weights": LATENTS}), "inputs.latents", "INVALID_FIELD"),
        (LATENT, b"no tensors", "payload", "INVALID_FIELD"),
    ],
)
def test_what_is_stored_and_is_not_what_it_should_be_is_refused_by_name(
    part: InputPart, data: bytes, field: str, reason: str
) -> None:
    with pytest.raises(InvalidField) as caught:
        RequestInputs(Store(a=data), values()).fetch(command(part))
    assert (caught.value.field, caught.value.reason) == (field, reason)
