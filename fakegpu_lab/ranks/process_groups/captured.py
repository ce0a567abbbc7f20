"""Collectives in CUDA graphs: NCCL's are captured like kernels, and each replay calls them again.

As for every op under capture, nothing happens before the first replay. Simplified: collectives that were coalesced, and
what waits on the host (a barrier, Gloo), are refused; one with ``async_op=True`` is joined where it was called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base import graph_capture
from fakegpu_lab.driver.graphs.capture import GraphCapture
from fakegpu_lab.ranks.collectives.operation import KINDS
from fakegpu_lab.ranks.process_groups.work_handles import RankWork

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.ranks.collectives.operation import Operation


def captured(operation: Operation, again: Callable[..., Any]) -> RankWork | None:
    """The handle of an operation that a graph has captured; None if it is to run.

    Parameters
    ----------
    again
        Calls the operation with these inputs and outputs, when the graph is replayed.
    """
    capture = graph_capture.current_capture()
    if not isinstance(capture, GraphCapture):
        return None
    nccl = operation.channel.backend == "nccl"
    if not nccl or operation.kind == "BARRIER" or operation.batch is not None:
        which = f"{KINDS[operation.kind].function}{' in a batch' if operation.batch is not None else ''}"
        raise RuntimeError(
            f"{which} cannot be captured into a CUDA graph in the simulation: call it outside the graph."
        )
    capture.call(
        f"nccl:{KINDS[operation.kind].model}",
        lambda inputs, outputs: again(inputs, outputs).wait(),
        operation.inputs,
        operation.outputs,
    )
    return RankWork([], operation.outputs)
