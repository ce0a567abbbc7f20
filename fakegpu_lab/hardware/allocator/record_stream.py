"""Freed blocks that another stream may still use (record_stream), and the events that release them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from fakegpu_lab.hardware.allocator.blocks import Block


class StreamClock(Protocol):
    """What the allocator needs from the simulated streams: the three calls on a cudaEvent."""

    def record(self, stream: int) -> object:
        """Mark the end of what is queued on the stream now (cudaEventRecord)."""

    def passed(self, stream: int, mark: Any) -> bool:
        """Whether the stream has reached the mark (cudaEventQuery)."""

    def wait(self, stream: int, mark: Any) -> None:
        """Let the host wait until it has (cudaEventSynchronize)."""


class FinishedClock:
    """A clock whose streams have always finished: a freed block is available at the next malloc."""

    def record(self, stream: int) -> object:
        """Return no mark: none is needed."""
        return None

    def passed(self, stream: int, mark: Any) -> bool:
        """Return True, always."""
        return True

    def wait(self, stream: int, mark: Any) -> None:
        """Do nothing."""


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
        """process_events: the blocks that every stream has passed. A late event delays those after it in its queue."""
        done: list[Block] = []
        for stream, queue in list(self._queues.items()):
            while queue and self.clock.passed(stream, queue[0][0]):
                self._pop(queue, done)
            if not queue:
                del self._queues[stream]
        return done

    def wait(self) -> list[Block]:
        """synchronize_and_free_events: wait for all events, and return their blocks."""
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
