import math
from dataclasses import dataclass

import pytest

from fastvideo.errors import ContractViolation
from fastvideo.model.caching import CacheClass
from fastvideo.model.canonical import canonical_bytes, canonical_digest


@dataclass(frozen=True)
class Point:
    x: float
    tags: tuple[str, ...] = ()


def test_the_encoding_is_sorted_ascii_json_with_type_names() -> None:
    encoded = canonical_bytes(Point(x=1.0, tags=("é",)))
    assert encoded == b'{"fields":{"tags":["\\u00e9"],"x":1.0},"type":"Point"}'


def test_the_order_of_a_mapping_does_not_matter_and_the_order_of_a_sequence_does() -> None:
    assert canonical_digest({"a": 1, "b": 2}) == canonical_digest({"b": 2, "a": 1})
    assert canonical_digest([1, 2]) != canonical_digest([2, 1])


def test_enums_are_their_values() -> None:
    assert canonical_bytes(CacheClass.VAE_TILE) == b'"vae_tile"'


@pytest.mark.parametrize("value", [math.nan, math.inf, {1: 2}, object(), b"bytes", {"a": {3}}])
def test_what_has_no_encoding_is_refused(value: object) -> None:
    with pytest.raises(ContractViolation):
        canonical_bytes(value)
