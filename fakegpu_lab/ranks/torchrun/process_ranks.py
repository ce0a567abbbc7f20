"""Process groups of ranks that are real processes, as torchrun starts them: gloo carries what they send by "nccl".

A process has its own simulated machine (`autoload`), with its own memory and its own clock. The clocks meet in
collectives: each rank announces from when it could begin, all begin with the slowest, and all know the cost. So every
rank's times are the same in every run, regardless of the real processes' speed.

Each group has one thread that carries its collectives in order, and one for each peer and direction for sends and
receives: operations under way continue while the program computes, as on NCCL's streams. The program's own thread waits
where it asks for the result, and there the operation is placed in simulated time.

Two torchrun agents on one computer (``--nnodes 2``) are two nodes; agents on several computers are, too.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import threading
import time
import weakref
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.processes import run_reports
from fakegpu_lab.ranks.collectives import cost, values
from fakegpu_lab.ranks.collectives.operation import P2P, Communicator
from fakegpu_lab.ranks.dist import dist
from fakegpu_lab.ranks.torchrun import gloo_wire, later_waits, messages
from fakegpu_lab.user_code import interrupts

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable

    from fakegpu_lab.hardware.network.fabric import Cost
    from fakegpu_lab.ranks.collectives.operation import Operation


class _Worker:
    """A thread that runs jobs in order. The process does not end before it: see `_leave`."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        _workers.add(self)
        self._thread.start()

    def put(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)

    def close(self) -> None:
        self._jobs.put(None)

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _work(self) -> None:
        try:
            with torch.inference_mode():  # values may be written, wherever they were made
                while (job := self._jobs.get()) is not None:
                    job()
                    del job  # often the last reference to a group that the program has destroyed
        finally:
            _workers.discard(self)


_workers: set[_Worker] = set()
"""The workers whose threads run."""


_MOST, _MOST_BYTES = 256, 2 << 30
"""How many operations that the program has not waited for may keep their tensors, and how large. NCCL's release theirs
when they are done; here the program's thread does it, and waits for the oldest one, so that every run is the same."""


class _Pending:
    """An operation under way."""

    def __init__(self, operation: Operation, ready_ns: int) -> None:
        self.operation = operation
        self.ready_ns = ready_ns
        self.nbytes = operation.nbytes
        self.done = threading.Event()
        self.error: BaseException | None = None
        self.announced: dict[int, dict[str, Any]] = {}  # by rank in the group

    @interrupts.interruptible
    def wait(self, until: float) -> bool:
        """Wait until it is done; False if it is not at that time."""
        while not self.done.wait(min(1.0, max(until - time.monotonic(), 0))):  # in steps: Ctrl-C must get through
            if time.monotonic() >= until:
                return False
        if self.error is not None:
            raise self.error.with_traceback(None) from None  # the worker's frames mean nothing to the user
        return True


class ProcessChannel(Communicator):
    """A communicator whose members are processes.

    Parameters
    ----------
    store
        The group's own store, through which its processes find each other.
    member
        This process's rank in the group.
    timeout
        How long it waits for the others, by the wall clock.
    """

    def __init__(
        self, name: str, backend: str, ranks: tuple[int, ...], description: str,
        store: Any, member: int, timeout: dt.timedelta,
    ) -> None:  # fmt: skip
        super().__init__(name, backend, ranks, description)
        self.member = member
        self.timeout = timeout
        self.put_off = later_waits.put_off if backend == "nccl" and later_waits.wanted() else None
        self._wire = gloo_wire.Wire(dist.PrefixStore(f"{backend}/", store), member, len(ranks), timeout)
        self._workers: dict[Any, _Worker] = {}
        self._pending: defaultdict[Any, deque[_Pending]] = defaultdict(deque)
        self._ends: defaultdict[Any, int] = defaultdict(int)
        self._transfers: defaultdict[Any, int] = defaultdict(int)
        _channels.add(self)

    # ------------------------------------------------- the program's thread

    def issue(self, operation: Operation) -> None:
        """Start an operation that this process calls."""
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
        ready_ns = max(operation.after_ns, operation.stream.end if operation.stream is not None else 0)
        pending = _Pending(operation, ready_ns)
        if operation.kind == "SEND":
            operation.payload = values.sent(operation.inputs)
        worker = self._workers.get(key)
        if worker is None:
            worker = self._workers[key] = _Worker(f"group {self.name} {key}")
        waiting = self._pending[key]
        waiting.append(pending)
        worker.put(lambda: self._run(pending))
        while len(waiting) > _MOST or (len(waiting) > 1 and sum(each.nbytes for each in waiting) > _MOST_BYTES):
            self.finish(waiting[0].operation)

    def finish(self, operation: Operation, seconds: float | None = None) -> None:
        """Wait until an operation is done, and place it in time; raises its error.

        After `seconds` of the real time, the operation has timed out, and NCCL's communicator is aborted.
        """
        key = _key(operation)
        waiting = self._pending[key]
        until = time.monotonic() + seconds if seconds is not None else float("inf")
        while waiting and not operation.done:
            try:
                if not waiting[0].wait(until):
                    raise self._timed_out(operation, seconds or 0)
            except Exception as error:
                if not _leaves_its_root_alone(waiting[0].operation, error):
                    waiting.popleft().operation.error = error.with_traceback(None)
                    raise
            self._place(key, waiting.popleft())
        if operation.error is not None:
            raise operation.error.with_traceback(None)
        run_reports.progress()

    def _timed_out(self, operation: Operation, seconds: float) -> BaseException:
        error = messages.timed_out(operation, self.timeout, seconds)
        if self.backend == "nccl":
            self.failure = str(error)
            self.abort()
        return error

    def _place(self, key: Any, pending: _Pending) -> None:
        operation = pending.operation
        begin = max(pending.ready_ns, self._ends[key])
        operation.after_ns = begin
        stream = operation.stream
        later = stream.end if stream is not None else 0
        if stream is not None:
            stream.end = begin  # as at the launch: work queued on it since then comes after
        announced = pending.announced
        others = [(self.ranks[rank], max(theirs["ready"], self._ends[key])) for rank, theirs in announced.items()]
        nbytes = max([operation.nbytes, *(theirs["nbytes"] for theirs in announced.values())])
        cost.charge([operation], self._cost_of(pending, nbytes) if operation.device else None, nbytes, others)
        if stream is not None:
            stream.end = max(stream.end, later)
        self._ends[key] = operation.end_ns
        operation.finish()

    def _cost_of(self, pending: _Pending, nbytes: int) -> Cost:
        """The cost of an operation between the nodes and cards that its ranks announced."""
        operation = pending.operation
        assert operation.device is not None
        places = {rank: (str(theirs["node"]), int(theirs["slot"])) for rank, theirs in pending.announced.items()}
        places[self.member] = (messages.node(), operation.device.slot)
        return self._cost_between([places[rank] for rank in sorted(places)], operation.kind, nbytes)

    def expected(self, operation: Operation) -> Cost | None:
        """See `Communicator`."""
        if self.backend == "gloo":
            return None
        assert current.machine is not None
        cards = len(current.machine.spec.gpus)
        local = int(os.environ.get("LOCAL_WORLD_SIZE", cards))
        if local > cards:
            return None
        places = [(str(rank // local), rank % local) for rank in self.ranks]
        return self._cost_between(places, operation.kind, operation.nbytes)

    def _cost_between(self, places: list[tuple[str, int]], kind: str, nbytes: int) -> Cost:
        """The cost of an operation between cards, each given by its node and its slot there."""
        machine = current.machine
        assert machine is not None
        nodes: dict[str, int] = {}
        for node, _ in places:
            nodes.setdefault(node, len(nodes))
        slots = [nodes[node] * len(machine.spec.gpus) + slot for node, slot in places]
        return cost.nccl_cost(kind, nbytes, machine.fabric.across(len(nodes)), slots)

    # ----------------------------------------------------- the worker's thread

    def _run(self, pending: _Pending) -> None:
        try:
            if pending.operation.kind in P2P:
                self._transfer(pending)
            else:
                self._collective(pending)
        except BaseException as error:
            pending.error = messages.as_nccl_error(error, pending.operation, self.timeout)
            if pending.error is not error:  # the watchdog aborts the communicator
                self.failure = self.failure or str(pending.error)
        pending.done.set()

    def _collective(self, pending: _Pending) -> None:
        operation = pending.operation
        received = self._wire.exchange(messages.announcement(operation, pending.ready_ns))
        pending.announced = {rank: json.loads(text) for rank, text in enumerate(received) if rank != self.member}
        messages.compare(operation, pending.announced)
        if not values.is_meta(operation):
            gloo_wire.carry(operation, self._wire)

    def _transfer(self, pending: _Pending) -> None:
        operation = pending.operation
        sends = operation.kind == "SEND"
        target = values.inner(operation.outputs[0]) if operation.outputs else None
        buffer = torch.empty(target.nbytes, dtype=torch.uint8) if target is not None and not target.is_meta else None

        def to_send_or_fill(announcement: bytes) -> torch.Tensor | None:
            pending.announced = {operation.peer: json.loads(announcement)}
            messages.compare(operation, pending.announced)
            if sends:
                payload = operation.payload[0]
                return None if payload.is_meta else gloo_wire.as_bytes(payload)
            return buffer

        transfer = self._wire.send if sends else self._wire.receive
        announcement = messages.announcement(operation, pending.ready_ns)
        transfer(announcement, to_send_or_fill, operation.peer, operation.number)
        if buffer is not None and target is not None:
            values.fill(target, gloo_wire.as_elements(buffer, target))

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Let the threads end after their last jobs."""
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()

    def abort(self) -> None:
        """Give up what is under way, and let the threads end."""
        self._wire.given_up = self._busy()
        self.leave()
        self.close()
        for pending in (pending for waiting in self._pending.values() for pending in waiting):
            if not pending.done.is_set():
                pending.error = messages.aborted(pending.operation)
                pending.done.set()

    def leave(self) -> None:
        """The process ends: give up what is under way."""
        if self._busy() and hasattr(self._wire.gloo, "abort"):
            self._wire.gloo.abort()

    def hang_up(self) -> None:
        """Close the connections, which ends gloo's own threads, unless one still waits for another rank."""
        if not (self._busy() or self._wire.given_up):
            self._wire.gloo = None

    def _busy(self) -> bool:
        return any(not pending.done.is_set() for waiting in self._pending.values() for pending in waiting)


_channels: weakref.WeakSet[ProcessChannel] = weakref.WeakSet()
_PATIENCE = 20.0
"""Seconds for all threads to end: on a busy computer, closing gloo's connections takes a while."""


@atexit.register
def _leave() -> None:
    """End the threads before Python does.

    A thread that comes out of C++ afterwards is ended in the middle of it (PyEval_RestoreThread), and if that is a
    destructor, such as gloo's, the process aborts: "terminate called without an active exception". The thread may be
    that of a group which the program has destroyed, and which it is the last to hold. It may also be one of gloo's own,
    which lets go of an operation's tensors a moment after the program has their values, and needs Python for that.
    """
    for channel in list(_channels):
        channel.leave()
    workers, until = list(_workers), time.monotonic() + _PATIENCE
    for worker in workers:
        worker.close()
    for worker in workers:
        worker.join(max(until - time.monotonic(), 0.0))
    for channel in list(_channels):
        channel.hang_up()


def _leaves_its_root_alone(operation: Operation, error: Exception) -> bool:
    """Whether an operation ends at this rank although another one is lost: the root of a small broadcast does not wait.

    It writes to the others' buffers (NCCL_BUFFSIZE, 4 MiB), and only a full one would stop it.
    """
    at_root = operation.kind == "BROADCAST" and operation.rank == operation.root
    return at_root and operation.nbytes <= 4 << 20 and messages.lost_a_rank(error)


def _key(operation: Operation) -> Any:
    """Operations with the same key run in order: collectives, or transfers in one direction between two ranks."""
    return (operation.kind, operation.peer) if operation.kind in P2P else "collectives"
