"""DLPack: torch's own round trip shares memory; another library is told that there is none, or gets a host copy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils import dlpack

import fakegpu_lab as lab

EARLY = dlpack.to_dlpack


@pytest.mark.parametrize("trip", [torch.from_dlpack, lambda x: torch.from_dlpack(dlpack.to_dlpack(x))])
def test_torch_gets_its_own_memory_back(machine, trip):
    x = torch.arange(6.0, device="cuda").reshape(2, 3).t()
    before = torch.cuda.memory_allocated()
    twin = trip(x)
    assert torch.cuda.memory_allocated() == before
    assert (twin.device, twin.shape, twin.stride(), twin.data_ptr()) == (x.device, x.shape, x.stride(), x.data_ptr())
    twin.fill_(7)
    assert x.unique().tolist() == [7]
    assert x._version == 0  # as on CUDA: the two know nothing of each other


def test_devices_and_copies(machine):
    x = torch.ones(2, device="cuda:0")
    assert tuple(x.__dlpack_device__()) == (2, 0)
    assert tuple(torch.ones(2, device="cuda:1").__dlpack_device__()) == (2, 1)
    assert torch.from_dlpack(x, device="cpu").device.type == "cpu"
    assert torch.from_dlpack(x, device="cuda:1").device == torch.device("cuda:1")
    assert torch.from_dlpack(x, copy=True).data_ptr() != x.data_ptr()
    assert torch.from_dlpack(np.ones(2), device="cuda").is_cuda
    assert torch.from_dlpack(np.ones(2)).device.type == "cpu"


def test_torchs_refusals(machine):
    with pytest.raises(BufferError, match="Can't export tensors that require gradient"):
        torch.from_dlpack(torch.ones(2, device="cuda", requires_grad=True))
    with pytest.raises(BufferError, match="Can't export tensors on a different CUDA device index"):
        torch.from_dlpack(torch.ones(2, device="cuda:1"))
    capsule = dlpack.to_dlpack(torch.ones(2, device="cuda"))
    torch.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match="DLTensor capsules can be consumed only once"):
        torch.from_dlpack(capsule)
    with pytest.raises(ValueError, match=r"cannot move \(i\.e\. copy=False\) tensor from cuda:0 to cpu"):
        torch.ones(2, device="cuda").__dlpack__(dl_device=(1, 0), copy=False)


def test_a_function_imported_too_early(machine):
    capsule = EARLY(torch.ones(2, device="cuda"))
    with pytest.raises(BufferError, match="holds no data"):
        torch.from_dlpack(capsule)


def test_another_library(machine):
    x = torch.ones(2, device="cuda")
    with pytest.raises(BufferError, match="the GPU is simulated"):
        np.from_dlpack(x)
    assert torch.utils.dlpack.from_dlpack(x.__dlpack__(dl_device=(1, 0))).tolist() == [1, 1]
    assert not hasattr(x, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="the GPU is simulated"):
        _ = x.__cuda_array_interface__
    with pytest.raises(RuntimeError, match="on Variable that requires grad"):
        _ = x.requires_grad_().__cuda_array_interface__


def test_afterwards_dlpack_is_as_before():
    before = torch.from_dlpack, torch.to_dlpack, torch._C._from_dlpack, torch._C._to_dlpack
    lab.enable("a100")
    lab.disable()
    assert before == (torch.from_dlpack, torch.to_dlpack, torch._C._from_dlpack, torch._C._to_dlpack)
    assert torch.from_dlpack(torch.to_dlpack(torch.ones(2))).tolist() == [1, 1]
