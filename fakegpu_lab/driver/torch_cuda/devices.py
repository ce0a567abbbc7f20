"""torch.cuda's devices: their number, the current one, their properties; initializing CUDA, and forked processes.

torch initializes CUDA at its first real use (`torch.cuda._lazy_init`), and then runs the calls queued before, such as
seeds. A process forked after the first CUDA call may not use CUDA (`forked_child` of torch/csrc/cuda/Module.cpp).

``torch.device(1)``, an index alone, means a CUDA device, where C++ would make one of PrivateUse1. torch.device is a C
class that cannot be subclassed: a stand-in for the class makes the devices, which are objects of the C class; it equals
that class and has its hash, so that tables find either by the other.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.jit.annotations

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base import cuda_messages, current
from fakegpu_lab.driver.base.changes import added, begun, in_cuda_builds, replaced, wrapped
from fakegpu_lab.driver.base.privateuse1 import CUDA_DEVICES, MAX_DEVICES
from fakegpu_lab.driver.cost import launching
from fakegpu_lab.driver.cost.work import Work
from fakegpu_lab.driver.random import generators
from fakegpu_lab.hardware.catalogue.visible_devices import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.hardware.device import Device


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


BAD_FORK = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' "
    "start method"
)

_CUDA = 1
"""``c10::DeviceType::CUDA``."""
_poisoned = False
_in_bad_fork = False


def poison_fork() -> None:
    """Remember that CUDA was called, so that a process forked from now on may not use it."""
    global _poisoned
    _poisoned = True


def _forked_child() -> None:
    global _in_bad_fork
    if _poisoned and current.machine is not None:
        _in_bad_fork = True
        current.ready = False
        current.machine.retire(BAD_FORK)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forked_child)


def look() -> None:
    """Read ``CUDA_VISIBLE_DEVICES``; changes to it have no effect after CUDA is initialised."""
    if current.machine is not None and not current.ready:
        current.machine.set_visible_devices(os.environ.get(VARIABLE))


def init() -> None:
    """``_cuda_init``: make the machine usable."""
    if _in_bad_fork:
        raise RuntimeError(BAD_FORK)
    look()
    if not current.devices():
        raise cuda_messages.no_gpus()
    poison_fork()
    torch.cuda.default_generators = tuple(generators.generator(device.index) for device in current.devices())  # type: ignore[assignment]
    device_asserts.initialise()
    current.ready = True


def require() -> None:
    """Initialise CUDA if it is not, like C++'s functions that need a context."""
    if not current.ready:
        torch.cuda._lazy_init()  # type: ignore[no-untyped-call]


def forget_in_cpp() -> None:
    """Make C++ call `torch.cuda._lazy_init` again at its next use of CUDA, which then raises that there is none.

    C++ remembers that CUDA was initialised; the function that resets this is exported
    (torch/csrc/utils/device_lazy_init.h). Where its mangled name differs (Windows), the error is C++'s own: PyTorch is
    not linked with support for CUDA.
    """
    suffix = ".dylib" if sys.platform == "darwin" else ".so"
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.PyDLL(str(Path(torch.__file__).parent / "lib" / f"libtorch_python{suffix}"))
        function = library["_ZN5torch5utils24set_requires_device_initEN3c1010DeviceTypeEb"]
        function.argtypes, function.restype = (ctypes.c_int8, ctypes.c_bool), None
        function(_CUDA, True)


def _not_initialized() -> Callable[[], None]:
    global _poisoned, _in_bad_fork
    _poisoned = _in_bad_fork = False
    current.ready = False
    return forget_in_cpp


def _copy_of(seeds: Any) -> Any:
    copy = type(seeds)()
    vars(copy).update(vars(seeds))
    return copy


_UNUSED = "as in a CUDA build that has not been used yet"
_COPIED = (
    "a copy, so that calls queued while the machine is enabled are dropped with it; calls queued before "
    "(`torch.manual_seed` at the top of a notebook) take effect"
)


_MIB = 1024 * 1024
_BUSES = (0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD)
"""The PCI buses of a DGX A100's GPUs."""


class CudaUuid:
    """``_CUuuid``: the 16 bytes of a device's UUID."""

    def __init__(self, device: Device) -> None:
        self._uuid = device.uuid

    @property
    def bytes(self) -> list[int]:
        """The bytes as a list, as pybind11 converts a vector."""
        return list(self._uuid.bytes)

    def __str__(self) -> str:
        return str(self._uuid)


class CudaDeviceProperties:
    """``torch._C._CudaDeviceProperties`` (registerCudaDeviceProperties in torch/csrc/cuda/Module.cpp).

    Sizes in bytes, clock rates in kHz, the bus width in bits.
    """

    def __init__(self, device: Device) -> None:
        profile = device.profile
        self.name = profile.name
        self.major, self.minor = profile.compute_capability
        self.total_memory = profile.total_memory_bytes
        self.multi_processor_count = profile.sm_count
        self.is_integrated = int(profile.segment == "embedded")
        self.is_multi_gpu_board = 0
        self.max_threads_per_multi_processor = profile.max_threads_per_sm
        self.max_threads_per_block = 1024  # for every compute capability since 2.0
        self.warp_size = profile.warp_size
        self.regs_per_multiprocessor = profile.regs_per_sm
        self.shared_memory_per_block = profile.shared_mem_per_block
        self.shared_memory_per_block_optin = profile.shared_mem_per_block_optin
        self.shared_memory_per_multiprocessor = profile.shared_mem_per_sm
        self.L2_cache_size = profile.l2_bytes
        self.clock_rate = round(profile.core_clock_mhz * 1000)
        self.memory_clock_rate = round(profile.memory_clock_mhz * 1000)
        self.memory_bus_width = profile.memory_bus_bits
        self.gcnArchName = profile.name  # AMD's; CUDA builds repeat the name
        self.uuid = CudaUuid(device)
        self.pci_bus_id = _BUSES[device.slot % 8]
        self.pci_device_id = 0
        self.pci_domain_id = device.slot // 8

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // _MIB}MB, multi_processor_count={self.multi_processor_count}, "
            f"uuid={self.uuid}, pci_bus_id={self.pci_bus_id}, pci_device_id={self.pci_device_id}, "
            f"pci_domain_id={self.pci_domain_id}, L2_cache_size={self.L2_cache_size // _MIB}MB)"
        )


CudaDeviceProperties.__name__ = CudaDeviceProperties.__qualname__ = "_CudaDeviceProperties"
CudaDeviceProperties.__module__ = CudaUuid.__module__ = "torch._C"
CudaUuid.__name__ = CudaUuid.__qualname__ = "_CUuuid"

_known: dict[int, CudaDeviceProperties] = {}


def get_device_properties(index: int) -> CudaDeviceProperties:
    """The properties of a device; always the same object, as in CUDA."""
    if index not in _known:
        _known[index] = CudaDeviceProperties(current.device(index))
    return _known[index]


_device = torch.device
_try_ann_to_type: Any = torch.jit.annotations.try_ann_to_type


class _Meta(type):
    """The class of the stand-in."""

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.device:
        if len(args) == 1 and not kwargs and args[0].__class__ is int:
            return by_index(args[0])
        return _device(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _device)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is cls or issubclass(subclass, _device)

    def __getattr__(cls, name: str) -> Any:
        return getattr(_device, name)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is _device

    def __hash__(cls) -> int:
        return hash(_device)


def by_index(index: int) -> torch.device:
    """``torch.device(index)`` (python_arg_parser.h, toDevice); a device that does not exist fails when it is used."""
    if index < 0:
        raise RuntimeError("Device index must not be negative")
    return CUDA_DEVICES[index] if index < MAX_DEVICES else _device("cuda", index)


_FACADE: Any = _Meta("device", (), {"__module__": "torch", "__doc__": _device.__doc__})


def try_ann_to_type(ann: Any, *args: Any, **kwargs: Any) -> Any:
    """`torch.jit.annotations.try_ann_to_type`, for annotations made before the stand-in was installed."""
    return _try_ann_to_type(torch.device if ann is _device else ann, *args, **kwargs)


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
    "_cuda_init": init,
    "_cuda_isInBadFork": lambda: _in_bad_fork,
    "_cuda_hasPrimaryContext": lambda index: current.ready and 0 <= index < len(current.devices()),
    "_CudaDeviceProperties": CudaDeviceProperties,
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
    begun(_not_initialized, _UNUSED),
    replaced("torch.cuda._is_in_bad_fork", FUNCTIONS["_cuda_isInBadFork"], _UNUSED),
    replaced("torch.cuda._initialized", False, _UNUSED),
    replaced("torch.cuda.default_generators", (), "there are none before initialization"),
    wrapped("torch.cuda._tls", lambda old: threading.local(), _UNUSED),
    wrapped("torch.cuda._queued_calls", list, _COPIED),
    wrapped("torch.cuda._lazy_seed_tracker", _copy_of, _COPIED),
    begun(_known.clear, "another machine's properties"),
    added("torch.cuda._CudaDeviceProperties", CudaDeviceProperties, "C++ adds it at initialization"),
    added("torch.cuda._get_device_properties", get_device_properties, "C++ adds it at initialization"),
    replaced("torch.device", _FACADE, "torch.device('cuda') is a device of this machine"),
    replaced("torch.jit.annotations.try_ann_to_type", try_ann_to_type, "TorchScript knows the stand-in"),
]
