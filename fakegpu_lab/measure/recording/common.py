"""What all sections share: items that may fail alone, and readings of the allocator."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

DEVICE = "cuda:0"
MIB = 2**20


def sentence(error: BaseException) -> str:
    """An error as ``Class: text``."""
    return f"{type(error).__name__}: {error}"


def attempt(item: Callable[[], Any]) -> Any:
    """What `item` returns, or ``{"error": …}``: one item that a machine cannot do leaves the others standing."""
    try:
        return item()
    except Exception as error:
        return {"error": sentence(error)[:2000]}


def refusal(item: Callable[[], Any]) -> str:
    """The error that `item` must raise, as a sentence; "no error" where it raises none."""
    try:
        item()
    except Exception as error:
        return sentence(error)
    return "no error"


def settle(collect: bool = False) -> None:
    """Leave nothing of the last item behind: cached segments, cuBLAS's workspaces, peaks; garbage, if asked."""
    if collect:
        gc.collect()
    torch.cuda.synchronize()
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear is not None:
        clear()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def memory() -> dict[str, int]:
    """The allocator's four figures, in bytes."""
    return {
        "allocated": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "peak_allocated": torch.cuda.max_memory_allocated(),
        "peak_reserved": torch.cuda.max_memory_reserved(),
    }
