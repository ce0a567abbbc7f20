"""The message of NCCL's watchdog for an operation that times out (ProcessGroupNCCL.cpp, `WorkNCCL::checkTimeout`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fakegpu_lab.ranks.collectives.operation import Operation


def timeout_message(operation: Operation, milliseconds: int = 600_000) -> str:
    """The watchdog's sentence for a rank's call; it sees a barrier as an all-reduce."""
    numel_in = sum(tensor.numel() for tensor in operation.inputs) or sum(t.numel() for t in operation.outputs)
    numel_out = sum(tensor.numel() for tensor in operation.outputs) or numel_in
    kind = "ALLREDUCE" if operation.kind == "BARRIER" else operation.kind
    return (
        f"[Rank {operation.global_rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={operation.number}, OpType={kind}, NumelIn={numel_in}, NumelOut={numel_out}, "
        f"Timeout(ms)={milliseconds}) ran for {milliseconds} milliseconds before timing out."
    )
