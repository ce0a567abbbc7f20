"""The kinds of operations between ranks, by their names in torch's `OpType`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from fakegpu_lab.hardware.network import nccl

_Function = TypeVar("_Function", bound=Callable[..., None])


class Kind(NamedTuple):
    """One kind of operation.

    Attributes
    ----------
    function
        The function of torch.distributed, as messages name it.
    model
        The operation whose time the model of NCCL computes.
    movement
        How data moves: kinds that differ only in their arguments share one. Empty between two ranks.
    """

    function: str
    model: nccl.Operation
    movement: str = ""


KINDS = {
    "ALLREDUCE": Kind("all_reduce", "all_reduce", "all_reduce"),
    "ALLREDUCE_COALESCED": Kind("all_reduce (coalesced)", "all_reduce", "all_reduce"),
    "BROADCAST": Kind("broadcast", "broadcast", "broadcast"),
    "REDUCE": Kind("reduce", "reduce", "reduce"),
    "ALLGATHER": Kind("all_gather", "all_gather", "all_gather"),
    "_ALLGATHER_BASE": Kind("all_gather_into_tensor", "all_gather", "all_gather_into_tensor"),
    "ALLGATHER_COALESCED": Kind("all_gather_into_tensor (coalesced)", "all_gather", "all_gather_into_tensor"),
    "GATHER": Kind("gather", "gather", "gather"),
    "SCATTER": Kind("scatter", "scatter", "scatter"),
    "REDUCE_SCATTER": Kind("reduce_scatter", "reduce_scatter", "reduce_scatter"),
    "_REDUCE_SCATTER_BASE": Kind("reduce_scatter_tensor", "reduce_scatter", "reduce_scatter_tensor"),
    "REDUCE_SCATTER_COALESCED": Kind("reduce_scatter_tensor (coalesced)", "reduce_scatter", "reduce_scatter_tensor"),
    "ALLTOALL": Kind("all_to_all", "all_to_all", "all_to_all"),
    "ALLTOALL_BASE": Kind("all_to_all_single", "all_to_all", "all_to_all_single"),
    "BARRIER": Kind("barrier", "barrier", "barrier"),
    "MONITORED_BARRIER": Kind("monitored_barrier", "barrier", "barrier"),
    "SEND": Kind("send", "send"),
    "RECV": Kind("recv", "recv"),
    "RECVANYSOURCE": Kind("recv from any rank", "recv"),
}
P2P = frozenset(name for name, kind in KINDS.items() if not kind.movement)
"""Sends and receives."""


def by_kind(**functions: _Function) -> dict[str, _Function]:
    """The function for each kind, given one for each movement; kinds without one are left out.

    >>> by_kind(barrier=print)
    {'BARRIER': <built-in function print>, 'MONITORED_BARRIER': <built-in function print>}
    """
    return {name: functions[kind.movement] for name, kind in KINDS.items() if kind.movement in functions}
