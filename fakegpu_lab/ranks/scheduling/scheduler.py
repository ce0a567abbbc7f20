"""Ranks as threads, of which one runs at a time.

The turn passes only where a rank must wait for another one, and always to the next rank (by number, round and round)
that can run. So the same program has the same interleaving in every run, and a program that hangs is detected at once:
no rank can run.

>>> ranks = Scheduler(2)
>>> arrived = []
>>> def program() -> int:
...     me = current_rank()
...     arrived.append(me.number)
...     me.wait(Waiting(lambda: len(arrived) == 2))
...     return me.number * 10
>>> ranks.run([program, program])
[0, 10]
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
import threading
from typing import TYPE_CHECKING, Any

from fakegpu_lab.user_code import interrupts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

STACK_BYTES = 64 << 20
"""A rank's stack: as deep as a main thread's (macOS gives other threads 512 KiB). Only used pages take memory."""

STOP_SECONDS = 0.3
"""How long ranks that are to end may go on by themselves before they are interrupted."""

PATIENCE = 1_000
"""How often a rank may poll something in vain while no other rank can run."""

_READY, _RUNNING, _WAITING, _DONE = "ready", "running", "waiting", "done"


class RankStopped(BaseException):
    """Raised in a rank that must end because another one failed or the user interrupted the run."""


class Waiting:
    """A condition that a rank waits for.

    Parameters
    ----------
    ready
        Whether the rank can run again.
    what
        What it waits for, for messages about hangs: an operation, a key of a store.
    """

    __slots__ = ("idle", "ready", "what")

    def __init__(self, ready: Callable[[], bool], what: Any = None) -> None:
        self.ready = ready
        self.what = what
        self.idle = False


class ProcessLike:
    """The state that a rank would own if it were a process; `process_state` has the real one."""

    def enter(self) -> None:
        """The rank gets the turn."""

    def leave(self) -> None:
        """The rank gives up the turn."""


class Rank:
    """One rank of a run.

    Attributes
    ----------
    number
        Its global rank.
    state
        ``"ready"``, ``"running"``, ``"waiting"`` or ``"done"``.
    waiting
        What it waits for, or waited for when it was stopped.
    result, error
        What its program returned or raised.
    pending
        An error to raise when it gets the turn.
    local
        What other modules store for it (its process groups, its pending operations).
    """

    def __init__(self, number: int, scheduler: Scheduler, process: ProcessLike) -> None:
        self.number = number
        self.scheduler = scheduler
        self.process = process
        self.state = _READY
        self.waiting: Waiting | None = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.pending: BaseException | None = None
        self.local: dict[str, Any] = {}
        self.thread: threading.Thread | None = None
        self._turn = threading.Semaphore(0)
        self._polls = 0

    @property
    def done(self) -> bool:
        """Whether its program has ended."""
        return self.state == _DONE

    def wait(self, waiting: Waiting) -> None:
        """Let other ranks run until `waiting` is ready; returns at once if it is.

        Raises
        ------
        RankStopped
            Another rank failed, or the run was interrupted.
        Exception
            No rank can run, and this one raises the error.
        """
        if self.scheduler.stopping:
            raise RankStopped
        if waiting.ready():
            return
        self.waiting, self.state = waiting, _WAITING
        self.process.leave()
        self.scheduler.pass_on(self)
        self._turn.acquire()
        self.process.enter()
        self.state = _RUNNING
        if self.pending is not None:
            error, self.pending = self.pending, None
            raise error
        if self.scheduler.stopping:
            raise RankStopped
        self.waiting = None

    def give_way(self, waiting: Waiting) -> None:
        """Let the other ranks that can run do so once, because this rank polls `waiting` and will poll again.

        A rank that polls for the `PATIENCE`-th time while no other rank can run waits instead: it would poll forever.
        """
        others = [other for other in self.scheduler.ranks if other is not self]
        if any(other.able for other in others):
            self._polls = 0
            answers = iter((False, True))
            self.wait(Waiting(lambda: next(answers, True), waiting.what))
            return
        self._polls += 1
        if self._polls >= PATIENCE:
            self._polls = 0
            self.wait(waiting)

    def wait_idly(self, waiting: Waiting) -> None:
        """Let other ranks run until `waiting` is ready, or until none of them can run without this one."""
        ready = waiting.ready
        waiting.idle = True
        waiting.ready = lambda: (
            ready()
            or not any(other.able for other in self.scheduler.ranks if other.waiting is None or not other.waiting.idle)
        )
        if not ready():
            self.wait(waiting)

    @property
    def able(self) -> bool:
        """Whether it could run if it had the turn."""
        return self.state == _READY or (self.state == _WAITING and self.waiting is not None and self.waiting.ready())

    def _main(self, program: Callable[[], Any]) -> None:
        here.rank = self
        self._turn.acquire()
        self.process.enter()
        self.state = _RUNNING
        try:
            if not self.scheduler.stopping:
                self.result = program()
        except RankStopped:
            pass
        except BaseException as error:
            self.error = error
            self.scheduler.fail(self, error)
        finally:
            self.state = _DONE
            self.process.leave()
            self.scheduler.pass_on(self)

    def interrupt(self) -> None:
        """Have the rank's thread raise RankStopped at its next line of Python, unless that would be a bad moment."""
        thread = self.thread.ident if self.thread is not None else None
        if thread is not None and not interrupts.must_wait(sys._current_frames().get(thread)):
            interrupts.raise_in(thread, RankStopped)


class _Here(threading.local):
    rank: Rank | None = None


here = _Here()


def current_rank() -> Rank | None:
    """The rank that runs in the calling thread; None outside a run."""
    return here.rank


class Scheduler:
    """Runs programs as ranks, in turn.

    Parameters
    ----------
    world_size
        The number of ranks.
    process
        Makes a rank's state, given its number.
    stuck
        Called when no rank can run; returns the rank that raises an error, and the error.
    stop
        Called when the user interrupts: makes ranks raise RankStopped soon.

    Attributes
    ----------
    failed
        The first rank that raised.
    stopping
        Whether all ranks must end.
    shared
        What other modules store for all ranks.
    """

    def __init__(
        self,
        world_size: int,
        process: Callable[[int], ProcessLike] = lambda number: ProcessLike(),
        stuck: Callable[[Scheduler], tuple[Rank, BaseException]] | None = None,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        self.ranks = [Rank(number, self, process(number)) for number in range(world_size)]
        self.stopping = False
        self.failed: Rank | None = None
        self.shared: dict[str, Any] = {}
        self._stuck = stuck or _deadlock
        self._stop, self._started = stop, False
        self._ended = threading.Event()

    def run(self, programs: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run one program per rank until all have ended.

        Returns
        -------
        list
            What each returned, by rank.

        Raises
        ------
        BaseException
            What the first rank to fail raised, or KeyboardInterrupt.
        """
        __tracebackhide__ = True
        for rank, program in zip(self.ranks, programs, strict=True):
            context = contextvars.copy_context()
            rank.thread = threading.Thread(
                target=context.run, args=(rank._main, program), name=f"rank {rank.number}", daemon=True
            )
        try:
            self._start()
            self._wait()
        except KeyboardInterrupt:
            if self._started:
                self._end()
            raise
        for thread in self._threads:
            thread.join()
        if self.failed is not None and self.failed.error is not None:
            error = self.failed.error
            inside = error.__traceback__
            raise error.with_traceback(inside.tb_next if inside is not None else None)
        return [rank.result for rank in self.ranks]

    @property
    def _threads(self) -> list[threading.Thread]:
        return [rank.thread for rank in self.ranks if rank.thread is not None]

    @interrupts.whole
    def _start(self) -> None:
        before = _set_stack_size(STACK_BYTES)
        for thread in self._threads:
            thread.start()
        _set_stack_size(before)
        self._started = True
        self.ranks[0]._turn.release()

    def _end(self) -> None:
        """End all ranks. A second Ctrl-C leaves a rank alone that is deep in a computation."""
        self.stopping = True
        self._stop()
        patience = STOP_SECONDS
        while not self._ended.wait(patience):
            for rank in (rank for rank in self.ranks if rank.state == _RUNNING):
                rank.interrupt()
            patience = 0.01
        for thread in self._threads:
            thread.join(STOP_SECONDS)

    def _wait(self) -> None:
        while not self._ended.wait(0.5):  # Windows delivers Ctrl-C only between waits
            pass

    def fail(self, rank: Rank, error: BaseException) -> None:
        """Stop all ranks because one raised; only the first failure is kept."""
        if self.failed is None and not self.stopping:
            self.failed = rank
        self.stopping = True

    def pass_on(self, rank: Rank) -> None:
        """Give the turn to the next rank that can run."""
        following = self._next(rank)
        if following is None and any(not other.done for other in self.ranks):
            try:
                following, error = self._stuck(self)
            except Exception as failure:  # else no rank would raise it, and all would wait forever
                following, error = next(other for other in self.ranks if not other.done), failure
            following.pending = error
        if following is None:
            self._ended.set()
        else:
            following._turn.release()

    def _next(self, rank: Rank) -> Rank | None:
        count = len(self.ranks)
        for step in range(1, count + 1):
            other = self.ranks[(rank.number + step) % count]
            if other.able or (self.stopping and other.state == _WAITING):
                return other
        return None


def _deadlock(scheduler: Scheduler) -> tuple[Rank, BaseException]:
    waiting = [rank for rank in scheduler.ranks if not rank.done]
    return waiting[0], RuntimeError("No rank can continue.")


def _set_stack_size(nbytes: int) -> int:
    with contextlib.suppress(ValueError, RuntimeError):  # not on every platform
        return threading.stack_size(nbytes)
    return 0
