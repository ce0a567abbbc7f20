"""DLPack: there is no device memory to share; a host copy is given to whoever asks for one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils import dlpack

import fakegpu_lab as lab


def test_a_device_tensor_is_not_shared(machine):
    x = torch.ones(2, device="cuda")
    for share in (torch.from_dlpack, dlpack.to_dlpack, torch.to_dlpack, np.from_dlpack):
        with pytest.raises(lab.FakeGpuError, match=r"Use Tensor\.cpu\(\)"):
            share(x)
    assert tuple(x.__dlpack_device__()) == (2, 0)
    assert dlpack.from_dlpack(x.__dlpack__(dl_device=(1, 0))).tolist() == [1, 1]
    assert not hasattr(x, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="another library"):
        _ = x.__cuda_array_interface__
    with pytest.raises(RuntimeError, match="on Variable that requires grad"):
        _ = x.requires_grad_().__cuda_array_interface__


def test_host_memory_is_shared_as_ever(machine):
    assert torch.from_dlpack(np.ones(2)).device.type == "cpu"
    assert torch.from_dlpack(np.ones(2), device="cuda").is_cuda
    assert torch.from_dlpack(torch.to_dlpack(torch.ones(2))).tolist() == [1, 1]


def test_afterwards_dlpack_is_as_before():
    before = torch.from_dlpack, torch.to_dlpack, torch._C._from_dlpack, torch._C._to_dlpack
    lab.enable("a100")
    lab.disable()
    assert before == (torch.from_dlpack, torch.to_dlpack, torch._C._from_dlpack, torch._C._to_dlpack)
