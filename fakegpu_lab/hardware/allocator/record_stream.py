"""Blocks that were freed while another stream may still use them (record_stream)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from fakegpu_lab.hardware.allocator.blocks import Block


class StreamClock(Protocol):
    """What the allocator must know of the simulated streams: the three calls on a cudaEvent."""

    def record(self, stream: int) -> object:
        """A mark at the end of what is queued on the stream now (cudaEventRecord)."""

    def passed(self, stream: int, mark: Any) -> bool:
        """Whether the stream has reached the mark (cudaEventQuery)."""

    def wait(self, stream: int, mark: Any) -> None:
        """Let the host wait until it has (cudaEventSynchronize)."""


class FinishedClock:
    """A device whose streams have always finished: a freed block comes back at the next malloc."""

    def record(self, stream: int) -> object:
        """Nothing needs marking."""
        return None

    def passed(self, stream: int, mark: Any) -> bool:
        """Always."""
        return True

    def wait(self, stream: int, mark: Any) -> None:
        """No need."""


class EventQueue:
    """The outstanding events of freed blocks, one queue for each stream (cuda_events)."""

    __slots__ = ("_queues", "clock")

    def __init__(self, clock: StreamClock) -> None:
        self.clock = clock
        self._queues: dict[int, deque[tuple[object, Block]]] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, block: Block) -> None:
        """insert_events: one event on each stream that used the block."""
        block.events = len(block.uses)
        for stream in sorted(block.uses):
            self._queues.setdefault(stream, deque()).append((self.clock.record(stream), block))

    def finished(self) -> list[Block]:
        """process_events: the blocks that every stream has passed. A late event holds up those behind it."""
        done: list[Block] = []
        for stream, queue in list(self._queues.items()):
            while queue and self.clock.passed(stream, queue[0][0]):
                self._pop(queue, done)
            if not queue:
                del self._queues[stream]
        return done

    def wait(self) -> list[Block]:
        """synchronize_and_free_events: wait for all of them."""
        done: list[Block] = []
        for stream, queue in list(self._queues.items()):
            while queue:
                self.clock.wait(stream, queue[0][0])
                self._pop(queue, done)
        self._queues.clear()
        return done

    @staticmethod
    def _pop(queue: deque[tuple[object, Block]], done: list[Block]) -> None:
        block = queue.popleft()[1]
        block.events -= 1
        if block.events == 0:
            done.append(block)
