import math
from typing import Any

import pytest

from fastvideo.deployment.catalog import Catalog
from fastvideo.errors import InvalidField
from fastvideo.model.sampling import resolve_sampling
from fastvideo.requests.types import SamplingOverrides, SamplingParams

CARD = Catalog.load(["moving-digits"]).get("moving-digits").card


@pytest.mark.row("MOD-13")
def test_what_is_left_out_takes_the_cards_default_and_is_named() -> None:
    resolved = resolve_sampling(CARD, SamplingOverrides(steps=7, guidance_scale=4), random_seed=99)
    assert resolved.params == SamplingParams(
        width=48,
        height=48,
        num_frames=9,
        fps=8,
        steps=7,
        guidance_scale=4,
        flow_shift=3.0,
        seed=99,
    )
    assert set(resolved.defaulted) == {"width", "height", "num_frames", "fps", "flow_shift", "seed"}


def test_a_drawn_seed_is_folded_into_the_allowed_range() -> None:
    drawn = 2**64 - 1
    seed = resolve_sampling(CARD, SamplingOverrides(), random_seed=drawn).params.seed
    assert 0 <= seed <= CARD.sampling["seed"].maximum
    given = resolve_sampling(CARD, SamplingOverrides(seed=seed), random_seed=0).params.seed
    assert given == seed


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("width", 63, "16 to 256, a multiple of 16"),
        ("width", 0, "16 to 256"),
        ("height", 272, "16 to 256"),
        ("num_frames", 8, "1 to 49, a multiple of 4 plus 1"),
        ("num_frames", 0, "1 to 49"),
        ("steps", 0, "1 to 1000, whole numbers"),
        ("steps", 1001, "1 to 1000"),
        ("seed", -1, "0 to 9007199254740991"),
        ("guidance_scale", math.nan, "1 to 20"),
        ("guidance_scale", math.inf, "1 to 20"),
        ("guidance_scale", 0.5, "1 to 20"),
        ("flow_shift", 0.0, "0.1 to 20"),
        ("fps", 61, "1 to 60"),
    ],
)
def test_a_value_that_the_card_does_not_allow_is_refused(
    field: str, value: Any, allowed: str
) -> None:
    with pytest.raises(InvalidField) as caught:
        resolve_sampling(CARD, SamplingOverrides(**{field: value}), random_seed=0)
    assert caught.value.field == field
    assert allowed in caught.value.allowed
