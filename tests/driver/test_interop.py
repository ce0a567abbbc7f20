"""Device tensors in Python's and NumPy's hands: numbers, texts, arrays."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import _tensor_str, nn

import fakegpu_lab as lab


def test_numpy_is_refused_in_cudas_words(machine):
    tensor = torch.ones(2, 2, device="cuda:1")
    sentence = (
        "can't convert cuda:1 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
    )
    for use in (tensor.numpy, lambda: np.asarray(tensor), lambda: np.exp(tensor), lambda: np.array([tensor, tensor])):
        with pytest.raises(TypeError) as raised:
            use()
        assert str(raised.value) == sentence
    with pytest.raises(RuntimeError, match=r"Can't call numpy\(\) on Tensor that requires grad"):
        tensor.requires_grad_().numpy()
    assert tensor.numpy(force=True).tolist() == [[1, 1], [1, 1]]
    assert torch.from_numpy(np.ones(3)).cuda().dtype is torch.float64


def test_scalars(machine):
    four = torch.tensor(4.0, device="cuda")
    assert (float(four), int(four), bool(four), complex(four), math.sqrt(four), four.item()) == (4, 4, True, 4, 2, 4)
    assert (f"{four:.3f}", f"{four}", f"{four:>5}") == ("4.000", "4.0", "  4.0")
    assert [10, 20, 30][torch.tensor(1, device="cuda")] == 20
    assert four in [torch.zeros(1, device="cuda"), four]
    assert 4 in [0, four]
    assert len({four, four}) == 1
    assert torch.tensor([four, four + 1]).tolist() == [4, 5]
    assert torch.tensor([four], device="cuda:1").device == torch.device("cuda:1")


def test_sequences(machine):
    rows = torch.arange(4.0, device="cuda").reshape(2, 2)
    assert len(rows) == 2
    assert [row.tolist() for row in rows] == rows.tolist() == [[0, 1], [2, 3]]
    assert 3.0 in rows
    with pytest.raises(RuntimeError, match="Boolean value of Tensor with more than one value is ambiguous"):
        bool(rows)
    with pytest.raises(TypeError, match=r"unsupported format string passed to Tensor\.__format__"):
        f"{rows:.2f}"
    with pytest.raises(TypeError, match="iteration over a 0-d tensor"):
        iter(rows.sum())


def test_types(machine):
    tensor = torch.ones(2, device="cuda:1")
    assert (tensor.type(), tensor.half().type()) == ("torch.cuda.FloatTensor", "torch.cuda.HalfTensor")
    assert tensor.type("torch.cuda.HalfTensor").device == torch.device("cuda:1")
    assert tensor.type(torch.float64).device == torch.device("cuda:1")
    assert tensor.type("torch.DoubleTensor").type() == "torch.DoubleTensor"
    assert torch.ones(2).type("torch.cuda.LongTensor").type() == "torch.cuda.LongTensor"
    assert torch.ones(2).type() == "torch.FloatTensor"
    assert str(type(tensor)) == "<class 'torch.Tensor'>"
    assert tensor.new(3).device == tensor.new([1.0]).device == torch.device("cuda:1")
    assert tensor.new([1.0], device=0).device == torch.device("cuda:0")


TENSORS = {
    "number": lambda: torch.tensor(1.5),
    "floats": lambda: torch.tensor([1.0, 2.5, -3.0]),
    "wide range": lambda: torch.tensor([1e-8, 1e8, float("nan"), float("inf")]),
    "matrix": lambda: torch.arange(24.0).reshape(2, 3, 4),
    "summarised": lambda: torch.arange(10000.0).reshape(100, 100),
    "integers": lambda: torch.arange(5),
    "int32": lambda: torch.tensor(5, dtype=torch.int32),
    "booleans": lambda: torch.tensor([True, False]),
    "half": lambda: torch.ones(2, dtype=torch.float16),
    "bfloat16": lambda: torch.ones(2, dtype=torch.bfloat16),
    "double": lambda: torch.ones(2, dtype=torch.float64),
    "uint16": lambda: torch.tensor([1, 2], dtype=torch.uint16),
    "float8": lambda: torch.ones(2).to(torch.float8_e4m3fn),
    "complex": lambda: torch.tensor([1 + 2j]),
    "conjugate": lambda: torch.tensor([1 + 2j]).conj(),
    "empty": lambda: torch.empty(0),
    "empty matrix": lambda: torch.empty(0, 3),
    "empty integers": lambda: torch.empty(0, dtype=torch.int64),
    "empty booleans": lambda: torch.empty(2, 0, dtype=torch.bool),
    "leaf": lambda: torch.ones(2, requires_grad=True),
    "parameter": lambda: nn.Parameter(torch.ones(2, 2)),
    "frozen parameter": lambda: nn.Parameter(torch.ones(2, 2), requires_grad=False),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "sparse half": lambda: torch.eye(2).half().to_sparse(),
    "csr": lambda: torch.eye(3).to_sparse_csr(),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("name", TENSORS)
def test_repr_is_torchs_with_the_device_in_it(machine, monkeypatch, name):
    host = TENSORS[name]()
    device = host.detach().cuda().requires_grad_(host.requires_grad)
    if isinstance(host, nn.Parameter):
        device = nn.Parameter(device, host.requires_grad)
    # No line breaks, for the name of the device is longer here.
    monkeypatch.setattr(_tensor_str.PRINT_OPTS, "linewidth", 10_000)
    printed = repr(device)
    monkeypatch.setattr(torch._C, "_get_default_device", lambda: "none")  # torch then prints the device of a CPU tensor
    assert printed == repr(host).replace("device='cpu'", "device='cuda:0'")


def test_repr_of_a_graph_and_in_containers(machine):
    weight = torch.ones(2, device="cuda", requires_grad=True)
    assert repr([weight * 2]) == "[tensor([2., 2.], device='cuda:0', grad_fn=<MulBackward0>)]"
    assert str({"a": torch.tensor(1, device="cuda:1")}) == "{'a': tensor(1, device='cuda:1')}"


def test_long_lines_break_as_torch_breaks_them(machine):
    text = repr(torch.zeros(2, 10, device="cuda"))
    assert text == (
        "tensor([[0., 0., 0., 0., 0., 0., 0., 0., 0., 0.],\n"
        "        [0., 0., 0., 0., 0., 0., 0., 0., 0., 0.]], device='cuda:0')"
    )
    assert repr(torch.zeros(16, device="cuda")).endswith("0.],\n       device='cuda:0')")


def test_repr_without_values():
    lab.enable("a100", compute="meta")
    try:
        assert repr(torch.ones(2, 3, device="cuda")) == "tensor(..., device='cuda:0', size=(2, 3))"
    finally:
        lab.disable()
