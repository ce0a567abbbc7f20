"""Operators registered from Python, and what dispatch modes see, on a device."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode


@pytest.fixture
def library():
    lib = torch.library.Library("fakegpu_lab_tests", "FRAGMENT")
    yield lib
    lib._destroy()


@pytest.mark.parametrize("name", ["linear", "copy_", "histogram", "mm"])
def test_an_operator_may_have_the_name_of_one_of_torchs(machine, name):
    @torch.library.custom_op(f"fakegpu_lab_names::{name}", mutates_args=())
    def seven_times(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return 7 * x * y

    x = torch.full((2, 2), 2.0, device="cuda")
    assert torch.equal(seven_times(x, x), torch.full_like(x, 28))


def test_a_custom_op_is_given_device_tensors(machine):
    seen = []

    @torch.library.custom_op("fakegpu_lab_tests::triple", mutates_args=())
    def triple(x: torch.Tensor) -> torch.Tensor:
        seen.append("any")
        return x * 3

    @triple.register_kernel("cuda")
    def _(x):
        seen.append(x.device)
        assert x.is_cuda
        return x * 3

    @triple.register_fake
    def _(x):
        return torch.empty_like(x)

    triple.register_autograd(lambda ctx, grad: grad * 3)
    x = torch.ones(1000, device="cuda:1", requires_grad=True)
    before = torch.cuda.memory_allocated(1)
    y = triple(x)
    assert torch.cuda.memory_allocated(1) - before == 4096
    y.sum().backward()
    assert x.grad[0].item() == 3
    assert triple(torch.ones(2)).tolist() == [3, 3]
    assert seen == [torch.device("cuda:1"), "any"]


def test_a_custom_op_for_every_device(machine):
    @torch.library.custom_op("fakegpu_lab_tests::increment", mutates_args={"x"})
    def increment(x: torch.Tensor) -> None:
        assert x.is_cuda
        x.add_(1)

    x = torch.zeros(2, device="cuda")
    version = x._version
    increment(x)
    assert x.tolist() == [1, 1]
    assert x._version > version


def test_an_op_for_one_device_only(machine, library):
    library.define("where(Tensor x) -> Tensor")
    library.impl("where", lambda x: x + 1, "CUDA")
    library.define("host(Tensor x) -> Tensor")
    library.impl("host", lambda x: x + 1, "CPU")
    x = torch.zeros(2, device="cuda")
    assert torch.ops.fakegpu_lab_tests.where(x).is_cuda
    with pytest.raises(NotImplementedError, match="'fakegpu_lab_tests::where' with arguments from the 'CPU'"):
        torch.ops.fakegpu_lab_tests.where(x.cpu())
    with pytest.raises(NotImplementedError, match="'fakegpu_lab_tests::host' with arguments from the 'CUDA'"):
        torch.ops.fakegpu_lab_tests.host(x)


def test_what_a_kernel_writes_counts_as_a_write(machine, library):
    library.define("add_one(Tensor(a!) x) -> ()")
    library.impl("add_one", lambda x: x.add_(1) and None, "CompositeExplicitAutograd")
    for device in ("cpu", "cuda"):
        weight = torch.ones(1, device=device, requires_grad=True)
        kept = weight.exp()  # backward of exp needs its result
        torch.ops.fakegpu_lab_tests.add_one(kept)
        assert kept._version == 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            kept.backward()


def test_what_a_kernel_returns_may_be_a_view(machine):
    x = torch.ones(1, 3, device="cuda")
    row = torch.ops.prims.squeeze(x, [0])
    assert row._is_view()
    row.zero_()
    assert x.tolist() == [[0, 0, 0]]


def test_the_kernel_of_a_higher_order_operator_for_cuda_is_ours(machine):
    class Total(HigherOrderOperator):
        def __init__(self):
            super().__init__("fakegpu_lab_total")

        def __call__(self, x):
            return super().__call__(x)

    total = Total()
    total.py_impl(torch._C.DispatchKey.AutogradCUDA)(lambda x: x.sum())
    x = torch.ones(3, device="cuda", requires_grad=True)
    total(x).backward()
    assert x.grad.tolist() == [1, 1, 1]


class _Log(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def _step(model: nn.Module, x: torch.Tensor, mode) -> torch.Tensor:
    model.zero_grad()
    with mode:
        out = model(x)
        out.sum().backward()
    return out


def test_a_users_mode_sees_the_ops_of_cuda(machine):
    model, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), torch.randn(5, 4)
    host, device = _Log(), _Log()
    _step(model, x, host)
    _step(model.cuda(), x.cuda(), device)
    assert device.names == host.names
    assert model(x.cuda()).is_cuda  # the mode is over


def test_flops_are_those_of_the_cpu(machine):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.Flatten(2), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 4, bias=False)
    )
    x = torch.randn(2, 3, 8, 8)
    host, device = FlopCounterMode(display=False), FlopCounterMode(display=False)
    _step(model, x, host)
    _step(model.cuda(), x.cuda(), device)
    assert device.get_total_flops() == host.get_total_flops() > 0


def test_a_kernel_for_cuda_takes_the_place_of_one_of_torchs(machine):
    x = torch.zeros(2, device="cuda")
    assert torch.erfinv(x).tolist() == [0, 0]
    lib = torch.library.Library("aten", "IMPL")
    lib.impl("erfinv", lambda x: x + 7, "CUDA")
    assert torch.erfinv(x).tolist() == [7, 7]
    assert torch.erfinv(torch.zeros(2)).tolist() == [0, 0]
    lib._destroy()
    assert torch.erfinv(x).tolist() == [0, 0]


def test_torchs_own_triton_kernels_are_not_simulated_as_such(machine, monkeypatch):
    registry = pytest.importorskip("torch._native.registry", reason="since torch 2.13")
    lib = torch.library.Library("aten", "IMPL")
    monkeypatch.setitem(registry._aten_override_libs, ("erfinv", "CUDA"), lib)
    lib.impl("erfinv", lambda x: x + 7, "CUDA")
    assert torch.erfinv(torch.zeros(2, device="cuda")).tolist() == [0, 0]
    lib._destroy()
