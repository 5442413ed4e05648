"""Prompts are counted in tokens as the encoder will count them."""

from pathlib import Path

import pytest

from fastvideo.deployment.catalog import Catalog
from fastvideo.model.prompts import TokenCounter


@pytest.fixture(scope="module")
def checkpoint() -> Path:
    return Catalog.load(["moving-digits"]).get("moving-digits").require_checkpoint()


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 1), ("red", 2), (" a  red\tthree ", 4), ("red&nbsp;three", 3), ("red " * 40, 41)],
)
def test_words_and_the_end_token_are_counted_after_cleaning(
    checkpoint: Path, text: str, tokens: int
) -> None:
    assert TokenCounter(checkpoint).count(text) == tokens
