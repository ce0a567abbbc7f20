"""Values at the edge of an op's domain, where CUDA's kernels and the CPU's differ.

A float that is too large for an integer becomes the largest integer. `one_hot` does not check its classes on the host.
Errors that both raise in the same words, such as a singular matrix in `torch.linalg` or negative values in
`torch.bincount`, are not handled here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.tensor import FakeCudaTensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Plan


def to_integer(source: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The floats `source` as integers; values out of range become the nearest integer (PTX, ``cvt.rzi``).

    NaN becomes 0, or the smallest integer if either type has 64 bits. Integers of fewer than 32 bits are converted as
    on the CPU. Returns `source` if the CPU's conversion gives the same.
    """
    bits = {torch.int32: 32, torch.int64: 64}.get(dtype)
    if bits is None or source.is_meta or source.layout is not torch.strided:
        return source
    wide = source.double()
    limit = 2.0 ** (bits - 1)
    outside = ~(wide.abs() < limit)
    if not bool(outside.any()):
        return source
    least = -(2 ** (bits - 1))
    result = torch.where(outside, 0.0, wide).to(dtype)
    result[wide >= limit] = -1 - least
    result[wide <= -limit] = least
    result[wide.isnan()] = least if bits == 64 or source.dtype is torch.float64 else 0
    return result


def index_error(named: dict[str, Any]) -> IndexError:
    """The host's error in ``index_put_(accumulate=True)``, with the extreme index (Indexing.cu, `wrapIndexOnce`)."""
    source, dim = named["self"], 0
    for index in named["indices"]:
        if index is not None and index.dtype in (torch.int64, torch.int32) and index.numel():
            size, most, least = source.shape[dim], int(index.max()), int(index.min())
            if most >= size or least < -size:
                wrong = most if most >= size else least
                return IndexError(f"index {wrong} is out of bounds for dimension {dim} with size {size}")
        dim += index.dim() if index is not None and index.dtype in (torch.bool, torch.uint8) else 1
    return IndexError("index out of range")


def with_index_check(plan: Plan) -> Plan:
    """`plan`, after a check of an expanded index: the CPU's kernel would read outside the tensor.

    ScatterGatherKernel.cpp, `can_use_expanded_index_path`.
    """

    def indexed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) > 2 and args[2].__class__ is FakeCudaTensor and 0 in args[2].stride():
            source, dim, index = args[0], args[1], args[2]._inner
            size = source.shape[dim] if source.dim() else 1
            if not index.is_meta and index.numel() and bool(((index < 0) | (index >= size)).any()):
                raise RuntimeError(f"an index is out of bounds for dimension {dim} with size {size}")
        return plan(args, kwargs)

    return indexed


def one_hot(original: Callable[..., Any]) -> Callable[..., Any]:
    """`F.one_hot`, in which the kernel checks the classes (aten/src/ATen/native/Onehot.cpp)."""

    def on_device(input: torch.Tensor, num_classes: int = -1) -> torch.Tensor:  # noqa: A002 - torch's name
        if input.__class__ is not FakeCudaTensor or input.dtype is not torch.int64 or not input.numel():
            return original(input, num_classes)  # type: ignore[no-any-return]
        if num_classes == -1:
            num_classes = int(input.max().item()) + 1
        elif num_classes < 1:
            raise RuntimeError("num_classes should be positive")
        result = torch.zeros((*input.shape, num_classes), dtype=torch.int64, device=input.device)
        return result.scatter_(-1, input.unsqueeze(-1), 1)

    return on_device
