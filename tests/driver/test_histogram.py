"""`torch.histc` of the dtypes that CUDA counts (`sample_inputs_histc`, dtypesIfCUDA) and of those that it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from fakegpu_lab.hardware.machine import Machine

WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@pytest.mark.parametrize("dtype", WHOLE)
def test_whole_numbers_are_counted_as_floats_are(machine: Machine, dtype: torch.dtype) -> None:
    values = torch.tensor([0, 1, 1, 2, 3, 3, 3, 7, 8, 100], dtype=dtype)
    for bins, low, high in ((4, 0, 3), (8, 0, 8), (3, 2, 8), (5, 0, 0), (1, 3, 3)):
        counts = torch.histc(values.cuda(), bins=bins, min=low, max=high)
        assert (counts.dtype, counts.device.type) == (dtype, "cuda")
        assert counts.tolist() == torch.histc(values.double(), bins=bins, min=low, max=high).tolist()
    assert torch.histc(values[:0].cuda(), bins=3).tolist() == [0, 0, 0]
    assert torch.histc(values.cuda()).sum() == len(values)


def test_counts_take_memory_and_a_kernel(machine: Machine) -> None:
    experts = torch.randint(0, 8, (64,), device="cuda", dtype=torch.int32)
    before, kernels = torch.cuda.memory_allocated(), machine.snapshot().devices[0].counters.kernels
    counts = torch.histc(experts, bins=8, min=0, max=7)
    assert torch.cuda.memory_allocated() == before + 512
    assert machine.snapshot().devices[0].counters.kernels > kernels
    assert int(counts.sum()) == 64


def test_cuda_s_refusals(machine: Machine) -> None:
    numbers = torch.arange(4, device="cuda")
    with pytest.raises(RuntimeError, match=r"^HalfTensor is not supported$"):
        torch.histc(numbers.half())
    with pytest.raises(NotImplementedError, match="\"histc\" not implemented for 'BFloat16'"):
        torch.histc(numbers.bfloat16())
    with pytest.raises(RuntimeError, match="max must be larger than min"):
        torch.histc(numbers, min=3, max=2)
    with pytest.raises(RuntimeError, match="bins must be > 0"):
        torch.histc(numbers, bins=0)


@pytest.mark.parametrize(
    ("values", "options", "said"),
    [
        ([float("inf")], {}, r"^range of \[inf, inf\] is not finite$"),
        ([1.0, float("inf")], {}, r"^range of \[1, inf\] is not finite$"),
        ([1.0], {"min": 2, "max": 1}, "^max must be larger than min$"),
        ([1.0], {"bins": 0}, "^bins must be > 0$"),
    ],
)
def test_floats_outside_of_every_range(
    machine: Machine, values: list[float], options: dict[str, int], said: str
) -> None:
    with pytest.raises(RuntimeError, match=said):
        torch.histc(torch.tensor(values, device="cuda"), **options)
