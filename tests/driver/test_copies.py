"""`Tensor.copy_` between host and device."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fakegpu_lab as lab


@pytest.mark.parametrize(
    ("number", "dtype"),
    [(2.0, torch.float32), (0.1, torch.float64), (2**40, torch.int64), (True, torch.bool), (1 + 2j, torch.complex128)],
)
def test_a_number_can_be_copied_into_a_tensor(machine: Any, number: Any, dtype: torch.dtype) -> None:
    target = torch.zeros(2, 3, dtype=dtype, device="cuda")
    assert target.copy_(number) is target
    assert torch.equal(target.cpu(), torch.zeros(2, 3, dtype=dtype).copy_(number))


def test_a_number_copied_into_a_tensor_comes_from_the_host(machine: Any) -> None:
    """`copy_kernel_cuda` (aten/src/ATen/native/cuda/Copy.cu) expands it on the host, and sends all elements."""
    target = torch.zeros(2, 3, device="cuda")
    with lab.record() as trace:
        target.copy_(2.0)
    assert [(transfer.kind, transfer.nbytes, transfer.pinned) for transfer in trace.transfers] == [("h2d", 24, False)]


@pytest.mark.parametrize("source", ["cuda", "cpu"])
def test_a_copy_into_a_part_of_a_tensor_moves_only_that_part(machine: Any, source: str) -> None:
    """A cache of keys is filled token by token: each copy costs what it writes, not the size of the whole cache."""
    cache = torch.zeros(8, 64, 1024, device="cuda")
    token = torch.ones(8, 1, 1024, device=source)
    with lab.record() as trace:
        cache[:, 5:6] = token
    moved = [kernel.nbytes // 2 for kernel in trace.kernels] + [transfer.nbytes for transfer in trace.transfers]
    assert moved == [token.nbytes]
    assert cache.sum().item() == token.numel()
