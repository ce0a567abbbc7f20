"""Torch's operator database as cases: forward and backward, in place, with `out=`, in four dtypes."""

from __future__ import annotations

import contextlib
import itertools
import random
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.testing._internal.opinfo.core import OpInfo, SampleInput

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int64)

UNDEFINED = ("empty", "new_empty", "resize_", "linalg.eig", "torch.ops.aten._efficient")
"""What these return has no defined values, or depends on the library that computes it."""


def cases() -> Iterator[tuple[str, Callable[[], Callable[[], Any]], bool]]:
    """Names, functions that prepare on the device and return what is recorded, and whether values are compared."""
    for op in op_db:
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        with_values = not name.startswith(UNDEFINED)
        for dtype in DTYPES:
            tail = f"{name} {str(dtype)[6:]}"
            yield f"{tail}", prepared(op, dtype, forward_and_backward), with_values
            if op.inplace_variant is not None:
                yield f"{tail} in place", prepared(op, dtype, in_place), with_values
            if op.supports_out and dtype in (torch.float32, torch.int64):
                yield f"{tail} out=", prepared(op, dtype, with_out), with_values


def prepared(op: OpInfo, dtype: torch.dtype, run: Callable[..., Any]) -> Callable[[], Callable[[], Any]]:
    def prepare() -> Callable[[], Any]:
        samples = first_samples(op, dtype)
        moved = [tree_map(on_device, (sample.input, sample.args, sample.kwargs)) for sample in samples]
        return lambda: [run(op, *sample) for sample in moved]

    return prepare


_SAMPLES: dict[tuple[str, str, torch.dtype], list[SampleInput]] = {}


def first_samples(op: OpInfo, dtype: torch.dtype) -> list[SampleInput]:
    """Two samples on the CPU; none if the database cannot make any in this dtype."""
    key = (op.name, op.variant_test_name, dtype)
    if key not in _SAMPLES:
        _SAMPLES.clear()
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002 - torch's samples draw from the global one
        random.seed(0)
        samples: list[SampleInput] = []
        derived = dtype.is_floating_point and op.supports_autograd
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")
            samples += itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=derived), 2)
        _SAMPLES[key] = samples
    return _SAMPLES[key]


def on_device(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to("cuda").requires_grad_(value.requires_grad)
    return "cuda:0" if isinstance(value, (str, torch.device)) and str(value) == "cpu" else value


def forward_and_backward(op: OpInfo, given: Any, args: Any, kwargs: Any) -> Any:
    result = op.op(given, *args, **kwargs)
    inputs = [x for x in tree_leaves((given, args, kwargs)) if isinstance(x, torch.Tensor) and x.requires_grad]
    outputs = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor) and x.requires_grad]
    if not (inputs and outputs):
        return result
    ones = [torch.ones_like(x) for x in outputs]
    return result, torch.autograd.grad(outputs, inputs, ones, allow_unused=True)


def in_place(op: OpInfo, given: Any, args: Any, kwargs: Any) -> Any:
    copy = tree_map(lambda x: x.detach().clone() if isinstance(x, torch.Tensor) else x, given)
    assert op.inplace_variant is not None
    with torch.no_grad():
        return op.inplace_variant(copy, *args, **kwargs)


def with_out(op: OpInfo, given: Any, args: Any, kwargs: Any) -> Any:
    with torch.no_grad():
        result = op.op(given, *args, **kwargs)
        if not all(isinstance(x, torch.Tensor) for x in tree_leaves(result)):
            return result
        return op.op(given, *args, **kwargs, out=tree_map(torch.zeros_like, result))
