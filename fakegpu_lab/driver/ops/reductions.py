"""Reductions that CUDA computes and the CPU does not, or not in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op

    Kernel = Callable[..., Any]

MAX_OF_BAG = 2
"""`embedding_bag`'s mode for maxima (EmbeddingBag.h, EmbeddingBagMode)."""


def nansum(op: Op, call: Kernel) -> Kernel:
    """`nansum` that also takes complex numbers (cuda/ReduceSumProdKernel.cu, nansum_kernel_cuda)."""

    def compute(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not self.is_complex():
            return call(self, *args, **kwargs)
        numbers = torch.where(self.isnan(), 0, self)
        return torch.sum(numbers, *(args or (None,)), **kwargs)

    return compute


def without_maxima(op: Op, call: Kernel) -> Kernel:
    """`embedding_bag`, which keeps the indices of maxima only if its mode is max (cuda/EmbeddingBag.cu)."""

    def embedding_bag(*args: Any, **kwargs: Any) -> Any:
        mode = args[4] if len(args) > 4 else kwargs.get("mode", 0)
        results = call(*args, **kwargs)
        return results if mode == MAX_OF_BAG else (*results[:3], results[3].new_empty(0))

    return embedding_bag
