"""What Triton takes for CUDA's driver: the target to compile for, the device's limits, loading and launching."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from fakegpu_lab.driver.base import current
from fakegpu_lab.kernels.triton_programs.benchmarking import do_bench
from fakegpu_lab.kernels.triton_programs.launcher import Launcher

if TYPE_CHECKING:
    from typing_extensions import Self


class DeviceNumber(int):
    """An ordinal that is equal to another one only on a card of the same kind: Triton keeps compiled kernels by it."""

    card: str

    def __new__(cls, index: int, card: str) -> Self:
        """Make one."""
        made = super().__new__(cls, index)
        made.card = card
        return made

    def __eq__(self, other: object) -> bool:
        return int.__eq__(self, other) is True and getattr(other, "card", self.card) == self.card

    def __hash__(self) -> int:
        return hash((int(self), self.card))


class Loaded(NamedTuple):
    """A kernel on a device."""

    name: str
    registers: int


_REGISTERS, _FRAME = 0x2F, 0x11
"""Attributes of a kernel in an ELF file's section ``.nv.info``: registers of a thread, bytes of its local memory."""


def resources_of(cubin: bytes) -> tuple[int, int]:
    """The registers of a thread, and the bytes of local memory that it spills to, of a compiled kernel.

    ``cuobjdump --dump-resource-usage`` shows the same numbers; 0 where the file is not as expected.
    """
    found = {_REGISTERS: 0, _FRAME: 0}
    try:
        (table,) = struct.unpack_from("<Q", cubin, 0x28)
        size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
        sections = [struct.unpack_from("<IIQQQQ", cubin, table + size * i) for i in range(count)]
        for name, _, _, _, start, length in sections:
            begin = sections[names][4] + name
            if cubin[begin : cubin.index(b"\0", begin)] != b".nv.info":
                continue
            place = start
            while place < start + length:
                form, attribute, extent = struct.unpack_from("<BBH", cubin, place)
                if attribute in found and form == 4:
                    found[attribute] = struct.unpack_from("<II", cubin, place + 4)[1]
                place += 4 + (extent if form == 4 else 0)
    except (struct.error, ValueError, IndexError):
        pass
    return found[_REGISTERS], found[_FRAME]


class _Utils:
    """The functions of the CUDA driver that Triton calls."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        """The limits of a device."""
        profile = current.device(int(device)).profile
        return {
            "max_shared_mem": profile.shared_mem_per_block_optin,
            "max_num_regs": profile.regs_per_sm,
            "multiprocessor_count": profile.sm_count,
            "warpSize": profile.warp_size,
            "sm_clock_rate": round(profile.core_clock_mhz * 1000),
            "mem_clock_rate": round(profile.memory_clock_mhz * 1000),
            "mem_bus_width": profile.memory_bus_bits,
        }

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[Any, Loaded, int, int, int]:
        """Module, function, registers of a thread, words that it spills, threads of a block at most."""
        registers, spilled = resources_of(kernel)
        limit = current.device(int(device)).profile.regs_per_sm // max(registers, 1) // 32 * 32
        return (name, device), Loaded(name, registers), registers, spilled // 4, min(1024, limit)

    def unload_module(self, module: Any) -> None:
        """Nothing is kept."""


class SimulatedDriver(DriverBase):  # type: ignore[misc]
    """Stands for CUDA's driver."""

    def __init__(self) -> None:
        self.utils = _Utils()
        self.launcher_cls = Launcher

    @classmethod
    def is_active(cls) -> bool:
        """Whether there is a device."""
        return bool(current.devices())

    def map_python_to_cpp_type(self, ty: str) -> str:
        """A type of C++, which only code for a real launcher would need."""
        return ty

    def get_current_device(self) -> DeviceNumber:
        """The current device."""
        device = current.device()
        return DeviceNumber(device.index, device.profile.id)

    def set_current_device(self, device: int) -> None:
        """Change it."""
        torch.cuda.set_device(int(device))

    def get_current_stream(self, device: int) -> int:
        """The current stream; launches look it up again."""
        return current.device(int(device)).stream

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        """The compute capability."""
        return current.device(None if device is None else int(device)).profile.compute_capability

    def get_current_target(self) -> GPUTarget:
        """What to compile for."""
        major, minor = self.get_device_capability()
        return GPUTarget("cuda", major * 10 + minor, 32)

    def get_active_torch_device(self) -> torch.device:
        """The current device, for torch."""
        return torch.device("cuda", int(self.get_current_device()))

    def get_device_interface(self) -> Any:
        """``torch.cuda``."""
        return torch.cuda

    def get_benchmarker(self) -> Any:
        """What the autotuner measures with."""
        return do_bench

    def get_empty_cache_for_benchmark(self) -> None:
        """Nothing: the simulation's L2 is emptied without memory of the host."""

    def clear_cache(self, cache: Any) -> None:
        """Empty L2."""

    def allocate_default_profile_scratch(self, size: int, alignment: int, stream: Any) -> None:
        """Nothing profiles inside kernels."""
