"""torch's own Gloo backend, `ProcessGroupGloo`, where a program uses it directly: with tensors of simulated devices.

``c10d.ProcessGroupGloo(store, rank, size).allreduce([x])``. C++ copies CUDA tensors to the host, reduces there, and
copies back (ProcessGroupGloo.cpp, AsyncAllreduceCUDAWork and others). Here the values are on the host already, so C++
gets them themselves.

Simplified: the ranks' simulated clocks do not meet in these operations; each rank pays for its own copies and for
Gloo's steps. (Groups that `init_process_group` makes are `RankGroup`s, where the clocks meet.)
"""

from __future__ import annotations

import functools
import sys
import weakref
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import wrapped
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.hardware.time.clock import here
from fakegpu_lab.ranks.collectives import cost
from fakegpu_lab.ranks.dist import cpp, dist
from fakegpu_lab.ranks.process_groups.process_group import RankGroup

if TYPE_CHECKING:
    from collections.abc import Callable


_KINDS = {
    "allreduce": "ALLREDUCE",
    "allreduce_coalesced": "ALLREDUCE_COALESCED",
    "broadcast": "BROADCAST",
    "reduce": "REDUCE",
    "allgather": "ALLGATHER",
    "_allgather_base": "_ALLGATHER_BASE",
    "gather": "GATHER",
    "scatter": "SCATTER",
    "alltoall_base": "ALLTOALL_BASE",
}
"""Methods that take CUDA tensors, and their kinds of operation (`collectives.kinds`)."""


class HostWork(cpp.Work):  # type: ignore[misc]
    """An operation of Gloo's on the values of device tensors."""

    def __init__(self, real: Any, kind: str, results: Any, tensors: list[FakeCudaTensor], size: int) -> None:
        super().__init__()
        self._real, self._results = real, results
        device = tensors[0]._device
        nbytes = sum(tensor.nbytes for tensor in tensors)
        assert current.machine is not None
        links = current.machine.links
        copies = [links.host_ns(device.slot, nbytes, to_device=back, pinned=True) for back in (False, True)]
        start = max(here.host.now, here.host.streams[device].end)
        self._end_ns = start + sum(copies) + cost.gloo_ns(kind, nbytes, size)

    def wait(self, *timeout: Any) -> bool:
        """Wait for Gloo, and for the copies."""
        done = bool(self._real.wait(*timeout))
        here.host.wait(self._end_ns)
        return done

    synchronize = wait

    def is_completed(self) -> bool:
        """Whether it is done."""
        return bool(self._real.is_completed())

    def result(self) -> Any:
        """The tensors that were written."""
        self._real.result()  # raises if it is not done
        return self._results

    def get_future(self) -> torch.futures.Future[Any]:
        """The tensors that were written, as a future."""
        return self._real.get_future().then(lambda _: self._results)  # type: ignore[no-any-return]


def _on_the_host(real: Callable[..., Any], kind: str) -> Callable[..., Any]:
    @functools.wraps(real, assigned=("__name__", "__doc__"), updated=())
    def method(self: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        found: list[FakeCudaTensor] = []

        def values(tensor: Any) -> Any:
            if isinstance(tensor, FakeCudaTensor):
                found.append(tensor)
                return tensor._inner
            return tensor

        inside = torch.utils._pytree.tree_map(values, (tensors, args, kwargs))
        if not found:
            return real(self, tensors, *args, **kwargs)
        work = real(self, inside[0], *inside[1], **inside[2])
        results = [tensors] if isinstance(tensors, torch.Tensor) else tensors
        if len(results) == 1 and not isinstance(results[0], torch.Tensor):
            results = results[0]  # ProcessGroupGloo.cpp, returnFutureWithOutput
        return HostWork(work, kind, results, found, self.size())

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
_WHY = "C++'s Gloo takes device tensors"
CHANGES = (
    [
        *(
            wrapped(f"{_CPP}.ProcessGroupGloo.{name}", functools.partial(_on_the_host, kind=kind), _WHY)
            for name, kind in _KINDS.items()
        ),
        wrapped(f"{_CPP}.Logger.set_construction_data_and_log", _logging, _WHY),
    ]
    if hasattr(cpp, "ProcessGroupGloo")
    else []  # a build of torch without Gloo
)
