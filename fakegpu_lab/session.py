"""enable / disable: one machine at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.hardware.machine import Machine
from fakegpu_lab.hardware.spec import parse_spec

if TYPE_CHECKING:
    from fakegpu_lab.hardware.machine import Compute
    from fakegpu_lab.hardware.snapshot import Snapshot

_machine: Machine | None = None


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
    return _start(Machine(parse_spec(spec, memory=memory), compute), f"it was replaced by {spec!r}")


def _start(machine: Machine, farewell: str) -> Machine:
    global _machine
    from fakegpu_lab.driver import install  # imports torch: not before it is needed

    _stop(farewell)
    install.install(machine)
    _machine = machine
    return machine


def disable() -> None:
    """Take the machine away: torch is again as it was before `enable`."""
    _stop("it was switched off")


def _stop(farewell: str) -> None:
    global _machine
    if _machine is None:
        return
    from fakegpu_lab.driver import install

    _machine.retire(
        f"This tensor lives on a simulated GPU of the machine {_machine.spec.text!r}, which is gone: {farewell}. "
        "Make the tensor anew; to keep values across a change of machine, copy them with .cpu() first."
    )
    install.uninstall()
    _machine = None


def machine() -> Machine:
    """The enabled machine; raises FakeGpuError where there is none."""
    if _machine is None:
        raise FakeGpuError('No simulated GPU is enabled: call fakegpu_lab.enable("a100") or run %fakegpu a100 first.')
    return _machine


def snapshot() -> Snapshot:
    """The machine's state now; ``.model_dump(mode="json")`` makes it JSON."""
    return machine().snapshot()


def reset() -> Machine:
    """Switch the machine off and on: a new machine of the same kind, with empty memory and counters at 0."""
    old = machine()
    return _start(Machine(old.spec, old.compute), "it was reset")
