"""Every entry of torch's operator database has, under ``compute="meta"``, the CPU's shapes, strides and dtypes.

Two samples an entry, forward. What needs values is listed by name (`meta_exceptions`) and must say so.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

import fakegpu_lab as lab
from fakegpu_lab.driver.copies.transfer import NoValuesError
from tests.conformance.exceptions import EXCEPTIONS as NOT_ON_A_DEVICE
from tests.conformance.meta_exceptions import EXCEPTIONS, STRIDES
from tests.conformance.test_op_db import DTYPES, HOST_ARGUMENTS, OTHERWISE, Moved, dtypes_of, name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.testing._internal.opinfo.core import OpInfo

SAMPLES = 2

UNSEEDED = {"cauchy", "exponential", "geometric", "log_normal"}
"""torch's shape functions of these refuse a generator."""


COMPARED = [
    op
    for op in op_db
    if op.dtypes and dtypes_of(op) and name_of(op) not in {*NOT_ON_A_DEVICE, *UNSEEDED}  # without_cudnn has no CPU's
]


class OtherStrides(AssertionError):
    pass


def strides(tensor: torch.Tensor) -> list[int]:
    """The strides that matter: those of extents above 1, in a tensor that has elements."""
    return [s for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1 and tensor.numel()]


def check(expected: Any, actual: Any) -> None:
    for one, other in zip(tree_leaves(expected), tree_leaves(actual), strict=True):
        if isinstance(one, torch.Tensor):
            assert other.is_cuda
            assert (other.shape, other.dtype, other.layout) == (one.shape, one.dtype, one.layout)
            if one.layout is torch.strided and strides(one) != strides(other):
                raise OtherStrides((one.shape, one.stride(), other.stride()))
        else:
            assert type(other) is type(one)


def run(op: OpInfo) -> None:
    dtype = next(d for d in (*DTYPES, *OTHERWISE) if d in op.dtypes)
    samples = list(itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES))
    assert samples
    for sample in samples:
        for _ in range(2):  # what was said of such arguments is not asked for again
            moved = Moved()
            inputs = (sample.input, sample.args, sample.kwargs)
            there = tree_map(moved, inputs)
            if op.name in HOST_ARGUMENTS:
                there = (moved(sample.input), *inputs[1:])
            actual = op(there[0], *there[1], **there[2])
            check(op(sample.input, *sample.args, **sample.kwargs), actual)


@pytest.fixture(scope="module")
def machine() -> Iterator[None]:
    lab.enable("a100:2", memory="4GiB", compute="meta")
    yield
    lab.disable()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("op", COMPARED, ids=name_of)
def test_has_the_shapes_of_the_cpu(op: OpInfo) -> None:
    name = name_of(op)
    if name in EXCEPTIONS:
        with pytest.raises(NoValuesError, match='compute="real"'):
            run(op)
    elif name in STRIDES:
        with pytest.raises(OtherStrides):
            run(op)
    else:
        run(op)


def test_the_exceptions_are_few_and_real() -> None:
    names = {name_of(op) for op in op_db}
    assert not [name for name in (*EXCEPTIONS, *STRIDES) if name not in names and torch.__version__ >= "2.13"]
    assert len(EXCEPTIONS) + len(STRIDES) <= 0.06 * len(names)
