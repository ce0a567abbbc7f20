"""Programs on several ranks of this process, as `session.run_ranks` and ``%%ranks`` run them."""

from __future__ import annotations

import gc
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.autograd import gradient_lock
from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.patches import Patches
from fakegpu_lab.driver.dispatch import dispatcher
from fakegpu_lab.driver.recorder import recording
from fakegpu_lab.driver.torch_cuda import devices
from fakegpu_lab.hardware.errors import FakeGpuError, with_notes
from fakegpu_lab.ranks.diagnosis import hang_messages, held_by_errors, program_hints
from fakegpu_lab.ranks.dist import c10d, cpp, dist
from fakegpu_lab.ranks.scheduling import malloc_trim
from fakegpu_lab.ranks.scheduling.environment import variables
from fakegpu_lab.ranks.scheduling.output import Console, RankOutput
from fakegpu_lab.ranks.scheduling.process_state import ProcessState
from fakegpu_lab.ranks.scheduling.scheduler import RankStopped, Scheduler, current_rank
from fakegpu_lab.ranks.scheduling.store import stores
from fakegpu_lab.ranks.scheduling.world import RankWorld
from fakegpu_lab.user_code import interrupts
from fakegpu_lab.user_code.environment import PACKAGE
from fakegpu_lab.user_code.frames import steps, trim

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from fakegpu_lab.hardware.machine import Machine

_ended_early: list[bool] = []
"""Not empty if the last run ended with an error or was interrupted."""

_OF_A_RANK = "of_a_rank"
"""An attribute of the errors that ranks raised."""

_RANKS = str(PACKAGE / "ranks")

MOST = 64
"""Ranks that one process can run: each has a thread and takes memory."""


def check(world_size: Any) -> int:
    """The number of ranks; raises FakeGpuError if that many cannot be run here."""
    if isinstance(world_size, bool) or not isinstance(world_size, int) or not 1 <= world_size <= MOST:
        raise FakeGpuError(f"The number of ranks must be from 1 to {MOST}, not {world_size!r}.")
    if current.machine is None:
        raise FakeGpuError("Ranks need GPUs: enable a machine with one for each rank first, as with %fakegpu a100:4.")
    if current_rank() is not None:
        raise FakeGpuError("A rank cannot start other ranks: call this outside the ranks.")
    gevent: Any = sys.modules.get("gevent.monkey")
    if gevent is not None and gevent.is_module_patched("_thread"):
        raise FakeGpuError(
            "Ranks are threads, and gevent has replaced threads by greenlets: call "
            "gevent.monkey.patch_all(thread=False, socket=False), or start the ranks with torchrun."
        )
    return world_size


def run_programs(
    programs: Sequence[Callable[[], Any]],
    show: Collection[int] | None = None,
    environment: Callable[[int, int], dict[str, str]] = variables,
    timeout_like_nccl: bool = False,
) -> list[Any]:
    """Run one program per rank; as `session.run_ranks`.

    Parameters
    ----------
    environment
        A rank's additional variables, given its rank and the number of ranks.
    """
    __tracebackhide__ = True
    world_size = check(len(programs))
    if show is not None and not set(show) <= set(range(world_size)):
        raise FakeGpuError(f"show={show!r} names ranks that do not exist: they are 0 to {world_size - 1}.")
    malloc_trim.share()
    console = Console(sys.stdout, set(show) if show is not None else None)

    def process(rank: int) -> ProcessState:
        return ProcessState(environment(rank, world_size), RankOutput(console, rank))

    _give_back()
    held = _held(current.machine)
    threads = {threading.get_ident()}  # the caller's, which only waits for the ranks meanwhile
    gradient_lock.in_turn.update(threads)
    outside = ProcessState()
    scheduler = Scheduler(world_size, process, hang_messages.stuck, partial(recording.refuse_by, _refused))
    scheduler.shared["timeout_like_nccl"] = timeout_like_nccl
    patches = Patches()
    hook = sys.excepthook
    results = None
    try:
        _install(patches)
        results = scheduler.run([partial(_as_rank, threads, program) for program in programs])
    except Exception as error:
        note = hang_messages.note(scheduler)
        if note:
            with_notes(error, note)
        _end_at_users_line(error)
        error.__dict__[_OF_A_RANK] = True
        raise
    finally:
        _ended_early[:] = [True] if results is None else []
        gradient_lock.in_turn.difference_update(threads)
        _leave(patches, outside, hook)
        for channel in scheduler.shared.get("channels", {}).values():
            channel.disconnect()
        if scheduler.failed is not None:
            _forget_operations(scheduler)
    if _held(current.machine) > held:
        _collect()  # a process that ends gives its memory back, also what reference cycles hold (FSDP's, hooks')
    for line in hang_messages.unreceived(list(scheduler.shared.get("channels", {}).values())):
        print(line)
    return results


def _end_at_users_line(error: BaseException) -> None:
    """Trim the traceback of an error that the ranks raised, such as a hang: torch's frames in it lead nowhere."""
    raising = [step.tb_frame.f_code.co_filename for step in steps(error.__traceback__)][-1:]
    if raising and raising[0].startswith(_RANKS):
        trim(error, to_users_line=True)


def _give_back() -> None:
    """Free what the ranks of a run that did not finish still hold in its error's frames: their processes have ended.

    Not as soon as they end, so that ``%debug`` can look at it.
    """
    if not _ended_early:
        return
    _ended_early.clear()
    shown: BaseException | None = getattr(sys, "last_value", None)
    if shown is not None and _OF_A_RANK in shown.__dict__:
        held_by_errors.forget_rank(shown)
    _collect()


@interrupts.whole
def _collect() -> None:
    """Collect garbage; a finalizer, which the collector calls, would lose an interrupt."""
    gc.collect()


def _forget_operations(scheduler: Scheduler) -> None:
    """Drop the operations that no rank will finish, with their tensors: the error's frames keep the scheduler."""
    for rank in scheduler.ranks:
        rank.waiting = None
    for channel in scheduler.shared.get("channels", {}).values():
        channel.forget()


def _held(machine: Machine | None) -> int:
    """The bytes that tensors hold on all cards."""
    return sum(device.allocator.allocated_bytes for device in machine.cards) if machine is not None else 0


def _as_rank(threads: set[int], program: Callable[[], Any]) -> Any:
    """Run a rank's program, in its thread, which is one of `threads` from now on.

    It counts as a rank's until all ranks have ended: a thread that has run its program and lives on for a moment must
    not keep the others from looking at their tensors.
    """
    me = threading.get_ident()
    threads.add(me)
    gradient_lock.in_turn.add(me)
    return program()


def _refused(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """In place of the dispatch path: the ops of ranks, which are to end."""
    if current_rank() is not None:
        raise RankStopped
    return dispatcher.run(func, types, args, kwargs)


@interrupts.whole
def _leave(patches: Patches, outside: ProcessState, hook: Any) -> None:
    """Put back what was otherwise while ranks ran."""
    recording.refuse_by(None)
    patches.undo()
    cpp._set_global_rank(-1)
    outside.enter()
    sys.excepthook = hook
    malloc_trim.give_back()


def _install(patches: Patches) -> None:
    """Patch what differs while ranks run: each rank has its own state of torch.distributed, stores are shared."""
    patches.set(c10d, "_world", RankWorld(c10d._world))
    rendezvous = sys.modules["torch.distributed.rendezvous"]  # the package has a function of that name
    for name, substitute in stores({}).items():
        patches.set(rendezvous, name, substitute)
        patches.set(dist, name, substitute)
    program_hints.install(patches)
    patches.set(devices, "look", lambda: None)  # else one rank's CUDA_VISIBLE_DEVICES would renumber all ranks' devices
    isolate = cpp._set_thread_isolation_mode
    isolate(True)
    patches.later(partial(isolate, False))
