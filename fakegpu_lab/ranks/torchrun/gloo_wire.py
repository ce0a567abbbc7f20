"""The connections between real processes: gloo, over TCP, carries the values.

Every operation begins with an announcement from each rank (`Wire.exchange`): what it is about to do, with which shapes,
on which card, and from when in simulated time. So no value is sent before all agree, and all know when the slowest can
begin. Then the values move as bytes, and each rank computes its results with the same code as ranks of one process
(`collectives.values`), in the order of ranks: the digits are the same in both.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.ranks.collectives.operation import by_kind
from fakegpu_lab.ranks.collectives.values import inner, portions, put, reduced
from fakegpu_lab.ranks.dist import cpp, dist

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.ranks.collectives.operation import Operation

    Tensor = torch.Tensor

MESSAGE_BYTES = 1024
"""The length of a message; longer ones (collectives of many tensors) take a second step."""

_SMALL = 1 << 16
"""Bytes up to which a reduction sends all values to all ranks, in one step instead of two."""


_STEP = dt.timedelta(seconds=0.5)


class Wire:
    """A group's connections.

    Parameters
    ----------
    store
        The group's own store, through which the processes find each other.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: dt.timedelta) -> None:
        self.rank, self.size = rank, size
        self.given_up = False
        self.gloo: Any = dist.ProcessGroupGloo(dist.PrefixStore("wire/", store), rank, size, timeout)

    def exchange(self, message: bytes) -> list[bytes]:
        """Send a message to all ranks, and return the messages of all, by rank."""
        first = self._all_gather(_padded(b"%7d " % len(message) + message[: MESSAGE_BYTES - 8], MESSAGE_BYTES))
        longest = max(int(part[:8]) for part in first)
        if longest <= MESSAGE_BYTES - 8:
            return [part[8:] for part in first]
        return self._all_gather(_padded(message, longest))

    def _all_gather(self, mine: Tensor) -> list[bytes]:
        received = torch.empty(mine.numel() * self.size, dtype=torch.uint8)
        self._wait(self.gloo._allgather_base(received, mine, cpp.AllgatherOptions()))
        return [_stripped(part) for part in received.view(self.size, -1)]

    def all_to_all(self, parts: Sequence[Tensor], sizes: Sequence[int]) -> list[Tensor]:
        """Send each rank its part, and receive from each as many bytes as `sizes` says."""
        sent = [part.numel() for part in parts]
        received = torch.empty(sum(sizes), dtype=torch.uint8)
        options = cpp.AllToAllOptions()
        self._wait(self.gloo.alltoall_base(received, torch.cat(list(parts)), list(sizes), sent, options))
        return list(torch.split(received, list(sizes)))

    def broadcast(self, values: Tensor, root: int) -> None:
        """Send the root's bytes to all ranks."""
        opts = cpp.BroadcastOptions()
        opts.rootRank = root
        self._wait(self.gloo.broadcast([values], opts))

    def _wait(self, work: Any) -> None:
        """Wait for a collective, unless the wire is given up: gloo has no way to end one."""
        while not self._done(work):
            pass

    def _done(self, work: Any) -> bool:
        try:
            work.wait(_STEP)
        except RuntimeError as error:
            if "Operation timed out!" not in str(error) or self.given_up:
                raise
            return False
        return True

    # Between two ranks every transfer has three tags, by its number: the sender's message, the answer, the values.

    def send(self, message: bytes, values_for: Callable[[bytes], Tensor | None], peer: int, number: int) -> None:
        """Send a message and, after the answer, what ``values_for(answer)`` returns: bytes, or None for nothing."""
        sending = self.gloo.send([_padded(message)], peer, 4 * number)
        answer = torch.empty(MESSAGE_BYTES, dtype=torch.uint8)
        self.gloo.recv([answer], peer, 4 * number + 1).wait()
        sending.wait()
        values = values_for(_stripped(answer))
        if values is not None:
            self.gloo.send([values], peer, 4 * number + 2).wait()

    def receive(self, answer: bytes, target_for: Callable[[bytes], Tensor | None], peer: int, number: int) -> None:
        """Receive a message, answer it, and receive bytes into what ``target_for(message)`` returns, unless None."""
        message = torch.empty(MESSAGE_BYTES, dtype=torch.uint8)
        self.gloo.recv([message], peer, 4 * number).wait()
        self.gloo.send([_padded(answer)], peer, 4 * number + 1).wait()
        target = target_for(_stripped(message))
        if target is not None:
            self.gloo.recv([target], peer, 4 * number + 2).wait()


def _padded(message: bytes, length: int = MESSAGE_BYTES) -> Tensor:
    return torch.frombuffer(bytearray(message.ljust(length)), dtype=torch.uint8)


def _stripped(message: Tensor) -> bytes:
    return bytes(message.tolist()).rstrip()


def as_bytes(values: Tensor) -> Tensor:
    """A tensor's bytes: a view if it is contiguous, else a copy."""
    return values.contiguous().reshape(-1).view(torch.uint8)


def as_elements(part: Tensor, values: Tensor) -> Tensor:
    """Bytes as a flat tensor of the dtype of `values`."""
    return part.clone().view(values.dtype) if part.storage_offset() % values.element_size() else part.view(values.dtype)


def carry(operation: Operation, wire: Wire) -> None:
    """Do this rank's part in an operation, once all ranks' announcements agree."""
    _CARRY[operation.kind](operation, wire)


def _all_reduce(operation: Operation, wire: Wire) -> None:
    sources = [inner(tensor) for tensor in operation.inputs]
    if operation.channel.backend == "gloo" and len(sources) > 1:
        sources = [tensor.clone() for tensor in sources]  # Gloo flattens the list first
    for values, target in zip(sources, operation.outputs, strict=True):
        put(inner(target), _reduced_for_all(values.reshape(-1), operation.reduce_op, wire))


def _reduced_for_all(values: Tensor, op: Any, wire: Wire) -> Tensor:
    if values.nbytes <= _SMALL:
        parts = wire.all_to_all([as_bytes(values)] * wire.size, [values.nbytes] * wire.size)
        return reduced([as_elements(part, values) for part in parts], op)
    shares = values.tensor_split(wire.size)
    mine = _reduced_for_me(shares, op, wire)
    parts = wire.all_to_all([as_bytes(mine)] * wire.size, [share.nbytes for share in shares])
    return torch.cat([as_elements(part, values) for part in parts])


def _reduced_for_me(shares: Sequence[Tensor], op: Any, wire: Wire) -> Tensor:
    """The reduction of this rank's share of what all have."""
    mine = shares[wire.rank]
    parts = wire.all_to_all([as_bytes(share) for share in shares], [mine.nbytes] * wire.size)
    return reduced([as_elements(part, mine).reshape(mine.shape) for part in parts], op)


def _reduce(operation: Operation, wire: Wire) -> None:
    values = inner(operation.inputs[0])
    nothing = torch.empty(0, dtype=torch.uint8)
    at_root = wire.rank == operation.root
    sent = [as_bytes(values) if rank == operation.root else nothing for rank in range(wire.size)]
    parts = wire.all_to_all(sent, [values.nbytes if at_root else 0] * wire.size)
    if at_root:
        total = reduced([as_elements(part, values).reshape(values.shape) for part in parts], operation.reduce_op)
        put(inner(operation.outputs[0]), total)


def _broadcast(operation: Operation, wire: Wire) -> None:
    for given, target in zip(operation.inputs, operation.outputs, strict=True):
        values = as_bytes(inner(given)).clone()
        wire.broadcast(values, operation.root)
        if wire.rank != operation.root:
            _fill(target, values)


def _fill(target: Tensor, part: Tensor) -> None:
    values = inner(target)
    put(values, as_elements(part, values))


def _gather_to(given: Sequence[Tensor], targets: Sequence[Tensor], wire: Wire) -> None:
    """Send rank i the tensor ``given[i]``, and fill ``targets[i]`` with what it sends; either list may be empty."""
    nothing = torch.empty(0, dtype=torch.uint8)
    sent = [as_bytes(inner(tensor)) for tensor in given] or [nothing] * wire.size
    sizes = [inner(tensor).nbytes for tensor in targets] or [0] * wire.size
    parts = wire.all_to_all(sent, sizes)
    for target, part in zip(targets, parts, strict=False):
        _fill(target, part)


def _all_gather(operation: Operation, wire: Wire) -> None:
    _gather_to(operation.inputs * wire.size, operation.outputs, wire)


def _all_gather_into_tensor(operation: Operation, wire: Wire) -> None:
    for given, target in zip(operation.inputs, operation.outputs, strict=True):
        values = as_bytes(inner(given))
        _fill(target, torch.cat(wire.all_to_all([values] * wire.size, [values.numel()] * wire.size)))


def _gather(operation: Operation, wire: Wire) -> None:
    nothing = torch.empty(0, dtype=torch.uint8)
    values = as_bytes(inner(operation.inputs[0]))
    sizes = [values.numel() if wire.rank == operation.root else 0] * wire.size
    parts = wire.all_to_all([values if rank == operation.root else nothing for rank in range(wire.size)], sizes)
    for target, part in zip(operation.outputs, parts, strict=False):
        _fill(target, part)


def _scatter(operation: Operation, wire: Wire) -> None:
    nothing = torch.empty(0, dtype=torch.uint8)
    target = inner(operation.outputs[0])
    sent = [as_bytes(inner(tensor)) for tensor in operation.inputs] or [nothing] * wire.size
    sizes = [target.nbytes if rank == operation.root else 0 for rank in range(wire.size)]
    _fill(operation.outputs[0], wire.all_to_all(sent, sizes)[operation.root])


def _reduce_scatter(operation: Operation, wire: Wire) -> None:
    shares = [inner(tensor) for tensor in operation.inputs]
    total = _reduced_for_me(shares, operation.reduce_op, wire)
    put(inner(operation.outputs[0]), total)


def _reduce_scatter_tensor(operation: Operation, wire: Wire) -> None:
    for given, target in zip(operation.inputs, operation.outputs, strict=True):
        shares = inner(given).reshape(-1).tensor_split(wire.size)
        put(inner(target), _reduced_for_me(shares, operation.reduce_op, wire))


def _all_to_all(operation: Operation, wire: Wire) -> None:
    _gather_to(operation.inputs, operation.outputs, wire)


def _all_to_all_single(operation: Operation, wire: Wire) -> None:
    taking, giving = operation.splits
    given = portions(inner(operation.inputs[0]), giving, wire.size)
    targets = portions(inner(operation.outputs[0]), taking, wire.size)
    parts = wire.all_to_all([as_bytes(share) for share in given], [target.nbytes for target in targets])
    for target, part in zip(targets, parts, strict=True):
        put(target, as_elements(part, target))


_CARRY: dict[str, Callable[[Operation, Wire], None]] = by_kind(
    all_reduce=_all_reduce,
    broadcast=_broadcast,
    reduce=_reduce,
    all_gather=_all_gather,
    all_gather_into_tensor=_all_gather_into_tensor,
    gather=_gather,
    scatter=_scatter,
    reduce_scatter=_reduce_scatter,
    reduce_scatter_tensor=_reduce_scatter_tensor,
    all_to_all=_all_to_all,
    all_to_all_single=_all_to_all_single,
    barrier=lambda operation, wire: None,
)
