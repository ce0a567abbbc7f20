"""The tensor and storage types of old, default types and devices, and `torch.device` of an index."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab.driver.torch_cuda.tensor_types import DTYPES

C = torch.cuda


@pytest.mark.parametrize("name", DTYPES)
def test_every_type_makes_tensors_and_knows_them(machine: Any, name: str) -> None:
    kind = getattr(torch.cuda, name)
    sized, filled = kind(2, 3), kind([1, 0])
    assert (sized.shape, filled.tolist()) == ((2, 3), [1, 0])
    assert sized.device == torch.device("cuda:0")
    assert sized.dtype is kind.dtype is DTYPES[name]
    assert sized.type() == f"torch.cuda.{name}"
    assert isinstance(sized, kind)
    assert isinstance(sized, torch.Tensor)
    assert not isinstance(sized.cpu(), kind)
    assert not isinstance(sized, getattr(torch, name))
    assert isinstance(sized.cpu(), getattr(torch, name))
    assert sum(isinstance(sized, getattr(torch.cuda, other)) for other in DTYPES) == 1
    assert torch.ones(2).type(kind).type() == torch.ones(2, device="cuda").type(f"torch.cuda.{name}").type()
    assert torch.ones(2).type(kind).is_cuda


def test_a_type_looks_like_torchs(machine: Any) -> None:
    kind = torch.cuda.FloatTensor
    assert repr(kind) == "<class 'torch.cuda.FloatTensor'>"
    assert repr(type(kind)) == "<class 'torch.tensortype'>"
    assert (kind.is_cuda, kind.is_sparse, kind.layout) == (True, False, torch.strided)
    assert torch.cuda.sparse.FloatTensor.is_sparse


@pytest.mark.filterwarnings("ignore")
def test_what_a_type_makes_a_tensor_from(machine: Any) -> None:
    a = torch.ones(2, device="cuda")
    assert C.FloatTensor().shape == (0,)
    assert C.FloatTensor(torch.Size([2, 2])).shape == (2, 2)
    assert C.FloatTensor(a).data_ptr() == a.data_ptr()
    assert C.FloatTensor(a.storage()).shape == (2,)
    with torch.cuda.device(1):
        assert C.FloatTensor(1).device.index == 1
    with pytest.raises(TypeError, match=r"^expected TensorOptions\(dtype=float, device=cuda, .* \(got .*device=cpu"):
        C.FloatTensor(torch.ones(2))
    with pytest.raises(TypeError, match="device=cuda"):
        a.new(torch.ones(2))
    with pytest.raises(RuntimeError, match="legacy constructor expects device type: cuda but device type: cpu"):
        a.new(2, 3, device="cpu")
    assert a.new(2, device="cuda:1").device.index == 1
    with pytest.raises(ValueError, match=r"^invalid type: 'torch\.cuda\.FooTensor'$"):
        a.type("torch.cuda.FooTensor")


@pytest.mark.filterwarnings("ignore")
def test_sparse_types_and_constructors_without_tensors(machine: Any) -> None:
    with pytest.raises(lab.FakeGpuError, match=r"^A legacy sparse tensor type .* is not simulated\."):
        torch.cuda.sparse.FloatTensor(2, 2)
    made = torch.sparse_coo_tensor([[0], [1]], [3.0], (2, 2), device="cuda")
    assert made.type() == "torch.cuda.sparse.FloatTensor"
    assert isinstance(made, torch.cuda.sparse.FloatTensor)
    assert not isinstance(made, torch.cuda.FloatTensor)
    assert torch.sparse_coo_tensor([[0], [1]], [3.0], (2, 2), device="cuda:1").device.index == 1
    assert torch.sparse_coo_tensor([[0], [1]], [3.0], device="cuda", requires_grad=True).requires_grad
    assert torch.sparse_csr_tensor([0, 1], [0], [3.0], (1, 2), device="cuda").is_cuda


@pytest.mark.filterwarnings("ignore")
def test_storages_move_and_know_their_class(machine: Any) -> None:
    host = torch.tensor([1.0, 2.0])
    moved = host.storage().cuda()
    assert (moved.device.type, list(moved)) == ("cuda", [1.0, 2.0])
    assert isinstance(moved, torch.cuda.FloatStorage)
    assert moved.type() == "torch.cuda.FloatStorage"
    assert list(moved.cpu()) == [1.0, 2.0]
    assert list(torch.cuda.FloatStorage([1, 2])) == [1.0, 2.0]


@pytest.mark.filterwarnings("ignore")
def test_a_cuda_type_is_no_default_type(machine: Any) -> None:
    for kind in ("torch.cuda.HalfTensor", torch.cuda.FloatTensor):
        with pytest.raises(lab.FakeGpuError, match=r"Use torch\.set_default_device\('cuda'\)"):
            torch.set_default_tensor_type(kind)
    torch.set_default_tensor_type(torch.DoubleTensor)
    assert torch.zeros(1).dtype is torch.float64
    torch.set_default_tensor_type(torch.FloatTensor)


def test_a_default_that_names_cuda_goes_with_the_machine() -> None:
    lab.enable("a100", memory="1GiB")
    torch.set_default_device("cuda")
    assert torch.zeros(1).is_cuda
    lab.disable()
    assert torch.zeros(1).type() == torch.Tensor(1).type() == "torch.FloatTensor"
    assert torch.get_default_device() == torch.device("cpu")


@pytest.mark.parametrize("where", ["cuda", "cuda:1", 1])
def test_a_default_device(machine: Any, where: Any) -> None:
    index = 0 if where == "cuda" else 1
    torch.set_default_device(where)
    try:
        assert torch.get_default_device() == torch.device("cuda", index)
        made = [torch.zeros(1), torch.tensor([1]), torch.randperm(3), torch.nn.Linear(1, 1).weight, torch.full((2,), 1)]
        assert {t.device.index for t in made} == {index}
        assert not torch.from_numpy(torch.ones(1, device="cpu").numpy()).is_cuda
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.append(torch.zeros(1).device.type))
        thread.start()
        thread.join()
        assert elsewhere == ["cpu"]  # a thread has its own, as in torch
    finally:
        torch.set_default_device(None)
    assert not torch.zeros(1).is_cuda


def test_an_index_alone_is_a_cuda_device(machine: Any) -> None:
    second = torch.device(1)
    assert (str(second), second.type, second.index) == ("cuda:1", "cuda", 1)
    assert torch.ones(1, device=second).device == torch.ones(1, device=1).device == second
    assert torch.ones(1).to(second).device == torch.ones(1).to(device=1).device == second
    assert isinstance(second, torch.device)
    assert type(second) == torch.device  # noqa: E721 - as people write it
    assert {type(second): "found"}[torch.device] == "found"
    assert pickle.loads(pickle.dumps(second)) == copy.deepcopy(second) == second
    with second:
        assert torch.ones(1).device == second
    for call in (lambda: torch.device(-1), lambda: torch.ones(1).cuda(-1), lambda: torch.ones(1).to(device=-1)):
        with pytest.raises(RuntimeError, match=r"^Device index must not be negative$"):
            call()
    with pytest.raises(RuntimeError, match=r"^Invalid device, must be cuda device"):
        torch.ones(1).cuda("cpu")
    with pytest.raises(torch.AcceleratorError, match="invalid device ordinal"):
        torch.ones(1, device="cuda:99999")


def annotated(x: torch.Tensor, where: torch.device) -> torch.Tensor:
    return x + torch.zeros(2, device=where) + torch.ones(2, device=torch.device("cuda:0"))


@pytest.mark.filterwarnings("ignore")
def test_torchscript_knows_devices_that_were_written_before(machine: Any) -> None:
    assert torch.jit.script(annotated)(torch.ones(2, device="cuda"), torch.device(0)).tolist() == [2, 2]


@pytest.mark.skipif(torch.version.cuda is not None, reason="a CUDA build says other things")
def test_without_a_machine_torch_says_what_a_cpu_build_says() -> None:
    lab.enable("a100", memory="1GiB")
    torch.ones(1, device="cuda").cuda()
    lab.disable()
    assert torch.accelerator.current_accelerator() is None
    assert torch.get_device_module() is torch.cpu
    for call in (
        lambda: torch.ones(1).cuda(),
        lambda: torch.ones(1).to("cuda"),
        lambda: torch.tensor([1.0], device="cuda"),
        lambda: torch.nn.Linear(1, 1).to("cuda:0"),
        lambda: torch.zeros(1, device="cuda"),
    ):
        with pytest.raises(AssertionError, match=r"^Torch not compiled with CUDA enabled$"):
            call()
    with pytest.raises(RuntimeError, match=r"^Cannot access accelerator device when none is available"):
        torch.ones(1, device=0)
