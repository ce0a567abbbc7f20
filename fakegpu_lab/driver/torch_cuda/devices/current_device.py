"""torch.cuda's devices: their number, the current one, peer access between them, synchronisation."""

from __future__ import annotations

import functools

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import in_cuda_builds, replaced, wrapped
from fakegpu_lab.driver.cost import launching
from fakegpu_lab.driver.cost.work import Work
from fakegpu_lab.driver.torch_cuda.devices.lifecycle import look, poison_fork, require


def get_device_count() -> int:
    """The number of devices, by the CUDA runtime: after this call, a forked process may not use CUDA."""
    poison_fork()
    return count()


def count() -> int:
    """The number of devices, as NVML returns it without a CUDA call."""
    look()
    return len(current.devices())


def get_device() -> int:
    """The current device of this thread."""
    require()
    return current.thread.index


def set_device(index: int) -> None:
    """Make a device current for this thread; raises ``invalid device ordinal``."""
    require()
    if index >= 0:
        current.thread.index = current.device(index).index


def exchange_device(index: int) -> int:
    """Make a device current, and return the previous one; a negative index changes nothing and returns -1."""
    if index < 0:
        return -1
    require()
    before = current.thread.index
    set_device(index)
    return before


def maybe_exchange_device(index: int) -> int:
    """The same as `exchange_device`, but another object, because torch._dynamo registers a handler for each."""
    return exchange_device(index)


def can_device_access_peer(index: int, peer: int) -> bool:
    """Whether one device can read another's memory: within a node they can, if its PCIe tree allows it."""
    require()
    if index == peer or current.machine is None:
        return False
    spec = current.machine.spec
    first, second = current.device(index), current.device(peer)
    if first.slot // spec.gpus_per_node != second.slot // spec.gpus_per_node:
        return False
    node = spec.node
    if node is not None:
        return node.fabric.kind != "pcie" or node.pcie.peer_to_peer
    # Cards without a node are in one host. NVIDIA's driver gives no peer access to GeForce cards, nor between models.
    return first.profile.id == second.profile.id and first.profile.segment in ("datacenter", "workstation")


def synchronize() -> None:
    """Wait until the current device has finished all queued work."""
    require()
    launching.wait(current.device(), "torch.cuda.synchronize")
    device_asserts.check(current.device())


def sleep(cycles: int) -> None:
    """``torch.cuda._sleep``: a kernel of one thread that spins for `cycles` clock cycles."""
    if not isinstance(cycles, int):
        raise RuntimeError("torch.cuda._sleep(): expected 'int'")
    require()
    device = current.device()
    ns = round(cycles / device.profile.core_clock_mhz * 1e3)
    launching.kernel(device, Work(max(ns, device.roofline.floor), 0, 0, device.roofline.one_block))


FUNCTIONS = {
    "_cuda_getDeviceCount": get_device_count,
    "_cuda_getDevice": get_device,
    "_cuda_setDevice": set_device,
    "_cuda_exchangeDevice": exchange_device,
    "_cuda_maybeExchangeDevice": maybe_exchange_device,
    "_cuda_canDeviceAccessPeer": can_device_access_peer,
    "_cuda_synchronize": synchronize,
    "_cuda_sleep": sleep,
    "_cuda_ipc_collect": lambda: None,
}


CHANGES = [
    *in_cuda_builds(FUNCTIONS),
    replaced("torch.cuda._exchange_device", exchange_device, "torch.cuda bound it when it was imported"),
    replaced("torch.cuda._maybe_exchange_device", maybe_exchange_device, "torch.cuda bound it when it was imported"),
    replaced("torch.cuda._cached_device_count", None, "what it has cached is another machine's"),
    wrapped(
        "torch.cuda._check_bf16_tensor_supported",
        lambda old: functools.cache(old.__wrapped__),
        "what it has cached is another machine's",
    ),
    *(
        replaced(f"torch.cuda.{name}", count, "NVIDIA's driver would count the real cards before initialization")
        for name in ("_device_count_nvml", "_raw_device_count_nvml")
    ),
]
