"""The constant facts that NVML reports about a card: its name, its place on the PCI bus, its limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fakegpu_lab.hardware.catalogue.profile import GpuProfile
    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.machine import Machine

MIB = 1024 * 1024
BUSES = (0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD)
"""The PCI buses of a machine's cards: those of the GPUs in a DGX A100."""

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
"""The memory that nvidia-smi reports, in MiB, where it differs from the label: from output that people posted."""


@dataclass(frozen=True)
class Card:
    """A card as NVML describes it.

    Attributes
    ----------
    index
        nvidia-smi's index: the card's place in the machine.
    uuid
        With its prefix, ``GPU-…``.
    bus_id
        ``00000000:07:00.0``: domain, bus, device, function.
    memory, reserved
        Bytes of the framebuffer, and how many of those the driver keeps for itself.
    clock, memory_clock
        The highest clocks, MHz.
    power_limit
        Watts.
    passive
        Whether it has no fan of its own.
    """

    index: int
    name: str
    uuid: str
    architecture: str
    segment: str
    capability: tuple[int, int]
    bus_id: str
    pci_device_id: int
    memory: int
    reserved: int
    clock: int
    memory_clock: int
    power_limit: float
    ecc: bool
    mig: bool
    passive: bool
    hbm: bool
    pcie_generation: int
    pcie_width: int
    host_pcie_generation: int

    @property
    def bus(self) -> int:
        """The PCI bus."""
        return int(self.bus_id[9:11], 16)

    @property
    def domain(self) -> int:
        """The PCI domain."""
        return int(self.bus_id[:8], 16)

    @property
    def pcie_link_generation(self) -> int:
        """The PCI Express generation of its link: the slower of card and slot."""
        return min(self.pcie_generation, self.host_pcie_generation)

    @property
    def ecc_mode(self) -> str | None:
        """Whether ECC is on, as nvidia-smi prints it; None for a card without ECC.

        Workstation cards have it, off until somebody switches it on (Chaos, "ECC State for Nvidia GPUs").
        """
        if self.ecc:
            return "Enabled"
        return "Disabled" if self.segment in ("datacenter", "workstation") else None

    @classmethod
    def of(cls, device: Device, machine: Machine) -> Card:
        """Read a device."""
        profile = device.profile
        memory = framebuffer(profile)
        node = machine.spec.node
        host_generation = node.pcie.generation if node is not None else profile.pcie.generation
        return cls(
            index=device.slot,
            name=profile.name,
            uuid=device.prefixed_uuid,
            architecture=profile.architecture,
            segment=profile.segment,
            capability=profile.compute_capability,
            bus_id=f"{device.slot // 8:08X}:{BUSES[device.slot % 8]:02X}:00.0",
            pci_device_id=profile.pci_device_id << 16 | 0x10DE,
            memory=memory,
            reserved=memory - profile.total_memory_bytes,
            clock=round(profile.core_clock_mhz),
            memory_clock=round(profile.memory_clock_mhz),
            power_limit=profile.power_limit_w,
            ecc=profile.ecc,
            mig=profile.segment == "datacenter" and profile.id.partition("-")[0] in _WITH_MIG,
            passive=profile.segment in ("datacenter", "embedded") and profile.id not in ("a10", "a10g"),
            hbm=profile.memory_bus_bits >= 2048,
            pcie_generation=profile.pcie.generation,
            pcie_width=profile.pcie.lanes,
            host_pcie_generation=host_generation,
        )

    @classmethod
    def read(cls, facts: dict[str, Any]) -> Card:
        """Read a card from another process's document."""
        return cls(**{**facts, "capability": tuple(facts["capability"])})


def framebuffer(profile: GpuProfile) -> int:
    """The bytes of memory that NVML reports, the driver's part included. A limit (``memory=``) is all there is."""
    label = _FRAMEBUFFER_MIB.get(profile.id, 0) * MIB or profile.memory_bytes
    if profile.total_memory_bytes < 0.85 * profile.memory_bytes or profile.total_memory_bytes > label:
        return profile.total_memory_bytes
    return label
