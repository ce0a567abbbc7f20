"""Runs the threads of a block: each is a greenlet, which runs until it ends or waits for others.

One thread runs at a time, in the order of their numbers, and the turn passes only at barriers and warp-wide functions.
So a kernel gives the same result in every run, also one with a race, where a card's results differ from run to run.
Blocks run one after the other, in the order of their numbers.

A barrier that not all threads of the block reach is an error. What a card does then is undefined: it hangs, or pairs
this barrier with the next one, or (since Volta) leaves out threads that have ended. NVIDIA's ``compute-sanitizer --tool
synccheck`` calls all of these divergent threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.kernels.numba_cuda.arrays import AccessNotes

greenlets: Any = None
"""The package `greenlet`, which the extra ``numba`` brings; `install` imports it."""

WARP = 32
_SPINS = 10_000
"""After this many rounds in which threads do nothing but wait for a lock, nobody is left to release it."""


class Dim3:
    """An index or an extent: ``x``, ``y``, ``z``."""

    __slots__ = ("x", "y", "z")

    def __init__(self, x: int = 0, y: int = 0, z: int = 0) -> None:
        self.x, self.y, self.z = x, y, z

    def set(self, values: Sequence[int]) -> None:
        """Change all three."""
        self.x, self.y, self.z = values

    def __repr__(self) -> str:
        return f"({self.x}, {self.y}, {self.z})"


@dataclass(frozen=True)
class Waiting:
    """What a thread waits for.

    Attributes
    ----------
    name
        The function of `numba.cuda` that it called.
    line
        Where.
    mask
        The lanes of its warp that take part; None for a barrier of the whole block.
    value
        What it brings.
    """

    name: str
    line: tuple[str, int]
    mask: int | None = None
    value: Any = None
    argument: int = 0


class StuckError(Exception):
    """Threads wait for others that never come."""

    def __init__(self, name: str, block: Sequence[int], waiting: list[Thread], others: list[Thread]) -> None:
        super().__init__(name, block)
        self.name, self.block, self.waiting, self.others = name, block, waiting, others


class Thread:
    """One CUDA thread of the running block; `number` counts within the block, x first."""

    __slots__ = ("answer", "greenlet", "index", "number", "spinning", "waiting", "warp_epoch")

    def __init__(self, number: int, index: tuple[int, int, int], program: Callable[[], object]) -> None:
        self.number = number
        self.index = index
        self.greenlet = greenlets.greenlet(program)
        self.waiting: Waiting | None = None
        self.answer: Any = None
        self.spinning = False
        self.warp_epoch = 0

    @property
    def ended(self) -> bool:
        """Whether its program has returned."""
        return bool(self.greenlet.dead)

    @property
    def lane(self) -> int:
        """Its place in its warp."""
        return self.number % WARP


class Segments:
    """Which thread made which of the accesses: a row for each time that a thread had the turn.

    `length` counts accesses; `epoch` the barriers that the block had passed, `warp_epoch` those of the warp.
    """

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int, int]] = []  # block, thread, epoch, warp_epoch, length


class Here:
    """The running thread, for the functions that kernels call."""

    thread: Thread
    threads: list[Thread]
    hub: Any


here = Here()
thread_index, block_index, block_extent, grid_extent = Dim3(), Dim3(), Dim3(1, 1, 1), Dim3(1, 1, 1)


def wait(request: Waiting) -> Any:
    """Let the running thread wait; returns what it gets when it goes on."""
    thread = here.thread
    thread.waiting = request
    here.hub.switch()
    return thread.answer


def spin() -> None:
    """Let the other threads run first: this one found a lock taken."""
    here.thread.spinning = True
    here.hub.switch()


MOST_TURNS = 2_000_000
"""So often the threads of a block take turns, at most, waiting for each other: that takes about a quarter of a minute.

A product of 16,384 × 16,384 matrices, in tiles of 32 × 32 with two barriers each, has half as many.
"""


class NeverEndsError(Exception):
    """The threads of a block wait for each other again and again; it has one of them."""

    def __init__(self, thread: Thread) -> None:
        assert thread.waiting is not None
        super().__init__()
        self.thread, self.line = thread, thread.waiting.line


def run_block(
    number: int,
    index: tuple[int, int, int],
    indices: Sequence[tuple[int, int, int]],
    program: Callable[[], object],
    notes: AccessNotes,
    segments: Segments,
) -> None:
    """Run the threads of the block with that number; raises what a thread raises, `StuckError` or `NeverEndsError`."""
    block_index.set(index)
    threads = here.threads = [Thread(i, place, program) for i, place in enumerate(indices)]
    here.hub = greenlets.getcurrent()
    codes, rows = notes.codes, segments.rows
    ready, epoch, spins, rounds = threads, 0, 0, 0
    while ready:
        for thread in ready:
            here.thread = thread
            thread_index.x, thread_index.y, thread_index.z = thread.index
            before = len(codes)
            thread.greenlet.switch()
            if len(codes) > before:
                rows.append((number, thread.number, epoch, thread.warp_epoch, len(codes) - before))
        ready = [thread for thread in threads if thread.spinning]
        for thread in ready:
            thread.spinning = False
        rounds += 1
        if rounds * len(threads) > MOST_TURNS and (
            waiting := [thread for thread in threads if thread.waiting is not None]
        ):
            raise NeverEndsError(waiting[0])
        answered = _answer_warps(threads)
        if not answered and not ready:
            answered = _pass_barrier(threads, index)
            epoch += 1
        spins = 0 if answered else spins + 1
        if spins > _SPINS:
            raise StuckError("a lock", index, ready, [thread for thread in threads if thread.ended])
        ready = sorted(ready + answered, key=_number)


def _number(thread: Thread) -> int:
    return thread.number


def _answer_warps(threads: list[Thread]) -> list[Thread]:
    """The threads whose warp-wide call is complete, with their answers."""
    answered = []
    for start in range(0, len(threads), WARP):
        warp = threads[start : start + WARP]
        groups: dict[tuple[Any, ...], list[Thread]] = {}
        for thread in warp:
            request = thread.waiting
            if request is not None and request.mask is not None:
                groups.setdefault((request.name, request.line, request.mask), []).append(thread)
        for (name, _, mask), group in groups.items():
            # CUDA C++ Programming Guide: all threads that the mask names and that have not exited must make the call.
            needed = {thread.lane for thread in warp if mask >> thread.lane & 1 and not thread.ended}
            if {thread.lane for thread in group} == needed:
                values = {thread.lane: thread.waiting.value for thread in group}  # type: ignore[union-attr]
                for thread in group:
                    assert thread.waiting is not None
                    thread.answer = WARP_WIDE[name](thread.lane, values, thread.waiting.argument)
                    thread.warp_epoch += 1
                for thread in group:
                    thread.waiting = None
                answered += group
    return answered


def _pass_barrier(threads: list[Thread], block: Sequence[int]) -> list[Thread]:
    """Let all threads go on if all wait at the same barrier; empty if all have ended."""
    alive = [thread for thread in threads if not thread.ended]
    if not alive:
        return []
    calls = {thread.waiting for thread in alive if thread.waiting is not None and thread.waiting.mask is None}
    places = {(call.name, call.line) for call in calls}
    first = alive[0].waiting
    assert first is not None
    if len(alive) < len(threads) or len(places) != 1 or any(one.waiting.mask is not None for one in alive):  # type: ignore[union-attr]
        same = [
            one for one in alive if one.waiting and (one.waiting.name, one.waiting.line) == (first.name, first.line)
        ]
        raise StuckError(f"cuda.{first.name}()", block, same, [thread for thread in threads if thread not in same])
    votes = [bool(thread.waiting.value) for thread in alive]  # type: ignore[union-attr]
    answer = {"syncthreads_count": sum(votes), "syncthreads_and": int(all(votes)), "syncthreads_or": int(any(votes))}
    for thread in alive:
        thread.answer = answer.get(first.name)
        thread.waiting = None
    return alive


Values = dict[int, Any]


def _from(lane: int, source: int, values: Values) -> Any:
    """The value of lane `source`; that of the lane itself where CUDA leaves the result undefined."""
    return values.get(source, values[lane])


def _ballot(values: Values) -> int:
    return sum(1 << lane for lane, value in values.items() if value)


def _matching(lane: int, values: Values) -> int:
    return sum(1 << other for other, value in values.items() if value == values[lane])


def _match_all(lane: int, values: Values, _: int) -> tuple[int, bool]:
    same = len(set(values.values())) == 1
    return (sum(1 << other for other in values) if same else 0), same


WARP_WIDE: dict[str, Callable[[int, Values, int], Any]] = {
    "shfl_sync": lambda lane, values, source: _from(lane, source % WARP, values),
    "shfl_up_sync": lambda lane, values, delta: _from(lane, lane - delta, values),
    "shfl_down_sync": lambda lane, values, delta: _from(lane, lane + delta, values),
    "shfl_xor_sync": lambda lane, values, mask: _from(lane, lane ^ mask, values),
    "ballot_sync": lambda _, values, __: _ballot(values),
    "all_sync": lambda _, values, __: all(values.values()),
    "any_sync": lambda _, values, __: any(values.values()),
    "eq_sync": lambda _, values, __: len({bool(value) for value in values.values()}) == 1,
    "match_any_sync": lambda lane, values, _: _matching(lane, values),
    "match_all_sync": _match_all,
    "syncwarp": lambda _, __, ___: None,
}
"""The results of the warp-wide functions: of a lane, from the values of all lanes that take part."""
