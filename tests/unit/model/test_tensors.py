from dataclasses import dataclass

import pytest

from fastvideo.errors import ContractViolation
from fastvideo.model.tensors import TensorSchema, check_tensors

SCHEMAS = (
    TensorSchema(name="x", dims=("B", "channels", "T", "3"), dtype="float32"),
    TensorSchema(name="t", dims=("B",), dtype="int64"),
)


@dataclass(frozen=True)
class Fake:
    shape: tuple[int, ...]
    dtype: str


def check(x: Fake, t: Fake) -> None:
    check_tensors("vae", SCHEMAS, {"x": x, "t": t}, {"channels": 8})


def test_tensors_that_fit_pass() -> None:
    check(Fake((2, 8, 5, 3), "torch.float32"), Fake((2,), "torch.int64"))


@pytest.mark.row("MOD-07")
@pytest.mark.parametrize(
    ("x", "t", "message"),
    [
        (Fake((2, 4, 5, 3), "float32"), Fake((2,), "int64"), "vae: x .*channels = 8"),
        (Fake((2, 8, 5, 4), "float32"), Fake((2,), "int64"), "vae: x .*3 = 3"),
        (Fake((2, 8, 5), "float32"), Fake((2,), "int64"), r"vae: x has shape \[2, 8, 5\]"),
        (Fake((2, 8, 5, 3), "float16"), Fake((2,), "int64"), "vae: x is float16.*float32"),
        (Fake((2, 8, 5, 3), "float32"), Fake((3,), "int64"), "vae: t .*B = 2"),
    ],
)
def test_a_wrong_shape_or_dtype_names_component_and_tensor(x: Fake, t: Fake, message: str) -> None:
    with pytest.raises(ContractViolation, match=message) as caught:
        check(x, t)
    assert caught.value.subject == "vae"
    assert caught.value.reason == "TENSOR_MISMATCH"
