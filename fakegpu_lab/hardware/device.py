"""One simulated GPU: its profile, its memory, its streams, its counters."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from fakegpu_lab.hardware.allocator.caching_allocator import CachingAllocator
from fakegpu_lab.hardware.first_use import FirstUses
from fakegpu_lab.hardware.network.peer_links import PeerLinks
from fakegpu_lab.hardware.time.clock import CALL_NS, LAUNCH_NS, Stream, here, query, record, synchronised
from fakegpu_lab.hardware.time.concurrent_kernels import Timeline
from fakegpu_lab.hardware.time.happens_before import merge
from fakegpu_lab.hardware.time.ledger import Ledger
from fakegpu_lab.hardware.time.roofline import Roofline
from fakegpu_lab.hardware.time.utilization import UtilizationSamples

if TYPE_CHECKING:
    from fakegpu_lab.hardware.allocator.settings import AllocatorSettings
    from fakegpu_lab.hardware.catalogue.profile import GpuProfile
    from fakegpu_lab.hardware.network.links import Links
    from fakegpu_lab.hardware.time.clock import Host, Mark
    from fakegpu_lab.hardware.time.recorder import Recorder


class Device:
    """A GPU of the machine.

    Attributes
    ----------
    index
        Its CUDA ordinal, from 0; -1 if ``CUDA_VISIBLE_DEVICES`` hides it (`Machine.set_visible_devices`).
    slot
        Its place in the machine, from 0: nvidia-smi's index.
    profile
        The kind of card.
    allocator
        Its memory.
    ledger
        Its counters.
    events
        What `live_memory` puts into the numbers of its events while a live display watches.
    first_uses
        What this process has used on it: the CUDA context, libraries.
    links, roofline
        The time of a copy and of a kernel on it.
    load
        Its recent utilization.
    retired
        Empty while the device can be used; afterwards the message that using a tensor on it raises (the machine was
        replaced or switched off, or this is a forked child). The dispatch path tests it at every call.
    default_stream
        Stream 0; `streams` has all that were used, by id.
    copy_engines
        When each of its copy engines is free, ns: to the device, to the host.
    peer_links
        Its links to other cards, which sends between ranks share.
    timeline
        Places kernels in time while several streams are in use or during a recording.
    fault
        The output of a kernel whose assert failed, until a call waits for it; empty once it was reported; None if no
        assert failed.
    workspaces
        cuBLAS workspaces by stream; like PyTorch, the device keeps them until the machine is gone.
    """

    __slots__ = (
        "allocator",
        "copy_engines",
        "default_stream",
        "events",
        "fault",
        "first_uses",
        "index",
        "ledger",
        "links",
        "load",
        "peer_links",
        "profile",
        "retired",
        "roofline",
        "slot",
        "streams",
        "timeline",
        "workspaces",
    )

    def __init__(
        self,
        index: int,
        profile: GpuProfile,
        links: Links,
        settings: AllocatorSettings | None = None,
        launch_ns: int = LAUNCH_NS,
    ) -> None:
        self.index = self.slot = index
        self.events = 0
        self.links = links
        self.profile = profile
        self.retired = ""
        self.fault: tuple[str, ...] | None = None
        self.allocator = CachingAllocator(
            index,
            profile.total_memory_bytes,
            context_bytes=profile.context_bytes,
            settings=settings,
            clock=_AllocatorClock(self),
        )
        self.allocator.device_memory.on_call = self._driver_call
        self.ledger = Ledger()
        self.load = UtilizationSamples()
        self.roofline = Roofline(profile)
        self.timeline = Timeline()
        self.first_uses = FirstUses(self.allocator.device_memory, self.timeline)
        self.workspaces: dict[int, object] = {}
        self.copy_engines = {"h2d": 0, "d2h": 0}
        self.peer_links = PeerLinks()
        self.default_stream = Stream(index, 0, self.ledger, launch_ns)
        self.streams = {0: self.default_stream}

    @property
    def stream(self) -> int:
        """The id of the calling thread's current stream."""
        return here.host.streams[self].id

    def stream_of(self, id_: int, priority: int = 0) -> Stream:
        """The stream with that id, made if it is new. From the second one on, kernels may run side by side."""
        stream = self.streams.get(id_)
        if stream is None:
            default = self.default_stream
            stream = self.streams[id_] = Stream(self.index, id_, self.ledger, default.overhead, priority)
            if len(self.streams) == 2:
                self.timeline.several = True
                self._mark_several()
                self.timeline.since, self.timeline.until = here.host.now, default.end
                self.timeline.occupy(default, here.host.now, default.end)
                default.watch = self.timeline
            stream.watch = self.timeline
        return stream

    def record_to(self, recorder: Recorder | None) -> None:
        """Report everything from now on to `recorder`; None ends that."""
        self.timeline.recorder = recorder
        self._mark_several()
        watched = recorder is not None or len(self.streams) > 1
        for stream in self.streams.values():
            if stream.capture is None:
                stream.watch = self.timeline if watched else None

    def hold(self, host: Host, until: int, why: str) -> None:
        """Let a host thread wait for this device until a time; the waiting call has a cost of its own."""
        self.first_uses.context()
        recorder = self.timeline.recorder
        if recorder is not None:
            recorder.wait(host, self.index, until, why)
        host.wait(until)
        host.now += CALL_NS
        if host.now >= self.load.due:
            self.load.note(host.now, self.ran(host.now))

    def _mark_several(self) -> None:
        """Set `several` of all recorders once several streams are in use."""
        recorder = self.timeline.recorder
        while recorder is not None and self.timeline.several:
            recorder.several = True
            recorder = recorder.outer

    @property
    def end(self) -> int:
        """The time at which all queued work is done, ns."""
        return max(stream.end for stream in self.streams.values())

    @property
    def busy(self) -> int:
        """Nanoseconds in which at least one kernel ran, or will, of those launched so far."""
        return sum(stream.busy for stream in self.streams.values()) - self.timeline.overlap

    def ran(self, now: int) -> int:
        """Nanoseconds of kernels run by `now`: of all launched kernels, without those still queued."""
        ahead = max((stream.end - now for stream in list(self.streams.values())), default=0)
        return max(0, self.busy - max(0, ahead))

    def utilization(self, now: int) -> float:
        """The fraction of the last sample period in which a kernel ran, 0 to 1: nvidia-smi's GPU-Util."""
        return self.load.busy(now, self.ran(now))

    @property
    def in_use(self) -> bool:
        """Whether this process has used it, and so has a CUDA context on it."""
        return self.ledger.kernels > 0 or self.allocator.max_reserved_bytes > 0

    def _driver_call(self, name: str, nbytes: int) -> None:
        self.first_uses.context()
        if name in ("free", "unmap"):  # cudaFree waits for the device
            synchronised(here.host, list(self.streams.values()))
            here.host.wait(self.end)

    @property
    def uuid(self) -> uuid.UUID:
        """The UUID, made from the card and its place, so that it is the same in every run."""
        return uuid.uuid5(uuid.NAMESPACE_DNS, f"{self.profile.id}.{self.slot}.fakegpu-lab")

    @property
    def prefixed_uuid(self) -> str:
        """The UUID with the driver's prefix: ``GPU-…``, or ``MIG-…`` for a slice of a card."""
        return f"{'MIG' if ' MIG ' in self.profile.name else 'GPU'}-{self.uuid}"

    def set_ordinal(self, index: int) -> None:
        """Change the CUDA ordinal; only before the device is used."""
        self.index = self.allocator.device = self.default_stream.device = index

    def __repr__(self) -> str:
        return f"<Device cuda:{self.index} {self.profile.name}>"


class _AllocatorClock:
    """The device's streams, as the allocator needs them: see `StreamClock`."""

    __slots__ = ("_device",)

    def __init__(self, device: Device) -> None:
        self._device = device

    def record(self, stream: int) -> Mark:
        return record(here.host, self._device.stream_of(stream))

    def passed(self, stream: int, mark: Mark) -> bool:
        return query(here.host, mark)

    def wait(self, stream: int, mark: Mark) -> None:
        merge(here.host.seen, mark.seen)
        here.host.wait(mark.time)
