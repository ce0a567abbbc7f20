"""Inside a submission's process: what an answer does to the memory that a check measures, beside using it.

An answer that frees what was in use before makes differences too small, and one that resets the peak hides what it
took. While a check runs, the allocators of its cards notice both. What an answer takes in one statement, and keeps out
of the check's sight, counts as in use before the next.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from fakegpu_lab import session
from fakegpu_lab.course.flags import left_behind, tampering
from fakegpu_lab.course.flags.evaluated import is_lessons
from fakegpu_lab.hardware.allocator.caching_allocator import CachingAllocator
from fakegpu_lab.user_code.frames import walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import torch

    from fakegpu_lab.hardware.allocator.blocks import Block
    from fakegpu_lab.hardware.machine import Machine

LEAST = 2**20
"""Bytes that are worth a flag."""
PHRASES = {
    "freed": "freed memory that it had kept, while statement {} ran",
    "reset": "reset the peak of the memory, while statement {} ran",
    "replaced": "replaced the GPUs, while statement {} ran",
}


class MeasuredMemory:
    """The memory of the current machine while a check runs; `close` it at the check's end.

    Parameters
    ----------
    lesson
        The files of the lesson's own cells: what their functions do, the check wants.
    """

    def __init__(self, lesson: set[str]) -> None:
        self._lesson = lesson
        self._freed, self._reset, self._replaced = 0, False, False
        self._allocators: list[CachingAllocator] = []
        self._known: dict[int, Block] = {}
        self._held: dict[int, Block] = {}
        self._watch()
        _watching[:] = [self]
        session.on_change.append(self._changes)

    def keep(self, reached: Callable[[], Iterable[torch.Tensor]]) -> None:
        """Count what was taken since the last call, and is not `reached` from the check's names, as kept."""
        known, self._known = self._known, self._in_use()
        new = {number: block for number, block in self._known.items() if known.get(number) is not block}
        if sum(block.size for block in new.values()) >= LEAST:
            buffers = (getattr(one, "_buffer", None) for one in reached())
            seen = {id(buffer.block) for buffer in buffers if buffer is not None}
            self._held.update((number, block) for number, block in new.items() if number not in seen)

    def _watch(self) -> None:
        """Look at the current machine's allocators."""
        machine = left_behind.machine()
        self._allocators = [card.allocator for card in machine.cards] if machine is not None else []
        self._known = self._in_use()
        self._held = dict(self._known)
        for allocator in self._allocators:
            allocator.__class__ = _Reporting

    def _release(self) -> None:
        for allocator in self._allocators:
            allocator.__class__ = CachingAllocator

    def _in_use(self) -> dict[int, Block]:
        return {id(block): block for allocator in self._allocators for block in allocator.blocks_in_use()}

    def noticed(self) -> list[str]:
        """Which of `PHRASES` are true since the last call."""
        seen = (("freed", self._freed >= LEAST), ("reset", self._reset), ("replaced", self._replaced))
        self._freed, self._reset, self._replaced = 0, False, False
        return [what for what, true in seen if true]

    def close(self) -> None:
        """Let the allocators be as they were."""
        self._release()
        _watching.clear()
        if self._changes in session.on_change:
            session.on_change.remove(self._changes)

    def frees(self, block: Block) -> None:
        """A block is freed; it counts if it was in use before."""
        if self._held.pop(id(block), None) is not None and any(self._answers()):
            self._freed += block.size

    def resets(self) -> None:
        """The peak is reset."""
        self._reset |= next(self._answers(), False)

    def _answers(self) -> Iterator[bool]:
        """For each frame of cells and checks, the innermost first: whether it is an answer's."""
        for frame in walk(sys._getframe()):
            if not tampering.trusted(frame.f_code):
                yield not is_lessons(frame.f_code.co_filename, self._lesson)

    def _changes(self, _machine: Machine | None) -> None:
        """There is another machine, whose memory is looked at from here on: it has another clock, too."""
        self._replaced |= next(self._answers(), False)
        self._release()
        self._watch()


_watching: list[MeasuredMemory] = []


class _Reporting(CachingAllocator):
    __slots__ = ()

    def free(self, block: Block) -> None:
        if _watching:
            _watching[0].frees(block)
        super().free(block)

    def reset_peak(self) -> None:
        if _watching:
            _watching[0].resets()
        super().reset_peak()
