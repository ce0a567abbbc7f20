"""The launch that runs now: which programs run together, what they have done so far, how it is undone.

Many programs run at a time: the first axis of every array is that of the programs (of length 1 where all have the same
value). Where a condition or the length of a loop differs between them, `Diverged` ends the attempt; what they have
stored is taken back, and each group runs by itself (`programs`).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.kernels.triton_programs.warps import cut
from fakegpu_lab.user_code.frames import innermost, place

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fakegpu_lab.hardware.kernel_model.accesses import AccessLog
    from fakegpu_lab.kernels.pointers import Memory, Stretch
    from fakegpu_lab.kernels.races import Watch


ROUNDS = 20_000
"""How often a ``while`` loop may look at memory that does not change."""
ALIKE = 2_000
"""How often if each time it looks at the same places, and no atomic operation is in it: nobody could end its wait."""


class Diverged(Exception):  # noqa: N818 - it is no error
    """Programs that ran together go different ways; `values` has one value for each, by which to part them."""

    def __init__(self, values: NDArray[Any]) -> None:
        super().__init__("programs diverge")
        self.values = values


class Running:
    """One launch.

    Parameters
    ----------
    memory
        The tensors that the kernel got.
    log
        Where accesses and arithmetic go.
    grid
        Programs along three axes.
    threads
        Threads of a program.
    tensor_cores
        Whether the card's tensor cores compute Triton's dots.

    Attributes
    ----------
    ids
        The numbers of the programs that run together; program 0, 0, 0 is 0, and 1, 0, 0 is 1.
    written
        Places in ``memory.stretches`` that were stored to.
    largest
        The elements of the largest block that was accessed.
    one_by_one
        Whether each program runs by itself, because programs part anyway.
    races
        Looks for races between programs; None where atomic operations may order them.
    """

    def __init__(
        self, memory: Memory, log: AccessLog, grid: tuple[int, int, int], threads: int, *, tensor_cores: bool
    ) -> None:
        self.memory = memory
        self.log = log
        self.grid = grid
        self.threads = threads
        self.tensor_cores = tensor_cores
        self.ids = np.zeros(1, dtype=np.int64)
        self.written: set[int] = set()
        self.largest = 1
        self.one_by_one = False
        self.races: Watch | None = None
        self._early: list[tuple[Any, ...]] | None = []
        self._latest: dict[tuple[str, tuple[str, int]], NDArray[np.int64]] | None = None  # within a ``while`` loop
        self._looked = self._moved = self._atomic = False
        self._rounds = self._alike = 0
        self._accesses: list[tuple[Any, ...]] = []
        self._flops: list[tuple[Any, ...]] = []
        self._undo: list[Any] = []

    def begin(self, ids: NDArray[np.int64]) -> None:
        """Let these programs run together."""
        self.ids = ids
        self._rounds = self._alike = 0
        self._latest = None
        self._accesses, self._flops, self._undo = [], [], []

    def program_id(self, axis: int) -> NDArray[np.int32]:
        """The numbers of the running programs along an axis of the grid."""
        x, y, _ = self.grid
        numbers = (self.ids % x, self.ids // x % y, self.ids // (x * y))[axis]
        return numbers.astype(np.int32)

    def place_of(self, number: int) -> tuple[int, int, int]:
        """The place in the grid of a program by its number."""
        x, y, _ = self.grid
        return number % x, number // x % y, number // (x * y)

    def accessed(self, kind: str, addresses: NDArray[np.int64], mask: NDArray[np.bool_] | None, itemsize: int) -> None:
        """Note an access of blocks of addresses."""
        line = user_line()
        if self._latest is not None:
            before = self._latest.get((kind, line))
            if before is not None and np.array_equal(before, addresses):
                addresses = before  # kept once, however often the loop goes around
            else:
                self._latest[kind, line] = addresses
                self._moved = True
        self._accesses.append((kind, addresses, mask, itemsize, line))
        self._looked = True
        self._atomic |= kind == "atomic"
        self.largest = max(self.largest, addresses.size // len(addresses))

    def touched(self, kind: str, one: Stretch, places: Any, mask: Any, itemsize: int, changed: Any = None) -> None:
        """Look for races at elements of a tensor. Only tensors that the first program stores to can have any."""
        if self.races is None or itemsize != one.itemsize:
            return
        if self._early is None and self.memory.stretches.index(one) not in self.written:
            return
        shape = np.broadcast_shapes(places.shape, (len(self.ids),) + (1,) * (places.ndim - 1))
        blocks = np.broadcast_to(self.ids.reshape(-1, *[1] * (places.ndim - 1)), shape)
        places = np.broadcast_to(places, shape)
        places, blocks = (places.ravel(), blocks.ravel()) if mask is None else (places[mask], blocks[mask])
        line = "{}:{}".format(*user_line())
        rest = (one.name, (one.end - one.start) // itemsize, places, blocks, line)
        if kind == "load" and self._early is not None:
            self._early.append((one, rest))
        elif kind == "load":
            self.races.loaded(*rest)
        elif kind == "store":
            self.races.stored(*rest, changed)
        else:
            self.races.updated(*rest)

    def first_has_run(self) -> None:
        """The first program has run: from now on, tensors that it has not stored to are not looked at."""
        early, self._early = self._early or [], None
        for one, rest in early:
            if self.races is not None and self.memory.stretches.index(one) in self.written:
                self.races.loaded(*rest)

    def computed(self, each: float, fmt: str, *, tensor_core: bool = False) -> None:
        """Note floating-point operations of each of the running programs."""
        self._flops.append((each * len(self.ids), fmt, tensor_core))

    def stored(self, undo: Any) -> None:
        """Note how a store is taken back."""
        if len(self.ids) > 1:
            self._undo.append(undo)

    def changed(self) -> None:
        """Something has changed in memory, for which a loop may have waited."""
        self._rounds = self._alike = 0

    def goes_around(self) -> None:
        """A ``while`` loop goes around once more; raises if it has looked at memory very often, and nothing changes."""
        if self._latest is None:
            self._latest = {}
        alike = self._looked and not self._moved and not self._atomic
        self._rounds = self._rounds + 1 if self._looked else 0
        self._alike = self._alike + 1 if alike else 0
        waits, self._looked, self._moved, self._atomic = self._atomic, False, False, False
        if self._rounds > ROUNDS or self._alike > ALIKE:
            program = self.place_of(int(self.ids[0]))
            where = place("{}:{}".format(*user_line()))
            rounds = ALIKE if alike else ROUNDS
            lock = "Does every program release the lock that it takes, and is the lock 0 at first?"
            raise FakeGpuError(
                f"Program {program} has gone {rounds:,} times around the loop at {where.label} ({where.text}) and "
                "nothing changes in memory: it waits for something that no other program does, and would hang on a "
                f"GPU. {lock if waits else 'Does each round change what its condition asks?'}"
            )

    def take_back(self) -> None:
        """Undo what the running programs have stored, and forget what they did."""
        while self._undo:
            self._undo.pop()()
        self._accesses, self._flops = [], []

    def finish(self) -> None:
        """The running programs have ended: log what they did."""
        for kind, addresses, mask, itemsize, line in self._accesses:
            if len(addresses) == 1 and len(self.ids) > 1:
                addresses = np.broadcast_to(addresses, (len(self.ids), *addresses.shape[1:]))  # noqa: PLW2901
            if mask is not None:
                mask = np.broadcast_to(mask, addresses.shape)  # noqa: PLW2901
            rows, width, each = cut(addresses, mask, itemsize, self.threads)
            self.log.add(kind, "global", rows, width, line, np.repeat(self.ids, each))
        for flops, fmt, tensor_core in self._flops:
            self.log.flops(flops, fmt, tensor_core=tensor_core)
        self._accesses, self._flops, self._undo = [], [], []


now: list[Running] = []
"""The launch that runs, if any."""


def user_line() -> tuple[str, int]:
    """The line of the user's kernel that is running: neither Triton's nor ours."""
    frame = innermost(sys._getframe(1))
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)
