"""Races within one launch: two blocks that access the same element, at least one of them with a plain store.

Blocks run in any order, and side by side: nothing orders two of them but atomic operations, or another launch. Atomic
operations on one element are no race among each other, and neither are stores of the same value. CUDA lets a race run,
and so does the simulation: it prints a sentence, and a recording has it among its `races`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fakegpu_lab.hardware.time.happens_before import Race
from fakegpu_lab.user_code.frames import place

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fakegpu_lab.hardware.device import Device

    Numbers = NDArray[np.int64]

_NOBODY, _SEVERAL = -1, -2
_MOST = 10
"""Races that one launch reports, at most."""


@dataclass(frozen=True, slots=True)
class KernelRace(Race):
    """A race between two blocks, or two threads, of one launch."""

    sentence: str = ""

    def __str__(self) -> str:
        return self.sentence


class _Marks:
    """Who has accessed each element of a tensor so far, and at which line: by plain stores, atomically, by loads."""

    def __init__(self, elements: int) -> None:
        self.writer = np.full(elements, _NOBODY, dtype=np.int32)
        self.updater = np.full(elements, _NOBODY, dtype=np.int32)
        self.reader = np.full(elements, _NOBODY, dtype=np.int32)
        self.written_at = np.zeros(elements, dtype=np.int16)
        self.updated_at = np.zeros(elements, dtype=np.int16)
        self.read_at = np.zeros(elements, dtype=np.int16)


_ATOMICALLY = "updates atomically"


def _foreign(others: NDArray[np.int32], blocks: Numbers) -> NDArray[np.bool_]:
    """Where somebody else than the block itself has accessed an element."""
    foreign: NDArray[np.bool_] = (others != _NOBODY) & (others != blocks)
    return foreign


def _mark(marks: NDArray[np.int32], places: Numbers, blocks: Numbers) -> None:
    """Remember that blocks have accessed elements."""
    before = marks[places]
    marks[places] = np.where((before == _NOBODY) | (before == blocks), blocks, _SEVERAL)
    several = marks[places] != blocks
    marks[places[several]] = _SEVERAL


class Watch:
    """Finds the races of one launch.

    Elements are given by their places in a tensor, with the number of the block that accesses each.

    Parameters
    ----------
    what
        What a block is called: ``"program"`` or ``"block"``.

    Attributes
    ----------
    found
        A sentence for each tensor and pair of lines.
    """

    def __init__(self, what: str = "program") -> None:
        self.what = what
        self.found: dict[tuple[str, ...], str] = {}
        self._marks: dict[str, _Marks] = {}
        self._lines: list[str] = []

    def loaded(self, name: str, elements: int, places: Numbers, blocks: Numbers, line: str) -> None:
        """Blocks have loaded elements of the tensor `name`, which has `elements` of them."""
        marks = self._of(name, elements)
        writers, updaters = marks.writer[places], marks.updater[places]
        self._judge(name, places, blocks, line, "loads", _foreign(writers, blocks), writers, marks.written_at)
        self._judge(
            name, places, blocks, line, "loads", _foreign(updaters, blocks), updaters, marks.updated_at, _ATOMICALLY
        )
        _mark(marks.reader, places, blocks)
        marks.read_at[places] = self._number(line)

    def stored(
        self, name: str, elements: int, places: Numbers, blocks: Numbers, line: str, changed: NDArray[np.bool_]
    ) -> None:
        """Blocks have stored elements; `changed`: another value than was there, or than another block stores now."""
        marks = self._of(name, elements)
        writers, updaters, readers = marks.writer[places], marks.updater[places], marks.reader[places]
        self._judge(
            name, places, blocks, line, "stores", _foreign(writers, blocks) & changed, writers, marks.written_at
        )
        foreign = _foreign(updaters, blocks) & changed
        self._judge(name, places, blocks, line, "stores", foreign, updaters, marks.updated_at, _ATOMICALLY)
        self._judge(name, places, blocks, line, "stores", _foreign(readers, blocks), readers, marks.read_at, "loads")
        marks.writer[places] = blocks
        marks.written_at[places] = self._number(line)
        writers = marks.writer[places]
        self._judge(name, places, blocks, line, "stores", (writers != blocks) & changed, writers, marks.written_at)

    def updated(self, name: str, elements: int, places: Numbers, blocks: Numbers, line: str) -> None:
        """Blocks have changed elements by atomic operations."""
        marks = self._of(name, elements)
        writers = marks.writer[places]
        self._judge(name, places, blocks, line, "updates", _foreign(writers, blocks), writers, marks.written_at)
        _mark(marks.updater, places, blocks)
        marks.updated_at[places] = self._number(line)

    def _of(self, name: str, elements: int) -> _Marks:
        marks = self._marks.get(name)
        if marks is None:
            marks = self._marks[name] = _Marks(elements)
        return marks

    def _number(self, line: str) -> int:
        if line not in self._lines:
            self._lines.append(line)
        return self._lines.index(line)

    def _judge(
        self,
        name: str,
        places: Numbers,
        blocks: Numbers,
        line: str,
        verb: str,
        wrong: NDArray[np.bool_],
        others: NDArray[np.int32],
        lines: NDArray[np.int16],
        past: str = "stores",
    ) -> None:
        """Keep a sentence if there is a race: `others` have accessed the same elements, at `lines`."""
        if not wrong.any() or len(self.found) >= _MOST:
            return
        first = int(np.argmax(wrong))
        element, other = int(places[first]), int(others[first])
        elsewhere = self._lines[lines[element]]
        key = (name, *sorted((line, elsewhere)))
        if key in self.found:
            return
        who = f"{self.what} {other}" if other >= 0 else f"another {self.what}"
        same = " in the same line" if elsewhere == line else f" ({place(elsewhere).label})"
        self.found[key] = (
            f"{self.what} {int(blocks[first])} {verb} {name}[{element}] ({place(line).label}), which {who} "
            f"{past}{same}, and nothing orders the two: use an atomic operation, an element for each {self.what}, "
            "or two launches."
        )


_told: set[str] = set()


def report(device: Device, kernel: str, line: str, sentences: list[str]) -> None:
    """Print the races of a launch, each once, and add them to the recordings.

    Parameters
    ----------
    line
        The line that launched the kernel, as ``file:number``.
    """
    for sentence in sentences:
        whole = f"Race on cuda:{device.index} in {kernel}: {sentence}"
        if whole not in _told:
            _told.add(whole)
            print(whole, flush=True)
        recorder: Any = device.timeline.recorder
        race = KernelRace("within a kernel", device.index, kernel, line, 0, kernel, line, 0, sentence=whole)
        while recorder is not None:
            if race not in recorder.races:
                recorder.races.append(race)
            recorder = recorder.outer


def forget() -> None:
    """Print races again, also those that were printed before."""
    _told.clear()
