"""Channels: where the calls of a group's ranks meet.

A channel is one backend of one process group, common to all its ranks. Collectives meet by their number: the third of
one rank with the third of every other. Sends and receives meet by sender and receiver, in order.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base import current
from fakegpu_lab.hardware.network.fabric import Cost
from fakegpu_lab.ranks.collectives import cost, mismatches, start_conditions, values
from fakegpu_lab.ranks.collectives.operation import P2P
from fakegpu_lab.ranks.collectives.price import by_gloo, price
from fakegpu_lab.ranks.scheduling.scheduler import Waiting, current_rank

if TYPE_CHECKING:
    from fakegpu_lab.ranks.collectives.operation import Operation


class Channel:
    """One backend of a process group.

    Parameters
    ----------
    name
        The group's name: ``"0"`` for the default group.
    backend
        ``"nccl"`` or ``"gloo"``.
    ranks
        The members' global ranks, by their rank in the group.
    description
        What torch says of the group, such as ``default_pg``.

    Attributes
    ----------
    numbers
        How many collectives each member has called.
    history
        By member, its latest collectives.
    open
        The collectives that not all members have called yet, by number, each by member.
    """

    def __init__(self, name: str, backend: str, ranks: tuple[int, ...], description: str = "") -> None:
        self.name = name
        self.backend = backend
        self.ranks = ranks
        self.description = description
        self.numbers = [0] * len(ranks)
        self.history: list[deque[Operation]] = [deque(maxlen=64) for _ in ranks]
        self.open: dict[int, dict[int, Operation]] = {}
        self.sends: defaultdict[tuple[int, int, int], deque[Operation]] = defaultdict(deque)
        self.receives: defaultdict[tuple[int, int, int], deque[Operation]] = defaultdict(deque)
        self.anywhere: defaultdict[tuple[int, int], deque[Operation]] = defaultdict(deque)
        self.streams: dict[Any, Any] = {}
        self.tails: dict[Any, list[Operation]] = {}

    @property
    def known_as(self) -> str:
        """What people call the group."""
        if self.description == "default_pg":
            return "the default group"
        inside = ", ".join(map(str, self.ranks))
        return f"group {self.name!r} of ranks {inside}"

    @property
    def size(self) -> int:
        """How many members there are."""
        return len(self.ranks)

    def issue(self, operation: Operation) -> None:
        """A member calls an operation; the last one to call completes it for all."""
        if operation.kind in P2P:
            self._point_to_point(operation)
            return
        member = operation.rank
        self.numbers[member] += 1
        operation.number = self.numbers[member]
        self.history[member].append(operation)
        slot = self.open.setdefault(operation.number, {})
        mismatches.check(operation, slot)
        cost.launch(operation)
        start_conditions.enqueue(operation, self.tails)
        slot[member] = operation
        if len(slot) == self.size:
            del self.open[operation.number]
            _perform([slot[rank] for rank in range(self.size)])

    def finish(self, operation: Operation) -> None:
        """Wait until an operation is over; for a send of NCCL's, only while others have something to do."""
        me = current_rank()
        if me is None:
            return
        over = Waiting(lambda: operation.done, operation)
        if operation.kind == "SEND" and self.backend == "nccl":
            me.wait_idly(over)
        else:
            me.wait(over)

    def price(self, parts: list[Operation]) -> Cost:
        """What an operation costs that these ranks called together."""
        assert current.machine is not None
        slots = [part.device.slot for part in parts if part.device is not None]
        nbytes = max(part.nbytes for part in parts)
        if self.backend != "gloo":
            return price(parts[0].kind, nbytes, current.machine.fabric, slots)
        links = current.machine.links  # to host memory, and back
        ns = by_gloo(parts[0].kind, nbytes, len(slots))
        ns += sum(max(links.host_ns(at, nbytes, to_device=back, pinned=True) for at in slots) for back in (False, True))
        return Cost(ns, "gloo", "", nbytes / ns * 1e9, 0.0)

    def _point_to_point(self, operation: Operation) -> None:
        tag = 0 if self.backend == "nccl" else operation.tag
        self.history[operation.rank].append(operation)
        cost.launch(operation)
        start_conditions.enqueue(operation, self.tails)
        if operation.kind == "SEND":
            operation.payload = values.snapshot(operation.inputs)
            key = (operation.rank, operation.peer, tag)
            receiver = self._oldest(self.receives[key], self.anywhere[operation.peer, tag])
            if receiver is not None:
                self._deliver(operation, receiver)
            else:
                self.sends[key].append(operation)
            return
        if operation.kind == "RECV":
            key = (operation.peer, operation.rank, tag)
            if self.sends[key]:
                self._deliver(self.sends[key].popleft(), operation)
            else:
                self.receives[key].append(operation)
            return
        for (_, receiver_rank, sent_tag), queue in self.sends.items():
            if receiver_rank == operation.rank and sent_tag == tag and queue:
                self._deliver(queue.popleft(), operation)
                return
        self.anywhere[operation.rank, tag].append(operation)

    @staticmethod
    def _oldest(queue: deque[Operation], anywhere: deque[Operation]) -> Operation | None:
        if queue:
            return queue.popleft()
        return anywhere.popleft() if anywhere else None

    def _deliver(self, send: Operation, receive: Operation) -> None:
        receive.peer = send.rank
        mismatches.check(receive, {send.rank: send})
        _perform([send, receive])


def _perform(parts: list[Operation]) -> None:
    """All that take part have called: do it, and what waited for it; later, if one of them cannot start yet."""
    me = current_rank()
    held: list[list[Operation]] = me.scheduler.shared.setdefault("held", []) if me is not None else []
    held.append(parts)
    able: list[Operation] | None = parts
    while able is not None:
        if any(start_conditions.behind(part) for part in able):
            return
        held.remove(able)
        if able[0].kind == "SEND":
            values.deliver(*able)
        else:
            values.perform(able)
        cost.charge(able)
        for part in able:
            part.finish()
        able = next((one for one in held if not any(start_conditions.behind(part) for part in one)), None)
