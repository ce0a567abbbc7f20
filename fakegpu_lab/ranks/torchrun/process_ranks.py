"""Ranks that are real processes, as torchrun starts them: "nccl" between them is carried by gloo.

A process has a simulated machine of its own (`autoload`), with its own memory and its own clock. The clocks meet in
collectives: each rank tells from when it could begin, all begin with the slowest, and all know the cost, so that every
rank's times are the same in every run, however fast the real processes are.

Each group has one thread that carries its collectives in order, and one for each direction to each other rank for
sends and receives: what a program leaves under way goes on while it computes, as with NCCL's streams. The program's own
thread waits where it asks for the result, and there the operation is placed in simulated time.

Two torchrun agents on one computer (``--nnodes 2``) are two nodes; agents on several computers are, too.
"""

from __future__ import annotations

import atexit
import json
import queue
import threading
import weakref
from collections import defaultdict, deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.hardware.network.fabric import Fabric
from fakegpu_lab.processes import run_reports
from fakegpu_lab.ranks.collectives import cost
from fakegpu_lab.ranks.collectives import values as collectives
from fakegpu_lab.ranks.collectives.channel import Channel
from fakegpu_lab.ranks.collectives.operation import P2P
from fakegpu_lab.ranks.collectives.price import price
from fakegpu_lab.ranks.dist import dist
from fakegpu_lab.ranks.torchrun import gloo_wire, messages

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable

    from fakegpu_lab.hardware.catalogue.spec import MachineSpec
    from fakegpu_lab.hardware.network.fabric import Cost
    from fakegpu_lab.ranks.collectives.operation import Operation


def across(spec: MachineSpec, nodes: int) -> Fabric:
    """The links between so many machines, each one like this."""
    return Fabric(replace(spec, gpus=spec.gpus * nodes, nodes=spec.nodes * nodes))


class _Lane:
    """A thread that does one thing after the other."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def put(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)

    def close(self) -> None:
        self._jobs.put(None)

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _work(self) -> None:
        with torch.inference_mode():  # values may be written, wherever they were made
            while (job := self._jobs.get()) is not None:
                job()
                del job


class _Pending:
    """An operation under way."""

    def __init__(self, operation: Operation, ready: int) -> None:
        self.operation = operation
        self.ready = ready
        self.over = threading.Event()
        self.error: BaseException | None = None
        self.told: dict[int, dict[str, Any]] = {}

    def wait(self) -> None:
        while not self.over.wait(1.0):  # in steps: Ctrl-C must get through everywhere
            pass
        if self.error is not None:
            raise self.error.with_traceback(None) from None  # the lane's frames tell nobody anything


class ProcessChannel(Channel):
    """A backend of a group whose members are processes.

    Parameters
    ----------
    store
        The group's own, through which its processes find each other.
    member
        This process's rank in the group.
    timeout
        How long, by the wall clock, it waits for the others.
    """

    def __init__(
        self, name: str, backend: str, ranks: tuple[int, ...], description: str,
        store: Any, member: int, timeout: dt.timedelta,
    ) -> None:  # fmt: skip
        super().__init__(name, backend, ranks, description)
        self.member = member
        self.timeout = timeout
        self._wire = gloo_wire.Wire(dist.PrefixStore(f"{backend}/", store), member, len(ranks), timeout)
        self._lanes: dict[Any, _Lane] = {}
        self._pending: defaultdict[Any, deque[_Pending]] = defaultdict(deque)
        self._ends: defaultdict[Any, int] = defaultdict(int)
        self._transfers: defaultdict[Any, int] = defaultdict(int)
        self._fabrics: dict[int, Fabric] = {}
        _channels.add(self)

    # ------------------------------------------------- the program's thread

    def issue(self, operation: Operation) -> None:
        """Let an operation that this process calls be on its way."""
        key = _key(operation)
        if operation.kind not in P2P:
            self.numbers[self.member] += 1
            operation.number = self.numbers[self.member]
        elif operation.kind == "RECVANYSOURCE":
            raise NotImplementedError("Receiving from any rank is not possible between simulated processes.")
        else:
            operation.number = self._transfers[key]
            self._transfers[key] += 1
        self.history[self.member].append(operation)
        cost.launch(operation)
        ready = max(operation.after_ns, operation.stream.end if operation.stream is not None else 0)
        pending = _Pending(operation, ready)
        if operation.kind == "SEND":
            operation.payload = collectives.snapshot(operation.inputs)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(f"group {self.name} {key}")
        self._pending[key].append(pending)
        lane.put(lambda: self._run(pending))

    def finish(self, operation: Operation) -> None:
        """Wait until an operation is over, and place it in time; raises what it failed with."""
        key = _key(operation)
        waiting = self._pending[key]
        while waiting and not operation.done:
            self._place(key, waiting.popleft())
        run_reports.progress()

    def _place(self, key: Any, pending: _Pending) -> None:
        pending.wait()
        operation = pending.operation
        begin = max(pending.ready, self._ends[key])
        operation.after_ns = begin
        stream = operation.stream
        later = stream.end if stream is not None else 0
        if stream is not None:
            stream.end = begin  # as it was at the launch: what was queued on it since comes after
        others = [(self.ranks[rank], max(word["ready"], self._ends[key])) for rank, word in pending.told.items()]
        nbytes = max([operation.nbytes, *(word["nbytes"] for word in pending.told.values())])
        cost.charge([operation], self._price(pending, nbytes) if operation.device else None, nbytes, others)
        if stream is not None:
            stream.end = max(stream.end, later)
        self._ends[key] = operation.end_ns
        operation.finish()

    def _price(self, pending: _Pending, nbytes: int) -> Cost:
        """What an operation costs between the places that its ranks told."""
        operation, told = pending.operation, pending.told
        assert operation.device is not None
        places = {rank: (str(word["node"]), int(word["slot"])) for rank, word in told.items()}
        places[self.member] = (messages.node(), operation.device.slot)
        nodes: dict[str, int] = {}
        for rank in sorted(places):
            nodes.setdefault(places[rank][0], len(nodes))
        machine = current.machine
        assert machine is not None
        links = machine.fabric
        cards = len(machine.spec.gpus)
        if len(nodes) > 1:
            if len(nodes) not in self._fabrics:
                self._fabrics[len(nodes)] = across(machine.spec, len(nodes))
            links = self._fabrics[len(nodes)]
        slots = [nodes[where] * cards + slot for where, slot in (places[rank] for rank in sorted(places))]
        return price(operation.kind, nbytes, links, slots)

    # ----------------------------------------------------- the lane's thread

    def _run(self, pending: _Pending) -> None:
        try:
            if pending.operation.kind in P2P:
                self._transfer(pending)
            else:
                self._collective(pending)
        except BaseException as error:
            pending.error = messages.explained(error, pending.operation, self.timeout)
        pending.over.set()

    def _collective(self, pending: _Pending) -> None:
        operation = pending.operation
        heard = self._wire.tell(messages.word(operation, pending.ready))
        pending.told = {rank: json.loads(word) for rank, word in enumerate(heard) if rank != self.member}
        messages.compare(operation, pending.told)
        if not collectives.is_meta(operation):
            gloo_wire.carry(operation, self._wire)

    def _transfer(self, pending: _Pending) -> None:
        operation = pending.operation
        sends = operation.kind == "SEND"
        target = collectives.inner(operation.outputs[0]) if operation.outputs else None
        buffer = torch.empty(target.nbytes, dtype=torch.uint8) if target is not None and not target.is_meta else None

        def values(word: bytes) -> torch.Tensor | None:
            pending.told = {operation.peer: json.loads(word)}
            messages.compare(operation, pending.told)
            if sends:
                payload = operation.payload[0]
                return None if payload.is_meta else gloo_wire.flat(payload)
            return buffer

        exchange = self._wire.send if sends else self._wire.receive
        exchange(messages.word(operation, pending.ready), values, operation.peer, operation.number)
        if buffer is not None and target is not None:
            collectives.put(target, gloo_wire.like(buffer, target))

    # ------------------------------------------------------------ its end

    def close(self) -> None:
        """End the threads."""
        for lane in self._lanes.values():
            lane.close()
        self._lanes.clear()

    def leave(self) -> None:
        """The process ends: nothing may be in C++ any more when Python goes."""
        lanes = list(self._lanes.values())
        busy = any(not pending.over.is_set() for waiting in self._pending.values() for pending in waiting)
        self.close()
        if busy and hasattr(self._wire.gloo, "abort"):
            self._wire.gloo.abort()
        for lane in lanes:
            lane.join(1.0)


_channels: weakref.WeakSet[ProcessChannel] = weakref.WeakSet()


@atexit.register
def _leave() -> None:
    for channel in list(_channels):
        channel.leave()


def _key(operation: Operation) -> Any:
    """What is in order with each other: collectives, or transfers in one direction between two ranks."""
    return (operation.kind, operation.peer) if operation.kind in P2P else "collectives"
