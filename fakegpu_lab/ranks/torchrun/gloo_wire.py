"""What carries values between real processes: gloo, over TCP.

Every operation begins with a word from each rank (`Wire.tell`): what it is about to do, with which shapes, on which
card, and from when in simulated time. So no value is sent before all agree, and all know when the slowest can begin.
Then the values move as bytes, and each rank puts its results together with the same code as ranks of one process do
(`collectives`), in the order of ranks: the digits are the same in both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.ranks.collectives import values as collectives
from fakegpu_lab.ranks.dist import cpp, dist

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Sequence

    from fakegpu_lab.ranks.collectives.operation import Operation

    Tensor = torch.Tensor

WORD_BYTES = 1024
"""The length of most words; collectives of many tensors have longer ones, and send them in two steps."""

_SMALL = 1 << 16
"""Bytes up to which a reduction sends all values to all ranks, in one step instead of two."""


class Wire:
    """A group's connections.

    Parameters
    ----------
    store
        Where the processes find each other; the group's alone.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: dt.timedelta) -> None:
        self.rank, self.size = rank, size
        self.gloo: Any = dist.ProcessGroupGloo(dist.PrefixStore("wire/", store), rank, size, timeout)

    def tell(self, word: bytes) -> list[bytes]:
        """Give all ranks a word; those of all, by rank."""
        first = self._all_gather(_padded(b"%7d " % len(word) + word[: WORD_BYTES - 8], WORD_BYTES))
        longest = max(int(part[:8]) for part in first)
        if longest <= WORD_BYTES - 8:
            return [part[8:] for part in first]
        return self._all_gather(_padded(word, longest))

    def _all_gather(self, given: Tensor) -> list[bytes]:
        heard = torch.empty(given.numel() * self.size, dtype=torch.uint8)
        self.gloo._allgather_base(heard, given, cpp.AllgatherOptions()).wait()
        return [_stripped(part) for part in heard.view(self.size, -1)]

    def swap(self, given: Sequence[Tensor], sizes: Sequence[int]) -> list[Tensor]:
        """Give each rank some bytes, and take from each as many as `sizes` says."""
        sent = [part.numel() for part in given]
        taken = torch.empty(sum(sizes), dtype=torch.uint8)
        self.gloo.alltoall_base(taken, torch.cat(list(given)), list(sizes), sent, cpp.AllToAllOptions()).wait()
        return list(torch.split(taken, list(sizes)))

    def broadcast(self, values: Tensor, root: int) -> None:
        """Give all ranks the root's bytes."""
        opts = cpp.BroadcastOptions()
        opts.rootRank = root
        self.gloo.broadcast([values], opts).wait()

    # Between two ranks every transfer has three tags of its own, by its number: a word there, one back, the bytes.

    def send(self, word: bytes, values: Callable[[bytes], Tensor | None], peer: int, number: int) -> bytes:
        """Send a word and, unless `values` raises at the answer or is None, bytes; the answer."""
        word_there = self.gloo.send([_padded(word)], peer, 4 * number)
        back = torch.empty(WORD_BYTES, dtype=torch.uint8)
        self.gloo.recv([back], peer, 4 * number + 1).wait()
        word_there.wait()
        answer = _stripped(back)
        sent = values(answer)
        if sent is not None:
            self.gloo.send([sent], peer, 4 * number + 2).wait()
        return answer

    def receive(self, word: bytes, values: Callable[[bytes], Tensor | None], peer: int, number: int) -> bytes:
        """Receive a word, answer it, and receive bytes into what `values` makes of it."""
        there = torch.empty(WORD_BYTES, dtype=torch.uint8)
        self.gloo.recv([there], peer, 4 * number).wait()
        self.gloo.send([_padded(word)], peer, 4 * number + 1).wait()
        told = _stripped(there)
        target = values(told)
        if target is not None:
            self.gloo.recv([target], peer, 4 * number + 2).wait()
        return told


def _padded(word: bytes, length: int = WORD_BYTES) -> Tensor:
    return torch.frombuffer(bytearray(word.ljust(length)), dtype=torch.uint8)


def _stripped(word: Tensor) -> bytes:
    return bytes(word.tolist()).rstrip()


def flat(values: Tensor) -> Tensor:
    """The bytes of a tensor; they are the tensor's own if it is contiguous."""
    return values.contiguous().reshape(-1).view(torch.uint8)


def like(part: Tensor, values: Tensor) -> Tensor:
    """Bytes as elements of the dtype of `values`."""
    return part.clone().view(values.dtype) if part.storage_offset() % values.element_size() else part.view(values.dtype)


def carry(operation: Operation, wire: Wire) -> None:
    """Do this rank's part in an operation; all ranks are known to do theirs."""
    _CARRY[operation.kind](operation, wire)


def _all_reduce(operation: Operation, wire: Wire) -> None:
    for given, target in zip(operation.inputs, operation.outputs, strict=True):
        values = collectives.inner(given)
        total = _reduced_for_all(values.reshape(-1), operation.reduce_op, wire)
        collectives.put(collectives.inner(target), total)


def _reduced_for_all(values: Tensor, op: Any, wire: Wire) -> Tensor:
    if values.nbytes <= _SMALL:
        parts = wire.swap([flat(values)] * wire.size, [values.nbytes] * wire.size)
        return collectives.reduced([like(part, values) for part in parts], op)
    shares = values.tensor_split(wire.size)
    mine = _reduced_for_me(shares, op, wire)
    parts = wire.swap([flat(mine)] * wire.size, [share.nbytes for share in shares])
    return torch.cat([like(part, values) for part in parts])


def _reduced_for_me(shares: Sequence[Tensor], op: Any, wire: Wire) -> Tensor:
    """The reduction of this rank's share of what all have."""
    mine = shares[wire.rank]
    parts = wire.swap([flat(share) for share in shares], [mine.nbytes] * wire.size)
    return collectives.reduced([like(part, mine).reshape(mine.shape) for part in parts], op)


def _reduce(operation: Operation, wire: Wire) -> None:
    values = collectives.inner(operation.inputs[0])
    nothing = torch.empty(0, dtype=torch.uint8)
    at_root = wire.rank == operation.root
    sent = [flat(values) if rank == operation.root else nothing for rank in range(wire.size)]
    parts = wire.swap(sent, [values.nbytes if at_root else 0] * wire.size)
    if at_root:
        total = collectives.reduced([like(part, values).reshape(values.shape) for part in parts], operation.reduce_op)
        collectives.put(collectives.inner(operation.outputs[0]), total)


def _broadcast(operation: Operation, wire: Wire) -> None:
    for given, target in zip(operation.inputs, operation.outputs, strict=True):
        values = flat(collectives.inner(given)).clone()
        wire.broadcast(values, operation.root)
        if wire.rank != operation.root:
            _fill(target, values)


def _fill(target: Tensor, part: Tensor) -> None:
    values = collectives.inner(target)
    collectives.put(values, like(part, values))


def _gather_to(given: Sequence[Tensor], targets: Sequence[Tensor], wire: Wire) -> None:
    """Give rank i the tensor ``given[i]`` (nothing, if there is none), and fill ``targets[i]`` from it."""
    nothing = torch.empty(0, dtype=torch.uint8)
    sent = [flat(collectives.inner(tensor)) for tensor in given] or [nothing] * wire.size
    sizes = [collectives.inner(tensor).nbytes for tensor in targets] or [0] * wire.size
    parts = wire.swap(sent, sizes)
    for target, part in zip(targets, parts, strict=False):
        _fill(target, part)


def _all_gather(operation: Operation, wire: Wire) -> None:
    _gather_to(operation.inputs * wire.size, operation.outputs, wire)


def _all_gather_into(operation: Operation, wire: Wire) -> None:
    for given, target in zip(operation.inputs, operation.outputs, strict=True):
        values = flat(collectives.inner(given))
        _fill(target, torch.cat(wire.swap([values] * wire.size, [values.numel()] * wire.size)))


def _gather(operation: Operation, wire: Wire) -> None:
    nothing = torch.empty(0, dtype=torch.uint8)
    values = flat(collectives.inner(operation.inputs[0]))
    sizes = [values.numel() if wire.rank == operation.root else 0] * wire.size
    parts = wire.swap([values if rank == operation.root else nothing for rank in range(wire.size)], sizes)
    for target, part in zip(operation.outputs, parts, strict=False):
        _fill(target, part)


def _scatter(operation: Operation, wire: Wire) -> None:
    nothing = torch.empty(0, dtype=torch.uint8)
    target = collectives.inner(operation.outputs[0])
    sent = [flat(collectives.inner(tensor)) for tensor in operation.inputs] or [nothing] * wire.size
    sizes = [target.nbytes if rank == operation.root else 0 for rank in range(wire.size)]
    _fill(operation.outputs[0], wire.swap(sent, sizes)[operation.root])


def _reduce_scatter(operation: Operation, wire: Wire) -> None:
    shares = [collectives.inner(tensor) for tensor in operation.inputs]
    total = _reduced_for_me(shares, operation.reduce_op, wire)
    collectives.put(collectives.inner(operation.outputs[0]), total)


def _reduce_scatter_base(operation: Operation, wire: Wire) -> None:
    for given, target in zip(operation.inputs, operation.outputs, strict=True):
        shares = collectives.inner(given).reshape(-1).tensor_split(wire.size)
        collectives.put(collectives.inner(target), _reduced_for_me(shares, operation.reduce_op, wire))


def _all_to_all(operation: Operation, wire: Wire) -> None:
    _gather_to(operation.inputs, operation.outputs, wire)


def _all_to_all_single(operation: Operation, wire: Wire) -> None:
    taking, giving = operation.splits
    given = collectives.portions(collectives.inner(operation.inputs[0]), giving, wire.size)
    targets = collectives.portions(collectives.inner(operation.outputs[0]), taking, wire.size)
    parts = wire.swap([flat(share) for share in given], [target.nbytes for target in targets])
    for target, part in zip(targets, parts, strict=True):
        collectives.put(target, like(part, target))


def _nothing(operation: Operation, wire: Wire) -> None:
    """A barrier moves nothing."""


_CARRY: dict[str, Callable[[Operation, Wire], None]] = {
    "ALLREDUCE": _all_reduce,
    "ALLREDUCE_COALESCED": _all_reduce,
    "BROADCAST": _broadcast,
    "REDUCE": _reduce,
    "ALLGATHER": _all_gather,
    "_ALLGATHER_BASE": _all_gather_into,
    "ALLGATHER_COALESCED": _all_gather_into,
    "GATHER": _gather,
    "SCATTER": _scatter,
    "REDUCE_SCATTER": _reduce_scatter,
    "_REDUCE_SCATTER_BASE": _reduce_scatter_base,
    "REDUCE_SCATTER_COALESCED": _reduce_scatter_base,
    "ALLTOALL": _all_to_all,
    "ALLTOALL_BASE": _all_to_all_single,
    "BARRIER": _nothing,
    "MONITORED_BARRIER": _nothing,
}
