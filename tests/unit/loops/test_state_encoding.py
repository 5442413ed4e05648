import torch

from fastvideo.loops.state_encoding import encode_state, tensor_bytes, tensor_digest


def test_the_bytes_of_a_tensor_do_not_depend_on_its_strides() -> None:
    tensor = torch.arange(6.0).view(2, 3)
    assert tensor_bytes(tensor) == tensor.numpy().tobytes()
    assert tensor_bytes(tensor.t().contiguous().t()) == tensor_bytes(tensor)
    assert tensor_bytes(torch.tensor(1.5)) == torch.tensor([1.5]).numpy().tobytes()
    assert len(tensor_bytes(torch.ones(3, dtype=torch.bfloat16))) == 6


def test_the_encoding_depends_on_header_shape_dtype_and_marks() -> None:
    base = encode_state({"step": 1}, [torch.zeros(4)])
    assert base == encode_state({"step": 1}, [torch.zeros(4)])
    others = [
        encode_state({"step": 2}, [torch.zeros(4)]),
        encode_state({"step": 1}, [torch.zeros(2, 2)]),
        encode_state({"step": 1}, [torch.zeros(4, dtype=torch.int32)]),
        encode_state({"step": 1}, [torch.zeros(4), None]),
        encode_state({"step": 1}, [torch.zeros(4), "Rep"]),
        encode_state({"step": 1}, [None]),
    ]
    assert len({base, *others}) == 7


def test_one_bit_changes_the_digest() -> None:
    tensor = torch.ones(4)
    other = tensor.clone()
    other[3] = torch.nextafter(other[3], torch.tensor(2.0))
    assert tensor_digest(tensor) != tensor_digest(other)
