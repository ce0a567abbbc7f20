"""Every entry of torch's operator database computes on ``cuda:0`` what it computes on the CPU, forward and backward.

Up to eight samples an entry, float32 (or, where an operator has none, the first of its dtypes below). The samples are
made on the CPU and moved; results and gradients are brought back and compared; every tensor that comes out must be on
the device, except where CUDA, too, answers on the host.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

import fakegpu_lab as lab
from fakegpu_lab.driver.random import CudaGenerator
from tests.conformance.exceptions import EXCEPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.testing._internal.opinfo.core import OpInfo

SAMPLES = 8
DTYPES = (torch.float32, torch.int64, torch.complex64, torch.bool)
UNDEFINED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
"""What they return has no defined values: shape, dtype and device are compared."""

DRAWS: list[int] = []
"""What was drawn from a device's generator: many entries restore its state before they return."""

HOST_ARGUMENTS = {"tensor_split"}
"""CUDA wants this operator's second tensor on the host."""


def name_of(op: OpInfo) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


class Moved:
    """Copies of a sample's tensors on the device; a tensor that occurs twice is one tensor there, too."""

    def __init__(self) -> None:
        self.copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return "cuda:0" if isinstance(value, (str, torch.device)) and str(value) == "cpu" else value
        if id(value) not in self.copies:
            copy = value.detach().to("cuda:0")
            self.copies[id(value)] = value, copy.requires_grad_(value.requires_grad)
        return self.copies[id(value)][1]


def check(expected: Any, actual: Any, values: bool = True) -> None:
    """Two results, one of the CPU and one of the device, are equal."""
    for one, other in zip(tree_leaves(expected), tree_leaves(actual), strict=True):
        if isinstance(one, torch.Tensor):
            assert other.is_cuda
            assert other.dtype == one.dtype
            assert other.shape == one.shape
            if values:
                assert_close(other.detach().cpu(), one.detach().cpu())  # a few samples name "cuda" themselves
        elif isinstance(one, (bool, int, float, complex)):
            assert other == one or (one != one and other != other)


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


def differentiable(result: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


def total(tensors: list[torch.Tensor]) -> torch.Tensor:
    sums = [t.abs().sum() if t.is_complex() else t.sum() for t in tensors]
    return torch.stack([s.to(sums[0].dtype) for s in sums]).sum()


def compare(op: OpInfo, sample: Any, gradients: bool) -> None:
    """One sample on both."""
    name, moved = name_of(op), Moved()
    inputs = (sample.input, sample.args, sample.kwargs)
    for leaf in tree_leaves(inputs):
        if isinstance(leaf, torch.Tensor):
            leaf.grad = None
    if op.name in HOST_ARGUMENTS:
        there = (moved(sample.input), sample.args, sample.kwargs)
    elif op.name == "to":
        there = (moved(sample.input), *tree_map(lambda v: moved(v) if v is sample.input else v, inputs[1:]))
    else:
        there = tree_map(moved, inputs)
    torch.manual_seed(7)  # the devices' generators too
    expected = op(sample.input, *sample.args, **sample.kwargs)
    DRAWS.clear()
    actual = op(there[0], *there[1], **there[2])
    drew = bool(DRAWS)  # a device's digits are not the CPU's
    if op.name == "to":  # the sample names its device
        for one, other in zip(tree_leaves(expected), tree_leaves(actual), strict=True):
            assert_close(other.detach().cpu(), one.detach())
    else:
        check(expected, actual, values=name not in UNDEFINED and not drew)
    if drew or not (gradients and differentiable(expected)):
        return
    total(differentiable(expected)).backward()
    total(differentiable(actual)).backward()
    for original, copy in moved.copies.values():
        if original.grad is not None:
            assert copy.grad is not None
            check(original.grad, copy.grad)


def run(op: OpInfo) -> None:
    dtype = next((d for d in DTYPES if d in op.dtypes), None)
    assert dtype is not None, "no CPU kernel for any of the dtypes"
    gradients = op.supports_autograd and dtype.is_floating_point
    samples = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=gradients), SAMPLES))
    assert samples
    for sample in samples:
        compare(op, sample, gradients)


@pytest.fixture(scope="module")
def machine() -> Iterator[None]:
    lab.enable("a100:2", memory="4GiB")
    advance = CudaGenerator.advance

    def noted(generator: CudaGenerator, increment: int) -> int:
        DRAWS.append(increment)
        return advance(generator, increment)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CudaGenerator, "advance", noted)
        yield
    lab.disable()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("op", op_db, ids=name_of)
def test_agrees_with_cpu(op: OpInfo) -> None:
    reason = EXCEPTIONS.get(name_of(op))
    if reason is None:
        run(op)
        return
    with pytest.raises((AssertionError, NotImplementedError, RuntimeError)):
        run(op)


def test_the_exceptions_are_few_and_real() -> None:
    names = {name_of(op) for op in op_db}
    assert not [name for name in EXCEPTIONS if name not in names and torch.__version__ >= "2.13"]
    assert len(EXCEPTIONS) <= 0.03 * len(names)
