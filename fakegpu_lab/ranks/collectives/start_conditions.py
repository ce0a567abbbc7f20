"""What keeps an operation between ranks from starting, and a rank from continuing.

An operation waits for sends that no rank has received, and for streams behind them. A rank that waits for a device
(``torch.cuda.synchronize``) waits for all that it has queued there, and so for the ranks that have yet to join.

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
from weakref import WeakKeyDictionary

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
    here.host.__class__ = _WaitingHost


_under_way: WeakKeyDictionary[Host, list[Operation]] = WeakKeyDictionary()
"""By host thread, the operations that run beside its current stream and that other ranks may have yet to join."""


def run_beside(operation: Operation) -> None:
    """Note an operation that the calling rank has queued and does not wait for."""
    host = here.host
    _under_way[host] = [one for one in _under_way.get(host, ()) if not one.done] + [operation]
    host.__class__ = _WaitingHost


def _let_finish(operation: Operation) -> None:
    """Let the calling rank wait until an operation is done: also a send of NCCL's, which `Work.wait` lets pass."""
    rank = current_rank()
    if rank is not None:
        rank.wait(Waiting(lambda: operation.done, operation))
    else:
        operation.channel.finish(operation)


class _WaitingHost(Host):
    """A host thread of a rank that has something to wait for.

    A wait for a device also waits for the sends that its streams wait for, and a wait for all of a device for all
    operations that run there.
    """

    __slots__ = ()

    def place_all(self, device: Any) -> None:
        """Let other ranks run until they have joined all that this one has queued on a device."""
        for operation in _under_way.pop(self, ()):
            if operation.device is device:
                _let_finish(operation)
            else:
                _under_way.setdefault(self, []).append(operation)

    def wait(self, until: int) -> None:
        """Let the thread wait until a time, and until its sends are received."""
        sends = [send for found in _blocked_streams().values() for send in found]
        _blocked_streams().clear()
        for send in sends:
            _let_finish(send)
        Host.wait(self, max([until, *(send.end_ns for send in sends)]))
