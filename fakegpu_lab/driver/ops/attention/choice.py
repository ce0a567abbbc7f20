"""Chooses the kernel for scaled dot-product attention as a card does: cuDNN, flash, memory-efficient or math.

Follows `select_sdp_backend` of aten/src/ATen/native/transformers/cuda/sdp_utils.cpp; the conditions are in `checks`.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import begun, in_cuda_builds
from fakegpu_lab.driver.ops.attention.checks import (
    CHECKS,
    CUDNN,
    EFFICIENT,
    FLASH,
    MATH,
    OVERRIDEABLE,
    can_use,
    cudnn_version,
)

if TYPE_CHECKING:
    from collections.abc import Callable


_USUAL_ORDER = (FLASH, EFFICIENT, MATH, CUDNN, OVERRIDEABLE)
_state: dict[str, list[int] | None] = {"order": None}


def choose(params: Any, also: Callable[[int, bool], bool] = lambda backend, debug: True) -> int:
    """Choose the kernel (``select_sdp_backend``).

    Parameters
    ----------
    also
        More conditions of a fused kernel, called with it, and with True if those that fail should warn.

    Raises
    ------
    RuntimeError
        No kernel that is switched on takes these arguments; warnings give the reason for each.
    """
    cpp: Any = torch._C
    enabled = {MATH: cpp._get_math_sdp_enabled(), OVERRIDEABLE: cpp._get_overrideable_sdp_enabled()}
    fused = (cpp._get_flash_sdp_enabled(), cpp._get_mem_efficient_sdp_enabled(), cpp._get_cudnn_sdp_enabled())
    if not (enabled[MATH] or any(fused)):
        raise RuntimeError(
            "No viable backend for scaled_dot_product_attention was found. This is likely due to turning off both the "
            "math kernel and the fused kernels."
        )
    for backend in _order():
        if backend in CHECKS:
            if can_use(backend, params) and also(backend, False):
                return backend
        elif enabled[backend]:
            if backend == OVERRIDEABLE:
                raise RuntimeError("Invalid backend")
            return backend
    for backend, name in ((EFFICIENT, "Memory efficient"), (FLASH, "Flash attention"), (CUDNN, "cuDNN attention")):
        warnings.warn(f"{name} kernel not used because:", UserWarning, stacklevel=2)
        if can_use(backend, params, debug=True):
            also(backend, True)
    raise RuntimeError("No available kernel. Aborting execution.")


def _set_order(order: list[int]) -> None:
    """``_set_sdp_priority_order``: kernels not named follow in their old order (Context::setSDPPriorityOrder)."""
    _state["order"] = [*order, *(backend for backend in _order() if backend not in order)]


def _order() -> list[int]:
    """The order of the kernels: the card's own, until a program sets another."""
    order = _state["order"]
    if order is None:
        order = [CUDNN, FLASH, EFFICIENT, MATH, OVERRIDEABLE] if _prefers_cudnn() else list(_USUAL_ORDER)
        _state["order"] = order
    return order


def _prefers_cudnn() -> bool:
    """check_prefer_cudnn_attention, for the first card; wheels for CUDA 12 leave out some minor versions."""
    devices = current.devices()
    if not devices or os.environ.get("TORCH_CUDNN_SDPA_DEPRIORITIZED") == "1" or cudnn_version() <= 91500:
        return False
    return devices[0].profile.compute_capability[0] in (9, 10)


def _begin() -> None:
    _state["order"] = None


def _can_use(backend: int) -> Callable[..., bool]:
    def can_use_attention(params: Any, debug: bool = False) -> bool:
        return can_use(backend, params, debug)

    return can_use_attention


CHANGES = [
    begun(_begin, "the card's own order of kernels"),
    *in_cuda_builds({
        "_get_sdp_priority_order": lambda: list(_order()),
        "_set_sdp_priority_order": _set_order,
        "_can_use_flash_attention": _can_use(FLASH),
        "_can_use_mem_efficient_attention": _can_use(EFFICIENT),
        "_can_use_cudnn_attention": _can_use(CUDNN),
    }),
]  # fmt: skip
