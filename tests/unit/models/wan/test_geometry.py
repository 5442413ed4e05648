from dataclasses import replace
from typing import Any

import pytest

from fastvideo.errors import InvalidField
from fastvideo.models.wan.geometry import latent_shape, shape_label
from tests.parity.wan import embedded_entry, sampling


def test_latents_are_an_eighth_in_space_and_a_fourth_in_time() -> None:
    card = embedded_entry().card
    assert latent_shape(card, sampling()) == (8, 3, 6, 6)
    assert latent_shape(card, sampling(width=64, height=32, num_frames=1)) == (8, 1, 4, 8)
    assert shape_label((8, 3, 6, 6)) == "8x3x6x6"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"width": 40}, "width"),
        ({"height": 0}, "height"),
        ({"num_frames": 8}, "num_frames"),
        ({"num_frames": 0}, "num_frames"),
    ],
)
def test_a_size_off_the_grid_is_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        latent_shape(embedded_entry().card, replace(sampling(), **changes))
    assert caught.value.field == field
