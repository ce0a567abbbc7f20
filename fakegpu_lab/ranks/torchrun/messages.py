"""What processes announce to each other before an operation, and errors where they disagree or a process is lost."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.placement.dtypes import scalar_type
from fakegpu_lab.driver.torch_cuda.versions import build
from fakegpu_lab.ranks.collectives import mismatches
from fakegpu_lab.ranks.collectives.operation import Operation
from fakegpu_lab.ranks.diagnosis import nccl_watchdog
from fakegpu_lab.ranks.dist import dist

if TYPE_CHECKING:
    import datetime as dt

_DTYPES = {str(scalar_type(dtype)): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}


def node() -> str:
    """The name of this process's node; it differs between nodes."""
    return f"{socket.gethostname()}/{os.environ.get('GROUP_RANK', '0')}"


def announcement(operation: Operation, ready_ns: int) -> bytes:
    """What other ranks must know of this rank's call, which can begin at `ready_ns`."""
    device = operation.device
    announced: dict[str, Any] = {
        "kind": operation.kind,
        "number": operation.number,
        "ready": ready_ns,
        "root": operation.root,
        "op": operation.reduce_op.op.name if operation.reduce_op is not None else "",
        "in": [list(t.shape) for t in operation.inputs],
        "out": [list(t.shape) for t in operation.outputs],
        "dtype": str(scalar_type(operation.main_tensors[0].dtype)) if operation.main_tensors else "",
        "splits": [list(splits) for splits in operation.splits],
        "nbytes": operation.nbytes,
        "node": node(),
        "slot": device.slot if device is not None else -1,
        "line": operation.line[-200:],
    }
    return json.dumps(announced).encode()


def compare(operation: Operation, announced: dict[int, dict[str, Any]]) -> None:
    """Compare this rank's call with those of the others.

    Parameters
    ----------
    announced
        The other ranks' announcements, by their rank in the group.

    Raises
    ------
    torch.distributed.DistBackendError
        Two ranks are on one GPU, or do not call the same operation.
    """
    for rank, theirs in announced.items():
        twin = _stand_in(operation, rank, theirs)
        if operation.kind == "SEND":  # a receive is compared with its send
            mismatches.check(twin, {operation.rank: operation})
        else:
            mismatches.check(operation, {rank: twin})


@dataclass
class _AnnouncedTensor:
    """What is known of another process's tensor."""

    shape: torch.Size
    dtype: torch.dtype
    is_cuda: bool

    def numel(self) -> int:
        return self.shape.numel()


def _stand_in(operation: Operation, rank: int, announced: dict[str, Any]) -> Operation:
    """Another rank's call, as far as it was announced."""
    dtype = _DTYPES.get(announced["dtype"], torch.uint8)
    given, taken = (
        [_AnnouncedTensor(torch.Size(shape), dtype, announced["slot"] >= 0) for shape in announced[which]]
        for which in ("in", "out")
    )
    twin = Operation(announced["kind"], operation.channel, rank, given, taken)  # type: ignore[arg-type]
    twin.root, twin.number, twin.line = announced["root"], announced["number"], announced["line"]
    twin.peer = operation.rank
    twin.splits = (announced["splits"][0], announced["splits"][1])
    if operation.device is not None and (announced["node"], announced["slot"]) == (node(), operation.device.slot):
        twin.device = operation.device
    if operation.reduce_op is not None and announced["op"]:
        same = announced["op"] == operation.reduce_op.op.name
        twin.reduce_op = operation.reduce_op if same else dist.ReduceOp(getattr(dist.ReduceOp, announced["op"]))
    return twin


def as_nccl_error(error: BaseException, operation: Operation, timeout: dt.timedelta) -> BaseException:
    """The error of NCCL's backend for an error of gloo's."""
    text = str(error)
    nccl = operation.channel.backend == "nccl"
    if not nccl or isinstance(error, dist.DistBackendError) or not isinstance(error, RuntimeError):
        return error
    if "timed out" in text.lower():
        return _backend_error(nccl_watchdog.timeout_message(operation, int(timeout.total_seconds() * 1000)))
    if "onnection" in text or "closed" in text:
        return _backend_error(
            _nccl_error(
                "remote process exited or there was a network error",
                "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
                f"prematurely.\nLast error:\nanother rank ended while this one was in {operation}"
                + (f" ({operation.line})" if operation.line else ""),
            )
        )
    return error


def lost_a_rank(error: BaseException) -> bool:
    """Whether an error of `as_nccl_error` says that another rank has ended."""
    return isinstance(error, dist.DistBackendError) and "ncclRemoteError" in str(error)


def timed_out(operation: Operation, timeout: dt.timedelta, seconds: float) -> BaseException:
    """The error of a wait that took `seconds`: the watchdog's words, or Gloo's (`Work::wait`)."""
    if operation.channel.backend != "nccl":
        return RuntimeError("Operation timed out!")
    limit = int(timeout.total_seconds() * 1000)
    return _backend_error(nccl_watchdog.timeout_message(operation, limit, round(seconds * 1000)))


def aborted(operation: Operation) -> BaseException:
    """The error of an operation that was under way when its communicator was aborted."""
    return _backend_error(nccl_watchdog.aborted_message(operation.rank))


def _backend_error(text: str) -> RuntimeError:
    error: RuntimeError = dist.DistBackendError(text)
    return error


def _nccl_error(what: str, text: str) -> str:
    """NCCLUtils.hpp, `C10D_NCCL_CHECK`."""
    version = ".".join(map(str, build().nccl))
    return (
        "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, "
        f"{what} (run with NCCL_DEBUG=WARN for details), NCCL version {version}\n{text}"
    )
