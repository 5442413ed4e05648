"""The digest of a cached value is that of its elements, wherever they lie."""

import torch

from fastvideo.cache.values import value_digest


def test_equal_elements_have_one_digest_in_any_layout() -> None:
    value = torch.arange(6, dtype=torch.float32).view(2, 3)
    assert value_digest(value) == value_digest(value.T.contiguous().T)
    assert value_digest(value) != value_digest(value + 1)


def test_tensors_by_name_are_one_value() -> None:
    value = {"a": torch.ones(2), "b": torch.zeros(2)}
    assert value_digest(value) == value_digest(dict(reversed(value.items())))
    assert value_digest(value) != value_digest({"a": torch.zeros(2), "b": torch.ones(2)})


def test_what_has_no_bytes_of_its_own_has_no_digest() -> None:
    assert value_digest(object()) == ""
