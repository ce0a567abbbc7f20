"""float16 and bfloat16: CUDA computes them in float32 (`acc_type`) and rounds once."""

from __future__ import annotations

from typing import Any, Final

import torch

HALVES: Final = (torch.float16, torch.bfloat16)


def _slow_products() -> frozenset[torch.dtype]:
    if not torch._C._has_mkldnn:
        return frozenset(HALVES)
    mkldnn: Any = torch.ops.mkldnn
    fast = {
        torch.bfloat16: mkldnn._is_mkldnn_bf16_supported(),
        torch.float16: mkldnn._is_mkldnn_fp16_supported(),
    }
    return frozenset(dtype for dtype in HALVES if not fast[dtype])


SLOW_PRODUCTS: Final = _slow_products()
"""The halves whose products oneDNN does not compute on this processor.

Most processors have no instructions for one or both. Torch then multiplies element by element, up to 200 times as
slowly as in float32.
"""


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` in the dtype that CUDA computes it in."""
    return tensor.float() if tensor.dtype in HALVES else tensor
