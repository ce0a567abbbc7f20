"""Simulated time across a DataLoader's workers: a batch is ready when its worker has read it, not before.

A worker is a process with a clock of its own. With each batch it sends the time that the batch took. The program's
process knows when it asked for the batch, and what that worker had to read before: so it knows when the batch is
ready, and waits for it. Prefetching needs nothing more: torch asks for ``prefetch_factor`` batches a worker in
advance, and for another one whenever it takes one (torch/utils/data/dataloader.py, `_process_data`). With
``pin_memory``, the thread that pins handles one batch after the other, in the order in which the program takes them.
How far that thread is ahead in real time must not matter, or it would find the pages of an earlier batch free in one
run and lock more of them in the next; so each batch is really pinned when the program takes it, on the simulated clock
of the thread. What the thread would have pinned ahead by then is counted as pinned memory in use: each of these batches
is assumed to be as large as the one that was just taken, and as long to read.

Simplified: starting a worker takes no time, nor does sending a batch, and the workers do not share processor cores.
Python and the CPU's arithmetic take no simulated time in a worker either: ``time.sleep`` with the simulated clock, or
`host_work`, stands for reading and decoding.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data.dataloader
from torch._utils import ExceptionWrapper
from torch.utils.data._utils import worker
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import replaced
from fakegpu_lab.hardware.time.clock import Host, here
from fakegpu_lab.hardware.time.records import LOADER_WAIT

if TYPE_CHECKING:
    from fakegpu_lab.hardware.transfers.pinned_memory import PinnedBlock, PinnedMemory

_worker_loop = worker._worker_loop


@dataclass(frozen=True)
class _Timed:
    """A batch on its way from a worker: its index, and the simulated time that reading it took, ns."""

    index: int
    data: Any
    ns: int
    to_pin: bool = False

    def pin_memory(self) -> _Timed:
        """Note that the batch is to be pinned; torch's pinning thread calls this."""
        return replace(self, to_pin=True)


class _Timekeeper:
    """Stands for both queues of a worker: what leaves it carries the time since the last task came in."""

    def __init__(self, tasks: Any, results: Any) -> None:
        self._tasks = tasks
        self._results = results
        self._began = 0

    def get(self, *arguments: Any, **options: Any) -> Any:
        task = self._tasks.get(*arguments, **options)
        self._began = here.host.now
        return task

    def put(self, result: tuple[Any, Any]) -> None:
        index, data = result
        if isinstance(index, int) and not isinstance(data, (ExceptionWrapper, worker._IterableDatasetStopIteration)):
            result = index, _Timed(index, data, here.host.now - self._began)
        self._results.put(result)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._results, name)  # `cancel_join_thread` and `close`, when the worker ends


@functools.wraps(_worker_loop)  # so that it is pickled by torch's name: a spawned worker finds it there
def worker_loop(kind: Any, dataset: Any, tasks: Any, results: Any, *others: Any) -> None:
    """`torch.utils.data._utils.worker._worker_loop`, timed."""
    keeper = _Timekeeper(tasks, results)
    _worker_loop(kind, dataset, keeper, keeper, *others)


class _WaitingIterator(_MultiProcessingDataLoaderIter):
    """torch's iterator over the batches of workers; it waits, in simulated time, until a batch is ready."""

    def _reset(self, *arguments: Any, **options: Any) -> None:
        self._asked: dict[int, tuple[int, int]] = {}  # by batch: its worker, and when it was asked
        self._free: dict[int, int] = defaultdict(int)  # by worker: when it has read what was taken from it
        self._pinning_thread = Host(name="pins memory")
        self._ahead: list[list[PinnedBlock]] = []  # the memory of the batches that the thread has pinned ahead
        super()._reset(*arguments, **options)

    def _try_put_index(self) -> None:
        index = self._send_idx
        super()._try_put_index()
        if self._send_idx > index:
            self._asked[index] = self._task_info[index][0], here.host.now

    def _process_data(self, data: Any, *of_worker: Any) -> Any:
        if isinstance(data, _Timed):
            number, asked = self._asked.pop(data.index)
            there = self._free[number] = max(self._free[number], asked) + data.ns
            batch = data.data
            if current.machine is not None:
                if data.to_pin:
                    batch, there = self._pin(batch, there)
                missing = there - here.host.now
                if missing > 0:
                    current.machine.keep_host_busy(missing, LOADER_WAIT)
            result = super()._process_data(batch, *of_worker)  # type: ignore[no-untyped-call]
            if current.machine is not None and data.to_pin:
                self._pin_ahead(current.machine.pinned_memory, data.ns)
            return result
        return super()._process_data(data, *of_worker)  # type: ignore[no-untyped-call]

    def _pin(self, batch: Any, since: int) -> tuple[Any, int]:
        """The batch in pinned memory, or the error, as torch's `_pin_memory_loop` sends it; and when it is there."""
        assert current.machine is not None
        memory = current.machine.pinned_memory
        thread, program = self._pinning_thread, here.host
        thread.now = began = max(thread.now, since)
        del self._ahead[:1]
        self._sizes = memory.sizes = []
        here.host = thread
        try:
            batch = pin_memory(batch)  # type: ignore[no-untyped-call]
        except Exception:
            where = f"in pin memory thread for device {torch.cuda.current_device()}"
            batch = ExceptionWrapper(where=where)  # type: ignore[no-untyped-call]
        finally:
            here.host = program
            memory.sizes = None
        self._pinning_ns = thread.now - began
        return batch, thread.now

    def _pin_ahead(self, memory: PinnedMemory, reading_ns: int) -> None:
        """Hold the memory of the batches that the thread has pinned by now."""
        ready, pinned, count = self._free.copy(), self._pinning_thread.now, 0
        for number, asked in self._asked.values():
            ready[number] = max(ready[number], asked) + reading_ns
            pinned = max(pinned, ready[number]) + self._pinning_ns
            count += pinned <= here.host.now
        del self._ahead[count:]
        while len(self._ahead) < count:
            self._ahead.append([memory.take_ahead(here.host.now, size) for size in self._sizes])


CHANGES = [
    replaced("torch.utils.data._utils.worker._worker_loop", worker_loop, "workers send the time that a batch took"),
    replaced(
        "torch.utils.data.dataloader._MultiProcessingDataLoaderIter", _WaitingIterator, "iterators wait for that time"
    ),
]
"""An iterator outlives the machine as it is."""
