"""enable / disable: one machine at a time, in this process and in the processes it starts."""

from __future__ import annotations

import os
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fakegpu_lab.hardware.allocator.settings import AllocatorSettings
from fakegpu_lab.hardware.catalogue.spec import parse_spec
from fakegpu_lab.hardware.catalogue.visible_devices import VARIABLE
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.hardware.machine import Machine
from fakegpu_lab.nvml import publish
from fakegpu_lab.processes import inheritance
from fakegpu_lab.user_code import tracebacks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from fakegpu_lab.hardware.machine import Compute
    from fakegpu_lab.hardware.snapshot import Snapshot

_machine: Machine | None = None
_latest: Machine | None = None

on_change: list[Callable[[Machine | None], object]] = []
"""Called with the machine that was enabled, or with None when it was switched off."""


def enable(spec: str = "a100", *, memory: int | str | None = None, compute: Compute = "real") -> Machine:
    """Give torch a machine with the GPUs of `spec`, in place of the machine there may be.

    Parameters
    ----------
    spec
        ``"a100:2"``, ``"a100:1,t4:2"``, a node such as ``"dgx-a100"``, or the path of a profile.
    memory
        Limits every card to so many bytes; ``"2GiB"`` is understood.
    compute
        ``"real"``: values are computed, on the CPU. ``"meta"``: shapes and memory only.

    Raises
    ------
    FakeGpuError
        The spec names no known card or an impossible count, the memory no size, the profile is malformed.
    """
    if compute not in ("real", "meta"):
        raise FakeGpuError(f'compute={compute!r} is neither "real" (values) nor "meta" (shapes and memory only).')
    # All that can be wrong with the request is found here, while the old machine still runs.
    new = Machine(parse_spec(spec, memory=memory), compute, _allocator_settings())
    new.look(os.environ.get(VARIABLE))
    hidden = _hidden()
    _replace(new, f"it was replaced by {spec!r}")
    if hidden is not None and inheritance.VARIABLE not in os.environ:  # a child process's parent has said it
        print(hidden)
    inheritance.leave(spec, memory, compute)
    publish.begin(new)
    return new


def _hidden() -> str | None:
    # Not before it is needed; in a child process it enables the parent's machine (`autoload`).
    import_module("torch")
    from fakegpu_lab.driver.base import real_gpus

    return real_gpus.hidden()


def _allocator_settings() -> AllocatorSettings:
    try:
        return AllocatorSettings.from_environ(os.environ)
    except ValueError as error:
        sentence = str(error).rstrip(".")
        raise FakeGpuError(f"PYTORCH_CUDA_ALLOC_CONF cannot be understood: {sentence}. Mend it or unset it.") from None


def _replace(new: Machine, farewell: str) -> None:
    """Put `new` where the machine is; if that fails, the old one stays, and works."""
    global _machine, _latest
    from fakegpu_lab.driver import install  # imports torch: not before it is needed

    old = _machine
    if old is not None:
        install.uninstall()
    try:
        _install(new)
    except BaseException:
        if old is not None:
            _install(old)
        raise
    _machine = _latest = new
    if old is not None:
        _retire(old, farewell)
    _tell(new)


def _tell(machine: Machine | None) -> None:
    for call in on_change:
        call(machine)


def _install(machine: Machine) -> None:
    from fakegpu_lab.driver import install
    from fakegpu_lab.ranks import install as registration
    from fakegpu_lab.ranks.launching import launchers

    install.install(machine)
    registration.install(install.patches)
    launchers.install(install.patches)
    install.patches.later(tracebacks.watch())


def disable() -> None:
    """Take the machine away: torch is again as it was before `enable`. Without a machine, does nothing."""
    global _machine
    old, _machine = _machine, None
    inheritance.forget()
    publish.end()
    if old is not None:
        from fakegpu_lab.driver import install

        _tell(None)
        _retire(old, "it was switched off")
        install.uninstall()


def _retire(old: Machine, farewell: str) -> None:
    old.retire(
        f"This tensor lives on a simulated GPU of the machine {old.spec.text!r}, which is gone: {farewell}. "
        "Make the tensor anew; to keep values across a change of machine, copy them with .cpu() first."
    )


def run_ranks(
    fn: Callable[..., Any],
    world_size: int,
    *args: Any,
    show: Collection[int] | None = None,
    timeout_like_nccl: bool = False,
) -> list[Any]:
    """Run ``fn(*args)`` on `world_size` ranks of this process, and return what each returned.

    Each rank has its own ``RANK``, ``LOCAL_RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT``, its own current
    device, random states and process groups; its output is labelled. One rank runs at a time, in an order that is the
    same in every run.

    Parameters
    ----------
    show
        The ranks whose output is shown; by default all.
    timeout_like_nccl
        Whether ranks that can never go on are told as NCCL's watchdog tells it, and no more.

    Raises
    ------
    FakeGpuError
        There is no machine, or the number of ranks is not one that can be run.
    Exception
        What the first rank to fail raised; the others were stopped.
    """
    __tracebackhide__ = True
    from fakegpu_lab.ranks.launching import in_process  # imports torch: not before it is needed

    programs = [partial(fn, *args)] * in_process.check(world_size)
    return in_process.run_programs(programs, show, timeout_like_nccl=timeout_like_nccl)


def machine() -> Machine:
    """The enabled machine; raises FakeGpuError where there is none."""
    if _machine is None:
        raise FakeGpuError('No simulated GPU is enabled: call fakegpu_lab.enable("a100") or run %fakegpu a100 first.')
    return _machine


def enabled() -> bool:
    """Whether there is a machine."""
    return _machine is not None


def latest() -> Machine | None:
    """The enabled machine or, where it was switched off, the last one that was: what a report tells of."""
    return _latest


def snapshot(*, categories: bool = False) -> Snapshot:
    """The machine's state now; ``.model_dump(mode="json")`` makes it JSON.

    Parameters
    ----------
    categories
        Also tell what the memory is for (parameters, gradients, …): ``devices[0].memory.categories``. All live
        objects are looked at for it, which takes a twentieth of a second.
    """
    now = machine()
    if not categories:
        return now.snapshot()
    from fakegpu_lab.driver.memory_report.categories import by_category  # imports torch

    return now.snapshot(by_category(now))


def reset() -> Machine:
    """Switch the machine off and on: a new machine of the same kind, with empty memory and counters at 0.

    Cures a device-side assert, after which a real GPU cannot be used until the process ends.
    """
    old = machine()
    new = Machine(old.spec, old.compute, _allocator_settings())
    new.look(os.environ.get(VARIABLE))
    _replace(new, "it was reset")
    publish.begin(new)
    return new
