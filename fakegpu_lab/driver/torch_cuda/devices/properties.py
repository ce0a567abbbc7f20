"""``torch.cuda.get_device_properties``: the profile's figures, under cudaDeviceProp's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import added, begun, in_cuda_builds

if TYPE_CHECKING:
    from fakegpu_lab.hardware.device import Device

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


FUNCTIONS = {"_CudaDeviceProperties": CudaDeviceProperties}


CHANGES = [
    *in_cuda_builds(FUNCTIONS),
    begun(_known.clear, "another machine's properties"),
    added("torch.cuda._CudaDeviceProperties", CudaDeviceProperties, "C++ adds it at initialization"),
    added("torch.cuda._get_device_properties", get_device_properties, "C++ adds it at initialization"),
]
