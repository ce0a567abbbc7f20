"""The messages of NCCL's watchdog for an operation that times out, and for calls after that.

ProcessGroupNCCL.cpp, `WorkNCCL::checkTimeout`; NCCLUtils.cpp, `NCCLComm::getNcclComm`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fakegpu_lab.ranks.collectives.operation import Operation


def timeout_message(operation: Operation, milliseconds: int = 600_000, waited: int | None = None) -> str:
    """The watchdog's sentence for a rank's call; it sees a barrier as an all-reduce.

    `waited` is how long a wait with a limit of its own has taken, in milliseconds.
    """
    waited = milliseconds if waited is None else waited
    numel_in = sum(tensor.numel() for tensor in operation.inputs) or sum(t.numel() for t in operation.outputs)
    numel_out = sum(tensor.numel() for tensor in operation.outputs) or numel_in
    kind = "ALLREDUCE" if operation.kind == "BARRIER" else operation.kind
    return (
        f"[Rank {operation.global_rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={operation.number}, OpType={kind}, NumelIn={numel_in}, NumelOut={numel_out}, "
        f"Timeout(ms)={milliseconds}) ran for {waited} milliseconds before timing out."
    )


def aborted_message(rank: int, failure: str = "") -> str:
    """The sentence for a communicator that was aborted, because of a failure or by the program."""
    reason = f" Original reason for failure was: {failure}" if failure else ""
    return f"NCCL communicator was aborted on rank {rank}. {reason}"
