"""foreach ops: one fused kernel where CUDA has one, else the plain op on each tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("machine")


def kernels(call: Callable[[], Any]) -> list[str]:
    with lab.record() as trace:
        call()
    return [kernel.name for kernel in trace.kernels]


def pair(dtype: torch.dtype = torch.float32, device: str = "cuda") -> list[torch.Tensor]:
    return [torch.ones(2, 3, device=device).to(dtype) for _ in range(2)]


def strided() -> list[torch.Tensor]:
    return [torch.ones(2, 6, device="cuda")[:, ::2] for _ in range(2)]


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch._foreach_mul(pair(), 2.0),
        lambda: torch._foreach_mul(pair(), [2.0, 3.0]),
        lambda: torch._foreach_mul(pair(torch.int32), 2),
        lambda: torch._foreach_mul(pair(), torch.tensor(2.0, device="cuda")),
        lambda: torch._foreach_mul(pair(), torch.tensor(2.0)),
        lambda: torch._foreach_norm(pair(), 2),
        lambda: torch._foreach_add([x.t() for x in pair()], [x.t() for x in pair()]),
        lambda: torch._foreach_copy_(pair(), pair(torch.float16)),
    ],
)
def test_one_kernel_takes_lists_of_one_dtype_and_layout(call: Callable[[], Any]) -> None:
    assert len([name for name in kernels(call) if name.startswith("aten::_foreach_")]) == 1


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: torch._foreach_mul(strided(), 2.0), "aten::mul"),
        (lambda: torch._foreach_add(pair(), [torch.ones(3, device="cuda")] * 2), "aten::add"),
        (lambda: torch._foreach_mul(pair(), 2j), "aten::mul"),
        (lambda: torch._foreach_mul(pair(torch.int32), 2.5), "aten::mul"),
        (lambda: torch._foreach_div(pair(torch.int32), pair(torch.int32)), "aten::div"),
        (lambda: torch._foreach_maximum(pair(torch.int32), pair(torch.int32)), "aten::clamp_min"),
        (lambda: torch._foreach_sin(pair(torch.int32)), "aten::sin"),
        (lambda: torch._foreach_abs(pair(torch.complex64)), "aten::abs"),
        (lambda: torch._foreach_norm(pair(), 3), "aten::linalg_vector_norm"),
        (lambda: torch._foreach_add(pair(), pair(torch.float64)), "aten::add"),
    ],
)
def test_other_lists_take_a_kernel_for_each_tensor(call: Callable[[], Any], name: str) -> None:
    assert [kernel for kernel in kernels(call) if kernel == name or "_foreach_" in kernel] == [name] * 2


def test_lists_on_two_devices_are_computed_where_each_tensor_is() -> None:
    lists = [torch.ones(2, device="cuda:0"), torch.ones(2, device="cuda:1"), torch.ones(2)]
    doubled = torch._foreach_add(lists, lists)
    assert [x.device for x in doubled] == [x.device for x in lists]
    assert all(x.tolist() == [2.0, 2.0] for x in doubled)


def test_numbers_of_a_packed_tensor_are_read_on_the_host() -> None:
    a, b = pair(), pair()
    result = torch._foreach_addcmul(a, b, b, torch.tensor([1.0, 2.0]))
    assert [x[0, 0].item() for x in result] == [2.0, 3.0]
    with pytest.raises(RuntimeError, match=r"^Expected scalars to be on CPU, got cuda:0 instead"):
        torch._foreach_addcmul(a, b, b, torch.tensor([1.0, 2.0], device="cuda"))
    with pytest.raises(RuntimeError, match=r"^Expected length of scalars to match input of length 2 but got 3"):
        torch._foreach_addcmul(a, b, b, torch.tensor([1.0, 2.0, 3.0]))


def test_a_scalar_tensor_must_be_on_the_device_for_add_and_may_be_on_the_host_for_mul() -> None:
    with pytest.raises(RuntimeError, match=r"^scalar tensor expected to be on cuda:0 but is on cpu"):
        torch._foreach_add(pair(), torch.tensor(1.0), alpha=1.0)
    with pytest.raises(
        RuntimeError, match=r"^scalar tensor expected to be 0 dim but it has 1 dimensions and 2 elements"
    ):
        torch._foreach_mul([torch.ones(2), torch.ones(2, device="cuda")], torch.ones(2, device="cuda"))
    assert torch._foreach_mul(pair(), torch.tensor(3.0))[0][0, 0].item() == 3.0
