"""cuDNN's convolutions under their own names, and the library that CUDA chooses for a convolution."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

pytestmark = pytest.mark.usefixtures("machine")

cpp: Any = torch._C


def library(channels: int, *, groups: int = 1, dims: int = 2, dilation: int = 1, transposed: bool = False) -> str:
    source = torch.rand(2, channels, *[8] * dims, device="cuda")
    weight = torch.rand(
        channels if transposed else 12, 12 // groups if transposed else channels // groups, *[3] * dims, device="cuda"
    )
    per_dim = [[n] * dims for n in (1, 0, dilation, 0)]
    stride, padding, dilations, output_padding = per_dim
    chosen = cpp._select_conv_backend(
        source, weight, None, stride, padding, dilations, transposed, output_padding, groups
    )
    return str(chosen.name)


def test_cudnn_computes_what_it_can() -> None:
    assert library(6) == library(6, dims=1) == library(6, dims=3, dilation=2) == "Cudnn"
    assert library(6, transposed=True) == "CudnnTranspose"
    assert library(6, groups=6) == "CudaDepthwise2d"
    assert library(6, groups=6, dims=3) == "CudaDepthwise3d"


def test_without_cudnn_pytorchs_own_kernels_do() -> None:
    with torch.backends.cudnn.flags(enabled=False):
        assert library(6) == "Slow2d"
        assert library(6, dims=3) == "SlowDilated3d"
        assert library(6, dilation=2) == "SlowDilated2d"
        assert library(6, transposed=True, dims=3) == "SlowTranspose3d"


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_cudnn_writes_volumes_in_the_format_of_input_or_weight(dtype: torch.dtype) -> None:
    last = torch.channels_last_3d
    x, weight = torch.randn(1, 2, 4, 4, 4, dtype=dtype).cuda(), torch.randn(3, 2, 2, 2, 2, dtype=dtype).cuda()
    plain = F.conv3d(x, weight)
    assert plain.is_contiguous()
    for source, kernel in ((x.contiguous(memory_format=last), weight), (x, weight.contiguous(memory_format=last))):
        out = F.conv3d(source, kernel)
        assert out.is_contiguous(memory_format=last)
        torch.testing.assert_close(out, plain)


@pytest.mark.parametrize(("groups", "last"), [(1, True), (4, False)], ids=["cudnn", "depthwise"])
def test_channels_last_is_cudnns_and_known_when_a_program_is_traced(groups: int, last: bool) -> None:
    """A compiled program asserts the strides that a FakeTensor had."""
    x = torch.randn(2, 4, 8, 8, device="cuda").to(memory_format=torch.channels_last).requires_grad_()
    weight = torch.randn(4, 4 // groups, 3, 3, device="cuda", requires_grad=True)
    strides = []
    for mode in (contextlib.nullcontext(), FakeTensorMode(allow_non_fake_inputs=True)):
        with mode:
            y = F.conv2d(x, weight, groups=groups)
            strides.append([one.stride() for one in (y, *torch.autograd.grad(y.sum(), (x, weight)))][:2])
    assert strides[0] == strides[1]
    assert y.is_contiguous(memory_format=torch.channels_last) is last
