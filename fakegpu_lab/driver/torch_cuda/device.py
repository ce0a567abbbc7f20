"""torch.cuda's devices: count, current, properties."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fakegpu_lab.driver import current

if TYPE_CHECKING:
    from fakegpu_lab.driver.patches import Patches


def get_device_count() -> int:
    return len(current.devices())


def get_device() -> int:
    return current.thread.index


def set_device(index: int) -> None:
    current.thread.index = current.device(index).index


def exchange_device(index: int) -> int:
    before = current.thread.index
    if index >= 0:
        set_device(index)
    return before


def install(patches: Patches) -> None:
    """Patch the C functions of devices."""
    for name, function in {
        "_cuda_getDeviceCount": get_device_count,
        "_cuda_getDevice": get_device,
        "_cuda_setDevice": set_device,
        "_cuda_exchangeDevice": exchange_device,
        "_cuda_maybeExchangeDevice": exchange_device,
        "_cuda_init": lambda: None,
        "_cuda_getCurrentRawStream": lambda index: 0,
    }.items():
        patches.set(torch._C, name, function)
    patches.set(torch.cuda, "_exchange_device", exchange_device)
    patches.set(torch.cuda, "_maybe_exchange_device", exchange_device)
    patches.set(torch.cuda, "_cudart", object())
    patches.set(torch.cuda, "_initialized", True)
