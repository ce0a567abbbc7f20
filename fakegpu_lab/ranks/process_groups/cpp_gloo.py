"""torch's own Gloo backend, `ProcessGroupGloo`: a program that uses it directly gives it tensors of the host.

Groups that `init_process_group` makes are `RankGroup`s; DDP's logger asks theirs for a backend in C++.
"""

from __future__ import annotations

import functools
import sys
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from fakegpu_lab.driver.base import not_simulated
from fakegpu_lab.driver.base.changes import wrapped
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.ranks.dist import cpp, dist
from fakegpu_lab.ranks.process_groups.process_group import RankGroup

if TYPE_CHECKING:
    from collections.abc import Callable


_WITH_TENSORS = (
    "allreduce", "allreduce_coalesced", "broadcast", "reduce", "allgather", "_allgather_base", "gather", "scatter",
    "alltoall_base",
)  # fmt: skip
"""Methods that take CUDA tensors."""


def _of_the_host(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real, assigned=("__name__", "__doc__"), updated=())
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(leaf, FakeCudaTensor) for leaf in tree_leaves((args, kwargs))):
            raise not_simulated.error("C++ Gloo")
        return real(self, *args, **kwargs)

    return method


_with_backend: weakref.WeakSet[RankGroup] = weakref.WeakSet()


def _give_backend(group: Any) -> None:
    """Give a Gloo group of ranks a C++ backend, which DDP's logger asks for the number of its threads.

    It is Gloo's for one process, and nothing else uses it.
    """
    if not isinstance(group, RankGroup) or group.getBackendName() != "gloo" or group in _with_backend:
        return
    options = cpp.ProcessGroupGloo._Options()
    options._devices = [cpp.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    gloo = cpp.ProcessGroupGloo(dist.HashStore(), 0, 1, options)
    dist.ProcessGroup._register_backend(group, torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
    _with_backend.add(group)


def _logging(real: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(real, assigned=("__name__", "__doc__"), updated=())
    def set_construction_data_and_log(self: Any, *args: Any) -> None:
        _give_backend(getattr(sys._getframe(1).f_locals.get("self"), "process_group", None))
        real(self, *args)

    return set_construction_data_and_log


_CPP = "torch._C._distributed_c10d"
CHANGES = (
    [
        *(
            wrapped(f"{_CPP}.ProcessGroupGloo.{name}", _of_the_host, "it takes tensors of the host")
            for name in _WITH_TENSORS
        ),
        wrapped(f"{_CPP}.Logger.set_construction_data_and_log", _logging, "it asks groups for a backend in C++"),
    ]
    if hasattr(cpp, "ProcessGroupGloo")
    else []  # a build of torch without Gloo
)
