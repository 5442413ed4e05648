from dataclasses import replace
from pathlib import Path

import pytest

from fastvideo.errors import NotFound
from fastvideo.models.registry import FAMILIES, load_family
from tests.parity.wan import embedded_entry


def test_an_unknown_family_is_refused_with_the_known_ones() -> None:
    card = replace(embedded_entry().card, family="cinema")
    with pytest.raises(NotFound, match="'cinema'; known families: wan"):
        load_family(card)


def test_every_family_folder_is_registered() -> None:
    import fastvideo.models

    folder = Path(fastvideo.models.__file__).parent
    assert {path.parent.name for path in folder.glob("*/cards")} == set(FAMILIES)
