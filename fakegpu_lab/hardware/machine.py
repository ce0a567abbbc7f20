"""The simulated machine: its devices, and the specification that it was made from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fakegpu_lab.hardware.catalogue.visible_devices import visible
from fakegpu_lab.hardware.device import Device
from fakegpu_lab.hardware.network.fabric import Fabric
from fakegpu_lab.hardware.network.links import Links
from fakegpu_lab.hardware.snapshot import DeviceSnapshot, Snapshot
from fakegpu_lab.hardware.time.clock import here
from fakegpu_lab.hardware.transfers.pinned_memory import PinnedMemory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fakegpu_lab.hardware.allocator.settings import AllocatorSettings
    from fakegpu_lab.hardware.catalogue.spec import MachineSpec
    from fakegpu_lab.hardware.memory_categories import Categories

Compute = Literal["real", "meta"]
Clock = Literal["real", "simulated"]


class Machine:
    """A machine with simulated GPUs.

    Parameters
    ----------
    spec
        The cards, in the order of their ordinals.
    compute
        ``"real"``: kernels compute on the CPU. ``"meta"``: shapes and memory only.
    settings
        The allocator's settings (``PYTORCH_CUDA_ALLOC_CONF``).
    clock
        What the program's own code reads from `time`: the computer's clock, or the simulated one.

    Attributes
    ----------
    cards
        All its GPUs, by their place in the machine.
    devices
        Those that CUDA sees, by their ordinals.
    host
        How long PyTorch's own work takes.
    pinned_memory
        Of the host. Simplified: ranks of a notebook share it.
    """

    def __init__(
        self,
        spec: MachineSpec,
        compute: Compute = "real",
        settings: AllocatorSettings | None = None,
        clock: Clock = "real",
    ) -> None:
        self.spec = spec
        self.compute = compute
        self.clock = clock
        self.links = Links(spec)
        self.fabric = Fabric(spec)
        self.host = spec.host
        launch = round(self.host.launch_us * 1e3)
        self.cards = [Device(index, profile, self.links, settings, launch) for index, profile in enumerate(spec.gpus)]
        self.devices = list(self.cards)
        self.pinned_memory = PinnedMemory()

    def set_visible_devices(self, variable: str | None) -> None:
        """Make the cards that ``CUDA_VISIBLE_DEVICES`` names the CUDA devices; only before CUDA is initialised.

        Parameters
        ----------
        variable
            Its value; None if it is unset.
        """
        uuids = [card.prefixed_uuid for card in self.cards]
        self.devices = [self.cards[slot] for slot in visible(variable, uuids)]
        for card in self.cards:
            card.set_ordinal(-1)
        for index, device in enumerate(self.devices):
            device.set_ordinal(index)

    def snapshot(self, categories: Mapping[Device, Categories] | None = None, now: int | None = None) -> Snapshot:
        """Return the machine's state as data, with the categories of its memory if they are given.

        `now` is the simulated time, ns; by default, the calling thread's.
        """
        return Snapshot(
            spec=self.spec.text,
            compute=self.compute,
            now_ns=here.host.now if now is None else now,
            devices=tuple(DeviceSnapshot.of(card, (categories or {}).get(card)) for card in self.cards),
            pinned=self.pinned_memory.used_bytes,
            pinned_reserved=self.pinned_memory.reserved_bytes,
        )

    def keep_host_busy(self, ns: int, name: str) -> None:
        """Let the calling thread spend time outside CUDA; a recording shows it under `name`."""
        host = here.host
        began = host.now
        host.work(ns)
        recorder = self.devices[0].timeline.recorder if self.devices else None
        if recorder is not None:
            recorder.worked(host, began, name)

    @property
    def failed(self) -> bool:
        """Whether a kernel has failed an assert, or left its memory: its device cannot be used any more."""
        return any(device.fault is not None for device in self.cards)

    def retire(self, why: str) -> None:
        """Make every later use of a tensor of this machine raise an error with the message `why`."""
        for device in self.cards:
            device.retired = why
            device.fault = None

    def __repr__(self) -> str:
        return f"<Machine {self.spec.text}: {', '.join(d.profile.name for d in self.devices)}>"
