"""Shows a group's operations to dispatch modes and tensor subclasses, as C++ does by dispatching ``c10d::…`` ops.

`CommDebugMode` counts them, for example, and a subclass that wraps a tensor passes that on. C++'s kernels of these ops
look for a backend in C++, and would not find ours. So a mode gets an op that, called, carries out the operation.
Simplified: the op's arguments are its tensors and the group, without further options.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _python_dispatch

from fakegpu_lab.driver.base.tensor import dispatches_itself
from fakegpu_lab.ranks.process_groups.work_handles import RankWork

if TYPE_CHECKING:
    from collections.abc import Callable

_OPS = {
    "ALLREDUCE": "allreduce_",
    "ALLREDUCE_COALESCED": "allreduce_coalesced_",
    "REDUCE": "reduce_",
    "REDUCE_SCATTER": "reduce_scatter_",
    "_REDUCE_SCATTER_BASE": "_reduce_scatter_base_",
    "REDUCE_SCATTER_COALESCED": "reduce_scatter_tensor_coalesced_",
    "BROADCAST": "broadcast_",
    "ALLGATHER": "allgather_",
    "_ALLGATHER_BASE": "_allgather_base_",
    "ALLGATHER_COALESCED": "allgather_into_tensor_coalesced_",
    "GATHER": "gather_",
    "SCATTER": "scatter_",
    "ALLTOALL": "alltoall_",
    "ALLTOALL_BASE": "alltoall_base_",
    "BARRIER": "barrier",
    "MONITORED_BARRIER": "monitored_barrier_",
    "SEND": "send",
    "RECV": "recv_",
    "RECVANYSOURCE": "recv_any_source_",
}
"""The op that C++ dispatches for each kind of operation (torch/csrc/distributed/c10d/Ops.cpp)."""
_IN_PLACE = frozenset(("ALLREDUCE", "ALLREDUCE_COALESCED", "REDUCE", "BROADCAST"))


class _Operation(torch._ops.OpOverload[Any, Any]):
    """An op of ``c10d::``, which carries out one operation when it is called."""

    def __init__(self, op: Any, carry_out: Callable[..., Any]) -> None:
        vars(self).update(vars(op))
        self._torchs = op
        self._carry_out = carry_out

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._carry_out(*args)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._torchs

    def __hash__(self) -> int:
        return hash(self._torchs)


def shown(issue: Callable[..., Any]) -> Callable[..., Any]:
    """`RankGroup._issue`, through this thread's dispatch modes and the tensors' own ``__torch_dispatch__``."""

    @wraps(issue)
    def dispatched(group: Any, kind: str, inputs: Any, outputs: Any, *args: Any, **more: Any) -> Any:
        __tracebackhide__ = True
        mode: Any = _python_dispatch._get_current_dispatch_mode()
        if getattr(mode, "_mode_key", None) is not None:  # one of torch.compile's own
            mode = None
        wrapper = next((type(tensor) for tensor in (*inputs, *outputs) if dispatches_itself(tensor)), None)
        if mode is wrapper is None:
            return issue(group, kind, inputs, outputs, *args, **more)
        in_place = kind in _IN_PLACE
        works: list[Any] = []

        def carry_out(*given: Any) -> Any:
            targets, sources = given[0], given[0 if in_place else 1]
            works.append(dispatched(group, kind, sources, targets, *args, **more))
            return targets, works[-1]

        op = _Operation(getattr(torch.ops.c10d, _OPS[kind]).default, carry_out)
        types = () if wrapper is None else (wrapper,)
        given = (inputs, group) if in_place else (outputs, inputs, group)
        result = NotImplemented
        if mode is not None:
            with _python_dispatch._pop_mode_temporarily():
                result = mode.__torch_dispatch__(op, types, given, {})
        if result is NotImplemented and wrapper is not None:
            wrapper.__torch_dispatch__(op, types, given, {})
        return works[-1] if works else RankWork([], outputs)

    return dispatched
