"""What CUDA computes in float32 and rounds once to half precision is rounded once here, and costs what halves cost."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Callable

HALVES = [torch.float16, torch.bfloat16]


def values(*shape: int, dtype: torch.dtype = torch.float16, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def gradients(call: Callable[..., torch.Tensor], *operands: torch.Tensor) -> list[torch.Tensor]:
    """The result of a call and the gradients of its operands."""
    leaves = [operand.detach().requires_grad_() for operand in operands]
    result = call(*leaves)
    weights = values(*result.shape, dtype=torch.bfloat16, seed=9).half().to(result)
    return [result.detach(), *torch.autograd.grad(result, leaves, weights)]


def assert_rounded_once(call: Callable[..., torch.Tensor], *operands: torch.Tensor) -> None:
    """Result and gradients are those of float32, rounded."""
    exact = gradients(call, *[operand.float() for operand in operands])
    found = gradients(call, *[operand.cuda() for operand in operands])
    for one, other, dtype in zip(found, exact, [operands[0].dtype, *(o.dtype for o in operands)], strict=True):
        assert one.is_cuda
        assert one.dtype is dtype
        assert torch.equal(one.cpu(), other.to(dtype))


@pytest.mark.parametrize(
    ("call", "source", "weight"),
    [
        (lambda x, w: F.conv1d(x, w, padding=1), (4, 32, 64), (32, 32, 3)),
        (lambda x, w: F.conv2d(x, w, stride=2, padding=1), (2, 32, 16, 16), (32, 32, 3, 3)),
        (lambda x, w: F.conv2d(x, w, groups=16), (2, 16, 12, 12), (16, 1, 3, 3)),
        (lambda x, w: F.conv3d(x, w), (2, 4, 6, 6, 6), (3, 4, 3, 3, 3)),
        (lambda x, w: F.conv_transpose2d(x, w, stride=2), (2, 32, 8, 8), (32, 32, 3, 3)),
    ],
    ids=["1d", "2d", "depthwise", "3d", "transposed"],
)
def test_convolutions_in_float16_are_computed_in_float32(
    machine: Any, call: Callable[..., torch.Tensor], source: tuple[int, ...], weight: tuple[int, ...]
) -> None:
    """The CPU's own backward in float16 takes a hundred times as long."""
    assert_rounded_once(call, values(*source), values(*weight, seed=1))


def step_of_a_layer(dtype: torch.dtype) -> tuple[list[Any], int, int]:
    """Kernels, peak and remaining memory of a convolution's forward and backward."""
    layer = nn.Conv2d(16, 16, 3, padding=1, bias=False, device="cuda", dtype=dtype)
    x = torch.zeros(8, 16, 32, 32, device="cuda", dtype=dtype, requires_grad=True)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with lab.record() as trace:
        y = layer(x)
        y.backward(y)
    peak, kept = (n() - before for n in (torch.cuda.max_memory_allocated, torch.cuda.memory_allocated))
    return [(kernel.name, kernel.flops) for kernel in trace.kernels], peak, kept


def test_float32_within_a_kernel_costs_the_device_nothing(machine: Any) -> None:
    wide, wide_peak, wide_kept = step_of_a_layer(torch.float32)
    kernels, peak, kept = step_of_a_layer(torch.float16)
    assert kernels == wide
    assert [name for name, _ in kernels] == ["aten::convolution", "aten::convolution_backward"]
    assert peak == pytest.approx(wide_peak / 2, rel=0.01)  # but for what cuDNN rounds its workspace up
    assert kept == wide_kept / 2


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample_finds_its_places_in_float32(machine: Any, mode: str, dtype: torch.dtype) -> None:
    image, places = values(2, 3, 32, 32, dtype=dtype), values(2, 16, 16, 2, dtype=dtype, seed=1).tanh()
    assert_rounded_once(lambda x, y: F.grid_sample(x, y, mode=mode, align_corners=False), image, places)


def test_grid_sample_of_volumes(machine: Any) -> None:
    volume, places = values(1, 2, 8, 8, 8), values(1, 4, 4, 4, 3, seed=1).tanh()
    assert_rounded_once(lambda x, y: F.grid_sample(x, y, align_corners=True), volume, places)


@pytest.mark.parametrize("groups", [1, 8])
def test_convolutions_of_volumes_in_bfloat16(machine: Any, groups: int) -> None:
    """oneDNN computes some of their gradients by its reference implementation."""
    source, weight = values(2, 8, 9, 9, 9, dtype=torch.bfloat16), values(8, 8 // groups, 3, 3, 3, dtype=torch.bfloat16)
    assert_rounded_once(lambda x, w: F.conv3d(x, w, stride=2, padding=1, groups=groups), source, weight)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("parameters", ["half", "float32"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layer", [nn.BatchNorm2d, nn.InstanceNorm2d])
def test_norms_round_once(
    machine: Any, layer: Callable[..., nn.Module], training: bool, parameters: str, dtype: torch.dtype
) -> None:
    kind = dtype if parameters == "half" else torch.float32
    norm = layer(6, affine=True, track_running_stats=True).train(training).to(kind)
    with torch.no_grad():
        for place, parameter in enumerate(norm.parameters()):
            parameter.copy_(values(6, seed=place + 3))
    norm_there = layer(6, affine=True, track_running_stats=True).train(training).to("cuda", kind)
    norm_there.load_state_dict(norm.state_dict())
    norm.float()
    x = (3 + 5 * values(4, 6, 5, 5)).to(dtype)
    here, there = x.float().requires_grad_(), x.cuda().requires_grad_()
    expected, actual = norm(here), norm_there(there)
    weights = values(4, 6, 5, 5, dtype=dtype, seed=1).float()
    (expected * weights).sum().backward()
    (actual * weights.cuda()).sum().backward()
    pairs = [(actual, expected), (there.grad, here.grad)]
    if layer is nn.BatchNorm2d:  # an instance norm has the mean of its instances' statistics, each of them rounded
        pairs += [(p.grad, q.grad) for p, q in zip(norm_there.parameters(), norm.parameters(), strict=True)]
        pairs += [(p, q) for p, q in zip(norm_there.buffers(), norm.buffers(), strict=True) if p.is_floating_point()]
    for one, other in pairs:
        assert torch.equal(one.detach().cpu(), other.detach().to(one.dtype))


@pytest.mark.parametrize("dtype", HALVES)
def test_the_statistics_of_a_batch_norm_are_float32(machine: Any, dtype: torch.dtype) -> None:
    x, none = values(4, 6, 5, 5, dtype=dtype).cuda(), torch.zeros(6, dtype=dtype, device="cuda")
    for name in ("native_batch_norm", "_native_batch_norm_legit"):
        result, mean, deviation = getattr(torch.ops.aten, name)(x, none, none, none, none, True, 0.1, 1e-5)
        assert (result.dtype, mean.dtype, deviation.dtype) == (dtype, torch.float32, torch.float32)


@pytest.mark.parametrize("dtype", HALVES)
def test_backward_of_a_batch_norm_reads_parameters_and_statistics_as_one_type(machine: Any, dtype: torch.dtype) -> None:
    norm = nn.BatchNorm2d(6).cuda()
    for parameter in norm.parameters():
        parameter.data = parameter.data.to(dtype)
    x = values(4, 6, 5, 5, dtype=dtype).cuda().requires_grad_()
    kind = "Half" if dtype is torch.float16 else "BFloat16"
    with pytest.raises(RuntimeError, match=f"^Expected running_mean to have type {kind} but got Float$"):
        norm(x).sum().backward()
    norm(x.to(memory_format=torch.channels_last)).sum().backward()  # another kernel, which takes any types
    norm.to(dtype)
    norm(x).sum().backward()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("call", [torch.var, torch.std, torch.erfinv, lambda x: x.dot(x)])
def test_what_the_cpu_is_slow_at(machine: Any, call: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
    x = values(2000, dtype=dtype).tanh()
    assert torch.equal(call(x.cuda()).cpu(), call(x.float()).to(dtype))


_WITHOUT_INSTRUCTIONS = """
import torch
from torch.nn import functional as F
import fakegpu_lab as lab

lab.enable("a100")

def check(call, *operands):
    for dtype in (torch.float16, torch.bfloat16):
        found = []
        for convert in (lambda t: t.to("cuda", dtype), lambda t: t.to(dtype).float()):
            leaves = [convert(operand).requires_grad_() for operand in operands]
            result = call(*leaves)
            found.append([result.detach(), *torch.autograd.grad(result.sum(), leaves)])
        assert found[0][0].dtype == dtype
        assert torch.equal(found[0][0].cpu(), found[1][0].to(dtype)), (call, dtype)
        for one, other in zip(*found):
            torch.testing.assert_close(one.cpu().float(), other, rtol=2e-2, atol=2e-2)

torch.manual_seed(0)
a, b = torch.randn(64, 300) / 17, torch.randn(300, 40)
check(torch.mm, a, b)
check(lambda a, b: torch.addmm(torch.ones(64, 40, device=a.device, dtype=a.dtype), a, b, alpha=0.5), a, b)
check(torch.bmm, a.view(2, 32, 300), b.expand(2, 300, 40))
check(lambda a, b: F.linear(a, b.t(), b[0]), a, b)
check(lambda a, b: a @ b[:, 0], a, b)
check(F.conv2d, a.view(2, 3, 80, 40), torch.randn(4, 3, 5, 5) / 8)
check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), *torch.randn(3, 2, 2, 33, 16))
torch.manual_seed(0)
layers = {}
def lstm(x):
    key = x.dtype, x.device.type
    if key not in layers:
        torch.manual_seed(1)
        layers[key] = torch.nn.LSTM(300, 16).half().to(x.device, x.dtype)
    return layers[key](x)[0]
found = lstm(a.view(8, 8, 300).cuda().half())
assert torch.equal(found.cpu(), lstm(a.view(8, 8, 300).half().float()).half())

try:
    torch.mm(a.cuda().half(), b.cuda())
except RuntimeError as error:
    print(error)
"""


def test_products_on_a_processor_without_instructions_for_halves() -> None:
    """There the CPU multiplies halves up to 200 times as slowly as float32."""
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_INSTRUCTIONS],
        capture_output=True, text=True, timeout=300, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "expected mat1 and mat2 to have the same dtype, but got: c10::Half != float\n"
