"""torch.cuda.MemPool: memory kept apart from all other memory (aten/src/ATen/cuda/MemPool.cpp).

A CPU build derives `torch.cuda.MemPool` from a dummy class, on which the methods are set. In a CUDA build its base is
C++'s own, and `install` puts a class over ours in its place. The pools themselves are those of CUDA graphs, in
`hardware.allocator`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch
import torch.cuda.memory

from fakegpu_lab.driver.base import current, not_simulated
from fakegpu_lab.driver.base.changes import added, computed, in_cuda_builds, replaced
from fakegpu_lab.driver.torch_cuda.graphs import graph_pool_handle
from fakegpu_lab.driver.torch_cuda.streams import class_rows, executed_again

if TYPE_CHECKING:
    from fakegpu_lab.driver.base.changes import Change
    from fakegpu_lab.hardware.allocator.blocks import PoolId
    from fakegpu_lab.hardware.allocator.caching_allocator import CachingAllocator


class Pool:
    """The methods of ``_MemPool``."""

    _allocator: CachingAllocator
    _id: PoolId

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: D102 - in the place of the dummy's
        return object.__new__(cls)

    def __init__(
        self, allocator: Any = None, is_user_created: bool = True, use_on_oom: bool = False, no_split: bool = False
    ) -> None:
        if allocator is not None:
            raise not_simulated.error("allocators")
        if use_on_oom or no_split:
            raise not_simulated.error("memory pools")
        source = current.device().allocator
        self._id = graph_pool_handle()
        source.hold_pool(self._id)
        self._allocator = source

    def __del__(self) -> None:
        if hasattr(self, "_allocator"):  # else the constructor has failed
            self._allocator.delete_pool(self._id)

    @property
    def id(self) -> PoolId:
        """Two numbers."""
        return self._id

    @property
    def allocator(self) -> None:
        """None, the default: other allocators are refused."""
        return

    def use_count(self) -> int:
        """How many hold it: this object, ``use_mem_pool`` and CUDA graphs."""
        return self._allocator.pool_users(self._id)


def begin_for_thread(index: int, pool: PoolId) -> None:
    """Serve this thread from a pool; not the backward pass, which on a card runs in a thread of its device.

    Simplified: `torch.autograd.set_multithreading_enabled(False)` does not change that.
    """
    thread = threading.get_ident()

    def applies(stream: int) -> bool:
        return threading.get_ident() == thread and torch._C._current_graph_task_id() == -1

    allocator = current.devices()[index].allocator
    allocator.hold_pool(pool)
    allocator.divert(pool, applies)


FUNCTIONS: dict[str, Any] = {
    "_cuda_beginAllocateCurrentThreadToPool": begin_for_thread,
    "_cuda_endAllocateToPool": lambda index, pool: current.devices()[index].allocator.end_diversion(pool),
    "_cuda_releasePool": lambda index, pool: current.devices()[index].allocator.drop_pool(pool),
}


def _class() -> list[Change]:
    if type(torch._C._MemPool) is type:
        names = ("__new__", "__init__", "__del__", "id", "allocator", "use_count")
        return [added(f"torch._C._MemPool.{name}", vars(Pool)[name], _WHY) for name in names]
    return [replaced("torch._C._MemPool", Pool, _WHY), computed(_executed_again, _WHY)]  # a CUDA build


def _executed_again() -> list[Change]:
    return class_rows("torch.cuda.memory", "MemPool", executed_again("torch.cuda.memory").MemPool)


_WHY = "pools are the machine's allocator's"
CHANGES = [
    *in_cuda_builds(FUNCTIONS),
    *(
        replaced(f"torch.cuda.memory.{name}", function, "torch.cuda.memory bound a CPU build's dummies")
        for name, function in FUNCTIONS.items()
        if hasattr(torch.cuda.memory, name)
    ),
    computed(_class, _WHY),
]
