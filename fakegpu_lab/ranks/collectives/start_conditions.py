"""What keeps an operation between ranks from starting: sends that nobody receives yet, and the streams behind them.

NCCL's send is a kernel that is over when it is received. The host goes on at once; what waits is the current stream
(from `Work.wait`, which is in `dist.send`) and what comes later on the stream of NCCL's that carries the send: one for
each pair of ranks, or one for the whole group where the calls were batched or the group is bound to a device
(ProcessGroupNCCL::pointToPoint). A host that waits for such a stream hangs, and with it the program.

Simplified: a small message waits like a large one (NCCL promises nothing else), making a communicator for two ranks
does not wait for the other one, events do not carry the wait from stream to stream, and what a stream computes between
the send and its receipt is placed before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.hardware.time.clock import Host, here
from fakegpu_lab.ranks.collectives.operation import P2P
from fakegpu_lab.ranks.scheduling.scheduler import Waiting, current_rank

if TYPE_CHECKING:
    from fakegpu_lab.hardware.time.clock import Stream
    from fakegpu_lab.ranks.collectives.operation import Operation


def _blocked() -> dict[Stream, list[Operation]]:
    """The calling rank's streams that wait for sends."""
    rank = current_rank()
    return rank.local.setdefault("blocked", {}) if rank is not None else {}


def enqueue(operation: Operation, tails: dict[Any, list[Operation]]) -> None:
    """Note what must be over before an operation that is called now can start.

    Parameters
    ----------
    tails
        The channel's: by rank and stream, the calls that were queued there last.
    """
    if operation.device is None or operation.channel.backend != "nccl":
        return
    stream = here.host.streams[operation.device]
    operation.before = [send for send in _blocked().get(stream, ()) if not send.done]
    if not (operation.asynchronous or operation.kind in P2P):
        return  # runs on the current stream
    pair = (min(operation.rank, operation.peer), max(operation.rank, operation.peer))
    alone = operation.kind in P2P and operation.batch is None and not operation.bound
    key = (operation.rank, pair if alone else ())
    tail = tails.get(key, [])
    if tail and operation.batch is not None and tail[0].batch is operation.batch:
        operation.before += tail[0].before
        tail.append(operation)
        return
    operation.before += [earlier for earlier in tail if not earlier.done]
    tails[key] = [operation]


def behind(operation: Operation) -> Operation | None:
    """What keeps an operation from starting, in the end; None if nothing does."""
    for earlier in operation.before:
        if not earlier.done:
            return behind(earlier) or earlier
    return None


def block(operation: Operation, stream: Stream) -> None:
    """Let a stream wait for a send that is not over."""
    _blocked().setdefault(stream, []).append(operation)
    here.host.__class__ = _Blocked


class _Blocked(Host):
    """A host thread of which a stream waits for a send: if it waits for its device, it waits for that, too."""

    __slots__ = ()

    def wait(self, until: int) -> None:
        """Let the thread wait until a time, and until what it sent was received."""
        self.__class__ = Host  # type: ignore[assignment]
        rank = current_rank()
        sends = [send for found in _blocked().values() for send in found]
        _blocked().clear()
        for send in sends:
            if rank is not None:
                rank.wait(Waiting(lambda send=send: send.done, send))  # type: ignore[misc]
        Host.wait(self, max([until, *(send.end_ns for send in sends)]))
