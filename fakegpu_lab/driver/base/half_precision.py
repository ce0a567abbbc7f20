"""float16 and bfloat16: CUDA computes them in float32 (`acc_type`) and rounds once."""

from __future__ import annotations

from typing import Final

import torch

HALVES: Final = (torch.float16, torch.bfloat16)


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` in the dtype that CUDA computes it in."""
    return tensor.float() if tensor.dtype in HALVES else tensor
