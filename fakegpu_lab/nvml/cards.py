"""What the driver says of a card that does not change: its name, its place on the bus, its limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fakegpu_lab.hardware.catalogue.profile import GpuProfile
    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.machine import Machine

MIB = 1024 * 1024
BUSES = (0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD)
"""PCI buses of a machine's cards: where a DGX A100 has its GPUs."""

_WITH_MIG = ("a100", "a30", "h100", "h200", "b100", "b200", "b300", "gh200", "gb200")
_FRAMEBUFFER_MIB = {
    "a10": 23028, "a10g": 23028, "a16": 15356, "a2": 15356, "a40": 46068, "b200": 183359, "h100": 81559,
    "h100-nvl": 95830, "h100-pcie": 81559, "h200": 143771, "l4": 23034, "l40": 46068, "l40s": 46068,
    "rtx-4000-ada": 20475,
    "rtx-5000-ada": 32760, "rtx-6000-ada": 49140, "rtx-a4000": 16376, "rtx-a5000": 24564, "rtx-a6000": 49140,
    "rtx-pro-6000-blackwell": 97887, "rtx4060": 8188, "rtx4060ti": 8188, "rtx4070": 12282, "rtx4070-super": 12282,
    "rtx4070ti": 12282, "rtx4070ti-super": 16376, "rtx4080": 16376, "rtx4080-super": 16376, "rtx4090": 24564,
    "rtx5060ti": 16311, "rtx5070": 12227, "rtx5070ti": 16303, "rtx5080": 16303, "rtx5090": 32607, "t4": 15360,
}  # fmt: skip
"""The memory that nvidia-smi tells, where it is not the label's, in MiB: from people's reports of its output."""


@dataclass(frozen=True)
class Card:
    """A card as NVML describes it.

    Attributes
    ----------
    index
        As nvidia-smi counts: its place in the machine.
    uuid
        With its prefix, ``GPU-…``.
    bus_id
        ``00000000:07:00.0``: domain, bus, device, function.
    memory, reserved
        Bytes of the framebuffer, and of those what the driver keeps for itself.
    clock, memory_clock
        Highest, MHz.
    power_limit
        Watts.
    links, link_version
        NVLink ports and their generation; 0 where there are none.
    passive
        Without a fan of its own.
    """

    index: int
    id: str
    name: str
    uuid: str
    brand: str
    architecture: str
    segment: str
    capability: tuple[int, int]
    bus_id: str
    pci_device_id: int
    memory: int
    reserved: int
    memory_bus_bits: int
    clock: int
    memory_clock: int
    power_limit: float
    sm_count: int
    cores: int
    ecc: bool
    mig: bool
    passive: bool
    hbm: bool
    pcie_generation: int
    pcie_width: int
    host_pcie_generation: int
    links: int = 0
    link_version: int = 0

    @property
    def bus(self) -> int:
        """The PCI bus."""
        return int(self.bus_id[9:11], 16)

    @property
    def domain(self) -> int:
        """The PCI domain."""
        return int(self.bus_id[:8], 16)

    @classmethod
    def of(cls, device: Device, machine: Machine) -> Card:
        """Describe a device."""
        profile = device.profile
        memory = framebuffer(profile)
        node = machine.spec.node
        host_generation = node.pcie.generation if node is not None else profile.pcie.generation
        ports = profile.nvlink
        linked = ports is not None and len(machine.cards) > 1
        return cls(
            index=device.slot,
            id=profile.id,
            name=profile.name,
            uuid=f"{'MIG' if ' MIG ' in profile.name else 'GPU'}-{device.uuid}",
            brand=_brand(profile),
            architecture=profile.architecture,
            segment=profile.segment,
            capability=profile.compute_capability,
            bus_id=f"{device.slot // 8:08X}:{BUSES[device.slot % 8]:02X}:00.0",
            pci_device_id=profile.pci_device_id << 16 | 0x10DE,
            memory=memory,
            reserved=memory - profile.total_memory_bytes,
            memory_bus_bits=profile.memory_bus_bits,
            clock=round(profile.core_clock_mhz),
            memory_clock=round(profile.memory_clock_mhz),
            power_limit=profile.power_limit_w,
            sm_count=profile.sm_count,
            cores=profile.sm_count * _lanes(profile),
            ecc=profile.ecc,
            mig=profile.segment == "datacenter" and profile.id.partition("-")[0] in _WITH_MIG,
            passive=profile.segment in ("datacenter", "embedded") and profile.id not in ("a10", "a10g"),
            hbm=profile.memory_bus_bits >= 2048,
            pcie_generation=profile.pcie.generation,
            pcie_width=profile.pcie.lanes,
            host_pcie_generation=host_generation,
            links=ports.links if ports is not None and linked else 0,
            link_version=ports.generation if ports is not None and linked else 0,
        )

    @classmethod
    def read(cls, told: dict[str, Any]) -> Card:
        """From what another process told."""
        return cls(**{**told, "capability": tuple(told["capability"])})


def framebuffer(profile: GpuProfile) -> int:
    """The bytes of memory that NVML tells: with what the driver keeps. A limit (``memory=``) is the whole."""
    label = _FRAMEBUFFER_MIB.get(profile.id, 0) * MIB or profile.memory_bytes
    if profile.total_memory_bytes < 0.85 * profile.memory_bytes or profile.total_memory_bytes > label:
        return profile.total_memory_bytes
    return label


def _brand(profile: GpuProfile) -> str:
    """NVML's product lines, in nvidia-smi's words."""
    name = profile.name
    for word, brand in (("GeForce", "GeForce"), ("TITAN", "Titan"), ("Quadro", "Quadro"), ("Tesla", "Tesla")):
        if word in name:
            return brand
    return "NVIDIA RTX" if "RTX" in name else "NVIDIA"


def _lanes(profile: GpuProfile) -> int:
    """FP32 lanes of a multiprocessor (CUDA C++ Programming Guide, throughput of arithmetic instructions)."""
    return 64 if profile.compute_capability in ((6, 0), (7, 0), (7, 5), (8, 0)) else 128
