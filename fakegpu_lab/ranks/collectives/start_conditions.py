"""What keeps an operation between ranks from starting: sends that no rank has received, and streams behind them.

NCCL's send is a kernel that ends when the data is received. The host continues at once. What waits is the current
stream (from `Work.wait`, which `dist.send` calls) and later work on NCCL's stream that carries the send: one stream for
each pair of ranks, or one for the whole group if the calls were batched or the group is bound to a device
(ProcessGroupNCCL::pointToPoint). A host that waits for such a stream hangs, and the program with it.

Simplified: a small message waits like a large one (NCCL promises nothing else); creating a communicator for two ranks
does not wait for the other rank; events do not carry the wait from stream to stream; what a stream computes between the
send and its receipt is placed before the receipt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.hardware.time.clock import Host, here
from fakegpu_lab.ranks.collectives.operation import P2P
from fakegpu_lab.ranks.scheduling.scheduler import Waiting, current_rank

if TYPE_CHECKING:
    from fakegpu_lab.hardware.time.clock import Stream
    from fakegpu_lab.ranks.collectives.operation import Operation


def _blocked_streams() -> dict[Stream, list[Operation]]:
    """The calling rank's streams that wait for sends, each with the sends."""
    rank = current_rank()
    return rank.local.setdefault("blocked", {}) if rank is not None else {}


def enqueue(operation: Operation, tails: dict[Any, list[Operation]]) -> None:
    """Record what must finish before an operation that is being called can start.

    Parameters
    ----------
    tails
        The channel's latest queued calls, by rank and stream.
    """
    if operation.device is None or operation.channel.backend != "nccl":
        return
    stream = here.host.streams[operation.device]
    operation.before = [send for send in _blocked_streams().get(stream, ()) if not send.done]
    if not (operation.asynchronous or operation.kind in P2P):
        return  # runs on the current stream
    pair = (min(operation.rank, operation.peer), max(operation.rank, operation.peer))
    key = (operation.rank, pair if operation.alone else ())
    tail = tails.get(key, [])
    if tail and operation.batch is not None and tail[0].batch is operation.batch:
        operation.before += tail[0].before
        tail.append(operation)
        return
    operation.before += [earlier for earlier in tail if not earlier.done]
    tails[key] = [operation]


def blocker(operation: Operation) -> Operation | None:
    """The operation at the start of the chain that an operation waits for; None if it can start."""
    for earlier in operation.before:
        if not earlier.done:
            return blocker(earlier) or earlier
    return None


def block_stream(operation: Operation, stream: Stream) -> None:
    """Let a stream wait for a send that is not done."""
    _blocked_streams().setdefault(stream, []).append(operation)
    here.host.__class__ = _BlockedHost


class _BlockedHost(Host):
    """A host thread with a stream that waits for a send: a wait for the device also waits for the send."""

    __slots__ = ()

    def wait(self, until: int) -> None:
        """Let the thread wait until a time, and until its sends are received."""
        self.__class__ = Host  # type: ignore[assignment]
        rank = current_rank()
        sends = [send for found in _blocked_streams().values() for send in found]
        _blocked_streams().clear()
        for send in sends:
            if rank is not None:
                rank.wait(Waiting(lambda send=send: send.done, send))  # type: ignore[misc]
        Host.wait(self, max([until, *(send.end_ns for send in sends)]))
