"""The enabled machine, and the current device of each thread."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import torch

from fakegpu_lab.driver.base import cuda_messages
from fakegpu_lab.driver.base.privateuse1 import NAME

if TYPE_CHECKING:
    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.machine import Machine


class _Thread(threading.local):
    """CUDA keeps the current device per host thread; a new thread starts on device 0."""

    index = 0


thread = _Thread()
machine: Machine | None = None
"""The enabled machine; `session` sets it."""
ready = False
"""Whether CUDA is initialised; `torch_cuda.devices.lifecycle` sets it."""


def devices() -> list[Device]:
    """Every device that CUDA sees, in the order of its ordinals; empty if no machine is enabled."""
    return machine.devices if machine is not None else []


def cards() -> list[Device]:
    """Every GPU of the enabled machine, including those that ``CUDA_VISIBLE_DEVICES`` hides."""
    return machine.cards if machine is not None else []


def device(index: int | None = None) -> Device:
    """The device with ordinal `index`, or this thread's current device.

    The first call initialises CUDA.

    Raises
    ------
    torch.AcceleratorError
        ``CUDA error: invalid device ordinal``, as the CUDA runtime answers.
    RuntimeError
        No device is available, or this process is a forked child that may not use one.
    """
    if not ready:
        torch.cuda._lazy_init()  # type: ignore[no-untyped-call]
    found = devices()
    if index is None or index == -1:
        index = thread.index
    if not 0 <= index < len(found):
        raise cuda_messages.invalid_device_ordinal() if found else cuda_messages.no_gpus()
    return found[index]


def host_ns(reference_ns: int) -> int:
    """What the machine's host takes for something that takes `reference_ns` on the reference host (`host_costs`)."""
    return machine.host.ns(reference_ns) if machine is not None else 0


def is_ours(where: torch.device | None) -> bool:
    """Whether a torch device is a simulated GPU, by its Python or its C++ name."""
    return where is not None and where.type in ("cuda", NAME)


def meta() -> bool:
    """Whether tensors keep no values (``compute="meta"``)."""
    return machine is not None and machine.compute == "meta"
