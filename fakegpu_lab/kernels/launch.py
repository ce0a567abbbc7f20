"""One launch of a kernel that the user wrote: it runs, is charged on the current stream, recorded, captured in graphs.

A front end gives a function that runs the kernel's blocks and logs their accesses; `launch` does what is the same for
all front ends:

    def run(log: AccessLog) -> Ran:
        ...                                     # compute, log.add(…), log.flops(…)
        return Ran(written=[out], grid=(8,), threads=128)

    access = launch(device, "scale", [x, out], run)
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base import current, graph_capture
from fakegpu_lab.driver.cost.launching import call_of
from fakegpu_lab.hardware.kernel_model.accesses import AccessLog
from fakegpu_lab.hardware.kernel_model.launch_time import launch_time
from fakegpu_lab.hardware.kernel_model.occupancy import occupancy
from fakegpu_lab.hardware.time import clock
from fakegpu_lab.hardware.time.clock import here
from fakegpu_lab.kernels import races
from fakegpu_lab.user_code.frames import user_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.driver.base.tensor import FakeCudaTensor
    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.time.access import Access


GRID_LIMITS = (2**31 - 1, 65_535, 65_535)
"""The blocks of a grid along x, y and z (CUDA C++ Programming Guide, table of compute capabilities)."""


class IllegalAccess(Exception):  # noqa: N818 - CUDA's word
    """Raised while a kernel runs, at an access outside its tensors; its text says which one, in a sentence."""


class AssertFailed(Exception):  # noqa: N818 - CUDA's word
    """Raised while a kernel runs, where an assertion fails; its text is what a card prints."""


@dataclass(slots=True)
class Ran:
    """What a front end says of a kernel that has run.

    Attributes
    ----------
    written
        The tensors that it wrote to.
    grid, threads, registers, shared_bytes
        Blocks along x, y and z; threads of a block; registers of a thread (None: not counted); bytes of shared memory
        of a block.
    shared_counted
        Whether the log has its accesses to shared memory.
    part
        The fraction of the blocks that ran (`sample_programs`).
    races
        Sentences about accesses of two blocks that nothing orders.
    access
        What the kernel does to the hardware, if that is known from an earlier launch; then nothing else counts but
        `written` and `grid`.
    """

    written: Sequence[FakeCudaTensor] = ()
    grid: tuple[int, ...] = (1,)
    threads: int = 1
    registers: int | None = None
    shared_bytes: int = 0
    shared_counted: bool = True
    part: float = 1.0
    races: list[str] = field(default_factory=list)
    access: Access | None = None


def launch(
    device: Device,
    name: str,
    tensors: Sequence[FakeCudaTensor],
    run: Callable[[AccessLog], Ran],
    *,
    values: bool = True,
) -> Access | None:
    """Launch a kernel on the current stream of `device`.

    What `run` raises reaches the caller, and nothing is charged. Only an `IllegalAccess` and an `AssertFailed` do not:
    the kernel counts as launched, and the next call that waits for the device fails, as on CUDA.

    Parameters
    ----------
    name
        The kernel's, as profilers show it.
    tensors
        All device tensors that it gets.
    run
        Runs its blocks and logs what they access.
    values
        Whether it needs values for that. Under ``compute="meta"`` it is not called then.

    Returns
    -------
    Access or None
        What it did to the hardware; None if it failed.
    """
    __tracebackhide__ = True
    if device.retired:
        raise device_asserts.retired_error(device)
    failed: list[BaseException] = []
    seen: list[Access] = []

    def whole(written: list[FakeCudaTensor], read: list[FakeCudaTensor]) -> None:
        log = AccessLog(device.roofline.cached)
        fault: IllegalAccess | AssertFailed | None = None
        try:
            ran = run(log)
        except (IllegalAccess, AssertFailed) as error:
            fault = error
            ran = Ran(list(written))
        except BaseException as error:  # it passes the dispatch path with its own traceback
            failed.append(error)
            return
        stored = {id(tensor._buffer.block) for tensor in ran.written}
        read += [tensor for tensor in written if id(tensor._buffer.block) not in stored]
        written[:] = [tensor for tensor in written if id(tensor._buffer.block) in stored]
        access = _charge(device, log, ran)
        if fault is not None:
            if graph_capture.current_capture() is None:
                illegal = isinstance(fault, IllegalAccess)
                report = device_asserts.illegal_access if illegal else device_asserts.assert_failed
                report(device, str(fault))
            return
        if ran.races:
            races.report(device, name, user_line(), ran.races)
        seen.append(access)

    if values and current.meta():
        _without_values(device, name, tensors)
        return None
    call_of(name)(tensors, whole)
    if failed:
        raise failed[0]
    return seen[0] if seen else None


def access_of(device: Device, log: AccessLog, ran: Ran, most: int | None = None) -> Access:
    """What the kernel did, with its time.

    Parameters
    ----------
    most
        The bytes that it can read of DRAM, and write, at most: what several blocks read of the same memory would count
        once for each of them if only a part of the blocks ran.
    """
    profile = device.profile
    full = occupancy(profile, ran.threads, ran.registers or 0, ran.shared_bytes)
    access = replace(
        log.summary(ran.part),
        grid=ran.grid,
        threads=ran.threads,
        registers=ran.registers,
        shared_bytes=ran.shared_bytes,
        shared_counted=ran.shared_counted,
        occupancy=full,
    )
    if most is not None:
        access = replace(
            access,
            dram_read_bytes=min(access.dram_read_bytes, most),
            dram_written_bytes=min(access.dram_written_bytes, most),
        )
    return replace(access, time=launch_time(profile, access, full))


def _charge(device: Device, log: AccessLog, ran: Ran) -> Access:
    """Queue the kernel on the current stream, and add to the recording what it did."""
    access = access_of(device, log, ran) if ran.access is None else ran.access
    assert access.time is not None
    host = here.host
    blocks = 1
    for extent in ran.grid:
        blocks *= extent
    share = min(max(blocks / access.time.resident, device.roofline.one_block), 1.0)
    clock.launch(host, host.streams[device], access.time.ns, share, round(access.flops), access.dram_bytes)
    capture, recorder = host.streams[device].capture, device.timeline.recorder
    if capture is not None:
        capture.nodes[-1] = capture.nodes[-1]._replace(access=access)
    elif recorder is not None:
        recorder.accessed(host, access)
    return access


def _without_values(device: Device, name: str, tensors: Sequence[FakeCudaTensor]) -> None:
    """Under ``compute="meta"`` there are no values to run a kernel on: it takes as long as reading its tensors once."""

    def whole(written: list[FakeCudaTensor], read: list[FakeCudaTensor]) -> None:
        moved = sum(tensor._inner.nbytes for tensor in tensors)
        host = here.host
        clock.launch(host, host.streams[device], device.roofline.streaming(moved), 1.0, 0, moved)

    call_of(name)(tensors, whole)
