"""`enable`, `disable` and the rest of a session: one machine at a time, in this process and in those it starts."""

from __future__ import annotations

import os
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base.patches import Patches, when_imported
from fakegpu_lab.hardware.allocator.settings import AllocatorSettings
from fakegpu_lab.hardware.catalogue.spec import USUAL, parse_spec
from fakegpu_lab.hardware.catalogue.visible_devices import VARIABLE
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.hardware.machine import Machine
from fakegpu_lab.nvml import library, publish
from fakegpu_lab.processes import inheritance
from fakegpu_lab.user_code import interrupts, tracebacks, warning_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from fakegpu_lab.hardware.machine import Clock, Compute
    from fakegpu_lab.hardware.snapshot import Snapshot
    from fakegpu_lab.real.cards import Cards

_machine: Machine | None = None
_latest: Machine | None = None
_asked: dict[str, Any] = {}
"""What the machine was enabled with, but for the host."""
_written_for = USUAL
"""The host that machines have if none is requested (`written_for`)."""

_watched: Cards | None = None
TREAT_AS_REAL = "TREAT_SIMULATED_GPUS_AS_REAL"
"""For tests: if it is set, `watch` takes the cards that torch shows for real ones although they are simulated."""

_waiting = Patches()
"""What lets libraries that do without torch see the machine that `enable_on_import` left for its import."""

on_change: list[Callable[[Machine | None], object]] = []
"""Functions to call with the machine that was enabled, or with None when it was disabled."""
on_watch: list[Callable[[Cards | None], object]] = []
"""Functions to call with the real cards that are watched from now on, or with None when they no longer are."""


def enable(
    spec: str = "a100",
    *,
    memory: int | str | None = None,
    compute: Compute = "real",
    clock: Clock = "real",
    host: str | None = None,
) -> Machine:
    """Enable simulated GPUs in torch. A machine that is already enabled is replaced.

    Parameters
    ----------
    spec
        ``"a100:2"``, ``"a100:1,t4:2"``, a node such as ``"dgx-a100"``, or the path of a profile.
    memory
        Limits every card to this many bytes; a string such as ``"2GiB"`` works too.
    compute
        ``"real"``: values are computed, on the CPU. ``"meta"``: shapes and memory only.
    clock
        ``"simulated"``: ``time.time``, ``perf_counter``, ``monotonic`` and ``process_time`` show simulated time to
        the program and to training libraries, and ``time.sleep`` advances it. ``"real"``: they show the computer's
        clock.
    host
        How fast the host's processor is: ``"dgx-a100"``, ``"cloud-t4"``, ``"desktop-2023"`` or the path of a profile.
        By default, ``"usual"``: the host that the cards usually have. ``"launches-only"``: only launches take time on
        it. ``"measured"``: in addition, the program's own code between two ops takes the simulated time that it takes
        on this computer, which differs from one computer to the next.

    Raises
    ------
    FakeGpuError
        The spec names an unknown card or an impossible count, the host is unknown, `memory` is not a size, or the
        profile is malformed.
    """
    global _asked
    if host is None:
        host = _written_for
    if compute not in ("real", "meta"):
        raise FakeGpuError(f'compute={compute!r} is neither "real" (values) nor "meta" (shapes and memory only).')
    if clock not in ("real", "simulated"):
        raise FakeGpuError(f'clock={clock!r} is neither "real" (the computer\'s) nor "simulated" (the GPU\'s time).')
    # Everything that can be wrong with the request is found here, while the old machine still runs.
    new = _from_environment(Machine(parse_spec(spec, memory=memory, host=host), compute, _allocator_settings(), clock))
    unwatch()
    notice = _hidden_gpus_notice()
    _replace(new, f"it was replaced by {spec!r}")
    if notice is not None and inheritance.VARIABLE not in os.environ:  # in a child process, the parent has printed it
        print(notice)
    _asked = {"spec": spec, "memory": memory, "compute": compute, "clock": clock}
    inheritance.leave(spec, memory, compute, clock, host)
    publish.begin(new)
    return new


def enable_on_import(
    spec: str,
    *,
    memory: int | str | None = None,
    compute: Compute = "real",
    clock: Clock = "real",
    host: str | None = None,
) -> None:
    """Enable simulated GPUs as soon as this process imports torch, as in a child process.

    A program that never imports torch does not wait for it. Settings that the program makes before that import
    (PYTORCH_CUDA_ALLOC_CONF, OMP_NUM_THREADS) count. Programs see the machine, too, that do without torch: with pynvml
    (gpustat, nvitop), or with ``numba.cuda``. The parameters are those of `enable`.

    Raises
    ------
    FakeGpuError
        As `enable` does, if the spec, the memory or the host is wrong.
    """
    parse_spec(spec, memory=memory, host=host)
    inheritance.leave(spec, memory, compute, clock, host)
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "1"
    if not _waiting:
        when_imported("pynvml", _waiting, lambda module: _waiting.later(library.attach(module)))
        when_imported("numba.cuda", _waiting, lambda _: import_module("torch"))


def written_for(host: str | None) -> None:
    """Let machines have this host from now on, unless another one is requested: a lesson's figures are for it.

    The machine that is enabled is replaced by one with this host, if it has another one. None: the usual one.
    """
    global _written_for
    _written_for = host or USUAL
    if _machine is not None and _written_for not in (USUAL, _machine.host.id):
        enable(**_asked)


def _hidden_gpus_notice() -> str | None:
    # Imported late; in a child process this enables the parent's machine (`autoload`).
    import_module("torch")
    from fakegpu_lab.driver.environment import real_gpus

    return real_gpus.hidden()


def _allocator_settings() -> AllocatorSettings:
    try:
        return AllocatorSettings.from_environ(os.environ)
    except ValueError as error:
        sentence = str(error).rstrip(".")
        raise FakeGpuError(f"PYTORCH_CUDA_ALLOC_CONF is invalid: {sentence}. Fix it or unset it.") from None


def _from_environment(new: Machine) -> Machine:
    """Apply the variables of CUDA and PyTorch that concern a whole machine."""
    new.set_visible_devices(os.environ.get(VARIABLE))
    if "PYTORCH_NO_CUDA_MEMORY_CACHING" in os.environ:  # forceUncachedAllocator: whatever its value is
        for card in new.cards:
            card.allocator.enable_caching(False)
    return new


@interrupts.whole
def _replace(new: Machine, farewell: str) -> None:
    """Replace the machine by `new`; if that fails, the old one stays and works."""
    global _machine, _latest
    from fakegpu_lab.driver import install  # imports torch, so only here

    old = _machine
    if old is not None:
        install.uninstall()
    else:
        interrupts.install()
    try:
        _install(new)
    except BaseException:
        install.uninstall()  # what was installed before it failed
        if old is not None:
            _install(old)
        else:
            interrupts.uninstall()
        raise
    _machine = _latest = new
    if old is not None:
        _retire(old, farewell)
    _notify(new)


def _notify(machine: Machine | None) -> None:
    for call in on_change:
        call(machine)


def _install(machine: Machine) -> None:
    from fakegpu_lab.driver import install
    from fakegpu_lab.driver.base import changes
    from fakegpu_lab.kernels.install import CHANGES as OF_KERNELS
    from fakegpu_lab.ranks import install as ranks_install

    install.install(machine)
    changes.apply(OF_KERNELS)
    ranks_install.install()
    install.patches.later(tracebacks.watch())
    warning_lines.install(install.patches)


@interrupts.whole
def disable() -> None:
    """Disable the simulated GPUs, and restore torch. Does nothing if none are enabled."""
    global _machine
    unwatch()
    old, _machine = _machine, None
    inheritance.forget()
    publish.end()
    if old is not None:
        from fakegpu_lab.driver import install

        _notify(None)
        _retire(old, "it was switched off")
        install.uninstall()
        interrupts.uninstall()
    _waiting.undo()


def _retire(old: Machine, farewell: str) -> None:
    old.retire(
        f"This tensor lives on a simulated GPU of the machine {old.spec.text!r}, which is gone: {farewell}. "
        "Create the tensor again; to keep values across a change of machine, copy them with .cpu() first."
    )


def run_ranks(
    fn: Callable[..., Any],
    world_size: int,
    *args: Any,
    show: Collection[int] | None = None,
    timeout_like_nccl: bool = False,
) -> list[Any]:
    """Run ``fn(*args)`` on `world_size` ranks of this process, and return the results by rank.

    Each rank has its own ``RANK``, ``LOCAL_RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT``, its own current
    device, random states and process groups; its output is labeled. One rank runs at a time, in an order that is the
    same in every run.

    Parameters
    ----------
    show
        The ranks whose output is shown; by default all.
    timeout_like_nccl
        Whether the error of a program that hangs has only the messages of NCCL's watchdog.

    Raises
    ------
    FakeGpuError
        No machine is enabled, or that many ranks cannot be run.
    Exception
        The error of the first rank that failed; the others were stopped.
    """
    __tracebackhide__ = True
    import_module("torch")  # may enable the machine, which needs modules that the next line has only begun to import
    from fakegpu_lab.ranks.launching import in_process

    programs = [partial(fn, *args)] * in_process.check(world_size)
    return in_process.run_programs(programs, show, timeout_like_nccl=timeout_like_nccl)


def watch() -> Cards:
    """Let live views show this computer's real GPUs, until `unwatch`, or until simulated ones are enabled.

    Raises
    ------
    FakeGpuError
        torch sees no GPU, or simulated ones hide it.
    """
    global _watched
    if _machine is not None and TREAT_AS_REAL not in os.environ:
        raise FakeGpuError(
            "Simulated GPUs are enabled, and hide real ones: switch them off first, with fakegpu_lab.disable() or "
            "%fakegpu off."
        )
    import torch

    if not torch.cuda.is_available():
        raise FakeGpuError(
            "torch sees no real GPU here: run this on a computer with an NVIDIA GPU and PyTorch's CUDA build, or "
            'enable a simulated one with fakegpu_lab.enable("a100") or %fakegpu a100.'
        )
    if _watched is None:
        from fakegpu_lab.real.cards import Cards

        _watched = Cards()
        for call in on_watch:
            call(_watched)
    return _watched


def unwatch() -> None:
    """Stop showing real GPUs. Does nothing if none are shown."""
    global _watched
    if _watched is not None:
        _watched = None
        for call in on_watch:
            call(None)


def watched() -> Cards | None:
    """The real cards that live views show; None if they show none."""
    return _watched


def shown() -> Machine | Cards | None:
    """What live views show: real cards, if they are watched, or the enabled machine, if there is one."""
    return _watched or _machine


def machine() -> Machine:
    """The enabled machine; raises FakeGpuError if there is none."""
    if _machine is None and inheritance.VARIABLE in os.environ:
        import_module("torch")  # the machine waits for this (`enable_on_import`)
    if _machine is None and _watched is not None:
        raise FakeGpuError(
            "This needs a simulated GPU, and a real one is in use: enable a simulated one with "
            'fakegpu_lab.enable("a100") or %fakegpu a100.'
        )
    if _machine is None:
        raise FakeGpuError('No simulated GPU is enabled: call fakegpu_lab.enable("a100") or run %fakegpu a100 first.')
    return _machine


def enabled() -> bool:
    """Whether a machine is enabled."""
    return _machine is not None


def latest() -> Machine | None:
    """The machine that was enabled last, also after `disable`: reports describe it."""
    return _latest


def snapshot(*, categories: bool = False) -> Snapshot:
    """The machine's state now, or that of the real cards that are watched; ``.model_dump(mode="json")`` makes it JSON.

    Parameters
    ----------
    categories
        Also find out what the memory is for (parameters, gradients, …): ``devices[0].memory.categories``. This
        examines all live objects, and takes about 50 ms.
    """
    if _watched is not None:
        from fakegpu_lab.real.memory import by_category as of_cards

        return _watched.snapshot(of_cards() if categories else None)
    now = machine()
    if not categories:
        return now.snapshot()
    from fakegpu_lab.driver.memory_report.categories import by_category  # imports torch

    return now.snapshot(by_category(now))


def reset() -> Machine:
    """Replace the machine with a new one of the same kind, with empty memory and counters at 0.

    This also helps after a device-side assert, which makes a real GPU unusable until the process ends.
    """
    old = machine()
    new = _from_environment(Machine(old.spec, old.compute, _allocator_settings(), old.clock))
    _replace(new, "it was reset")
    publish.begin(new)
    return new
