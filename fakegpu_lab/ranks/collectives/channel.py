"""The channel of a group of ranks in one process, where their calls meet.

A channel is one backend of one process group, common to all its ranks. Collectives meet by their number: the third of
one rank with the third of every other. Sends and receives meet by sender and receiver, in order.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.recorder import results
from fakegpu_lab.hardware.network.fabric import Cost
from fakegpu_lab.ranks.collectives import cost, mismatches, start_conditions, values
from fakegpu_lab.ranks.collectives.operation import P2P, Communicator
from fakegpu_lab.ranks.scheduling.scheduler import Waiting, current_rank

if TYPE_CHECKING:
    from fakegpu_lab.ranks.collectives.operation import Operation


class Channel(Communicator):
    """A communicator whose members are ranks of this process.

    Attributes
    ----------
    open
        The collectives that some members have not called yet, by number; each call by member.
    sends, receives
        Those without a partner yet, by sender, receiver and tag.
    receives_any
        Receives from any rank that have no sender yet, by receiver and tag.
    tails
        By rank and stream, the calls that were queued there last (`start_conditions`).
    """

    def __init__(self, name: str, backend: str, ranks: tuple[int, ...], description: str = "") -> None:
        super().__init__(name, backend, ranks, description)
        self.open: dict[int, dict[int, Operation]] = {}
        self.sends: defaultdict[tuple[int, int, int], deque[Operation]] = defaultdict(deque)
        self.receives: defaultdict[tuple[int, int, int], deque[Operation]] = defaultdict(deque)
        self.receives_any: defaultdict[tuple[int, int], deque[Operation]] = defaultdict(deque)
        self.tails: dict[Any, list[Operation]] = {}

    def forget(self) -> None:
        """Drop all operations."""
        for table in (self.open, self.sends, self.receives, self.receives_any, self.tails):
            table.clear()
        for calls in self.history:
            calls.clear()

    def issue(self, operation: Operation) -> None:
        """A member calls an operation; the last member to call completes it for all."""
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
            _perform(self, [slot[rank] for rank in range(self.size)])

    def finish(self, operation: Operation, seconds: float | None = None) -> None:
        """Wait until an operation is done; for a send of NCCL's, only while other ranks can run.

        The seconds have no effect: a wait that cannot end is reported at once, and none depends on the real time.
        """
        me = current_rank()
        if me is None:
            return
        done = Waiting(lambda: operation.done, operation)
        if operation.kind == "SEND" and self.backend == "nccl":
            me.wait_idly(done)
        else:
            me.wait(done)

    def expected(self, operation: Operation) -> Cost | None:
        """See `Communicator`."""
        machine = current.machine
        if machine is None or self.backend == "gloo" or max(self.ranks) >= len(machine.spec.gpus):
            return None
        return cost.nccl_cost(operation.kind, operation.nbytes, machine.fabric, self.ranks)

    def cost_of(self, parts: list[Operation]) -> Cost:
        """The cost of an operation on devices, given its ranks' calls."""
        assert current.machine is not None
        slots = [part.device.slot for part in parts if part.device is not None]
        nbytes = max(part.nbytes for part in parts)
        if self.backend != "gloo":
            return cost.nccl_cost(parts[0].kind, nbytes, current.machine.fabric, slots)
        links = current.machine.links  # to host memory, and back
        ns = cost.gloo_ns(parts[0].kind, nbytes, len(slots))
        ns += sum(max(links.host_ns(at, nbytes, to_device=back, pinned=True) for at in slots) for back in (False, True))
        return Cost(ns, "gloo", "", nbytes / ns * 1e9, 0.0)

    def _point_to_point(self, operation: Operation) -> None:
        tag = 0 if self.backend == "nccl" else operation.tag
        self.history[operation.rank].append(operation)
        cost.launch(operation)
        start_conditions.enqueue(operation, self.tails)
        if operation.kind == "SEND":
            operation.payload = values.sent(operation.inputs)
            key = (operation.rank, operation.peer, tag)
            receiver = self._oldest(self.receives[key], self.receives_any[operation.peer, tag])
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
        self.receives_any[operation.rank, tag].append(operation)

    @staticmethod
    def _oldest(receives: deque[Operation], receives_any: deque[Operation]) -> Operation | None:
        if receives:
            return receives.popleft()
        return receives_any.popleft() if receives_any else None

    def _deliver(self, send: Operation, receive: Operation) -> None:
        receive.peer = send.rank
        mismatches.check(receive, {send.rank: send})
        _perform(self, [send, receive])


def _perform(channel: Channel, parts: list[Operation]) -> None:
    """Do an operation that all ranks have called, and others that waited for it; later, if it cannot start yet."""
    me = current_rank()
    complete: list[tuple[Channel, list[Operation]]]
    complete = me.scheduler.shared.setdefault("complete", []) if me is not None else []
    complete.append((channel, parts))
    able = None if _blocked(parts) else (channel, parts)
    while able is not None:
        complete.remove(able)
        channel, parts = able
        if parts[0].kind == "SEND":
            values.deliver(*parts)
        else:
            values.perform(parts)
        with results.exchange((node for part in parts for node in part.made_by), cost.written(parts)):
            cost.charge(parts, channel.cost_of(parts) if parts[0].device is not None else None)
        for part in parts:
            part.finish()
        able = next((each for each in complete if not _blocked(each[1])), None)


def _blocked(parts: list[Operation]) -> bool:
    return any(start_conditions.blocker(part) for part in parts)
