"""One of the two recordings that are compared: its devices, its steps, and where their time went."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from fakegpu_lab.comparison import accounting
from fakegpu_lab.comparison.alignment import HEAVY, key_of, op_of
from fakegpu_lab.comparison.steps import steps
from fakegpu_lab.recording_views import spans
from fakegpu_lab.recording_views.kernel_classes import class_of

if TYPE_CHECKING:
    from fakegpu_lab.comparison.accounting import Slice
    from fakegpu_lab.hardware.time.records import Kernel, Transfer
    from fakegpu_lab.recording_views.recorded import Recorded


class Side:
    """A recording, as a comparison reads it.

    Parameters
    ----------
    recorded
        The recording.
    label
        What it is called.
    """

    def __init__(self, recorded: Recorded, label: str) -> None:
        self.recorded = recorded
        self.label = label

    @property
    def elapsed_ns(self) -> int:
        """From the start to the end."""
        return self.recorded.ended_ns - self.recorded.began_ns

    @cached_property
    def devices(self) -> list[int]:
        """The ordinals of the devices on which something ran."""
        recorded = self.recorded
        used = {record.device for record in (*recorded.kernels, *recorded.transfers, *recorded.collectives)}
        return sorted(used)

    @cached_property
    def slices(self) -> dict[int, list[Slice]]:
        """By device, all of its time."""
        actions = accounting.actions_of(self.recorded)
        return {device: accounting.slices(self.recorded, device, actions) for device in self.devices}

    @cached_property
    def sums(self) -> dict[int, dict[str, int]]:
        """By device, nanoseconds by kind of slice, which add up to `elapsed_ns`."""
        return {device: accounting.sums(several) for device, several in self.slices.items()}

    @cached_property
    def means(self) -> dict[str, float]:
        """Nanoseconds by kind of slice: the mean of the devices."""
        return {kind: sum(each[kind] for each in self.sums.values()) / len(self.sums) for kind in accounting.KINDS}

    @cached_property
    def kernels(self) -> dict[int, list[Kernel]]:
        """By device, in the order of their start."""
        found: dict[int, list[Kernel]] = {device: [] for device in self.devices}
        for kernel in sorted(self.recorded.kernels, key=lambda kernel: (kernel.start_ns, kernel.correlation)):
            found[kernel.device].append(kernel)
        return found

    @cached_property
    def cards(self) -> Counter[str]:
        """The names of the devices' models."""
        names = self.recorded.cards
        return Counter(names.get(device, f"cuda:{device}") for device in self.devices)

    @property
    def host(self) -> str:
        """The name of a simulated host's processor; a real one's is not recorded."""
        machine = self.recorded.machine
        return machine.host.name if machine is not None else "that of the recorded machine"

    @cached_property
    def cuts(self) -> list[int]:
        """Where the steps of the first device's kernels begin and end, as places among them; two if there is one step.

        A step ends with its optimizer. Without one, it is what the kernels repeat from the first to the last.
        """
        kernels = self.kernels[self.devices[0]]
        ends = [
            place + 1
            for place, (one, after) in enumerate(pairwise([*kernels, None]))
            if one is not None and one.phase == "optimizer" and (after is None or after.phase != "optimizer")
        ]
        if len(ends) > 1:
            return [0, *ends[:-1], len(kernels)]
        count = steps(self._keys)
        return [len(kernels) * place // count for place in range(count + 1)]

    @cached_property
    def _keys(self) -> list[tuple[str, str, str]]:
        return [key_of(kernel) for kernel in self.kernels[self.devices[0]]] if self.devices else []

    def cut_like(self, other: Side) -> None:
        """If no steps are recognized here: take as many as another recording has, if the kernels repeat so often.

        A step that is one kernel is none, unless it is what became of a step of several.
        """
        count, length = other.steps, len(self._keys)
        if self.steps == 1 < count and length and length % count == 0:
            each = length // count
            if self._keys[:each] * count == self._keys:
                self.cuts = list(range(0, length + 1, each))

    @property
    def steps(self) -> int:
        """How many times it did the same; 1 if no step is recognized."""
        return len(self.cuts) - 1

    @cached_property
    def flops(self) -> float:
        """Floating-point operations of all kernels; the mean of the devices."""
        return sum(kernel.flops for kernel in self.recorded.kernels) / len(self.devices)

    @cached_property
    def heavy_flops(self) -> float:
        """Those of products, convolutions and attention alone, which no compiler merges with others."""
        heavy = (kernel.flops for kernel in self.recorded.kernels if class_of(op_of(kernel)) in HEAVY)
        return sum(heavy) / len(self.devices)

    @cached_property
    def _launched(self) -> Counter[tuple[str, int]]:
        """How many kernels each launch started."""
        return Counter((kernel.thread, kernel.launched_ns) for kernel in self.recorded.kernels)

    @property
    def launches(self) -> int:
        """How many times the host launched kernels; one launch of a CUDA graph starts many."""
        return len(self._launched)

    @property
    def in_graphs(self) -> int:
        """How many kernels were launched together with others."""
        return sum(count for count in self._launched.values() if count > 1)

    @cached_property
    def copied(self) -> dict[str, list[Transfer]]:
        """Copies by their kind: h2d, d2h, p2p."""
        found: dict[str, list[Transfer]] = defaultdict(list)
        for copy in self.recorded.transfers:
            found[copy.kind].append(copy)
        return found

    @cached_property
    def communication_ns(self) -> float:
        """How long bytes moved in collectives, also behind kernels; the mean of the devices."""
        parts = self.recorded.collectives
        moving = (
            spans.merged((part.joined_ns, part.end_ns) for part in parts if part.device == device)
            for device in self.devices
        )
        return sum(map(spans.length, moving)) / len(self.devices)

    @property
    def simulated(self) -> bool:
        """Whether the times are those of a simulation, also if they were read from a file."""
        return self.recorded.simulated

    @property
    def all_flops(self) -> int | None:
        """Floating-point operations of all kernels; None if they are unknown, as in recordings of real cards."""
        return sum(kernel.flops for kernel in self.recorded.kernels) or (0 if self.simulated else None)

    @property
    def peak_memory(self) -> int | None:
        """The most bytes that tensors held, on the device that held the most; None if unknown."""
        known = self.recorded.machine is not None or self.recorded.allocations or self.recorded.held_before
        peak = getattr(self.recorded, "peak_memory", None)
        return max(map(peak, self.devices)) if known and peak is not None else None

    @property
    def first_use_ns(self) -> int:
        """What first uses took the thread that spent most on them; it is not on the recording's axis."""
        by_thread: Counter[str] = Counter()
        for use in getattr(self.recorded, "first_uses", ()):
            by_thread[use.thread] += use.ns
        return max(by_thread.values(), default=0)
