"""Simulated time: host threads that launch, streams that queue, events that order them.

Every time is a whole number of nanoseconds since the machine was enabled. Nothing reads the wall clock: a host thread's
clock moves only by the cost of its calls and by waiting, so the same program gives the same times on every laptop.

>>> from fakegpu_lab.hardware.time.ledger import Ledger
>>> host, stream = Host(), Stream(0, 0, Ledger(), overhead=5_000)
>>> launch(host, stream, 20_000)
>>> launch(host, stream, 20_000)
>>> host.now, stream.end  # after two launches the first kernel is still running
(10000, 45000)
>>> host.wait(stream.end)
>>> host.now
45000

`launch` is on the path of every simulated op: what only some programs need (several streams on one card, a recording)
is behind one attribute, `Stream.watch`.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any, Protocol

from fakegpu_lab.hardware.time.happens_before import merge

if TYPE_CHECKING:
    from fakegpu_lab.hardware.time.ledger import Ledger

CALL_NS = 1_000
"""The cost of a call to the CUDA runtime that launches nothing: recording, querying or awaiting an event."""


LAUNCH_NS = 5_000
"""A launch on a host of which nothing is known."""


class Watch(Protocol):
    """Places kernels in time when `launch` alone cannot; see `Timeline`."""

    def kernel(self, host: Host, stream: Stream, ns: int, share: float, flops: int, nbytes: int) -> None:
        """Place a kernel of `ns` nanoseconds on a `share` of the card, launched at ``host.now``."""


class Stream:
    """One queue of a device: work launched on it runs in order.

    Attributes
    ----------
    device, id
        The device's ordinal, and PyTorch's stream id; 0 is the default stream.
    end
        When all queued work is done, ns. Work launched next starts no earlier.
    busy
        Nanoseconds of kernels run on it.
    overhead
        Host nanoseconds for a launch.
    priority
        0 is the lowest, -3 the highest.
    seen
        How far other streams are known to have come (`happens_before`).
    watch
        Places its kernels instead of `launch`; None if `launch` does.
    capture
        The driver's graph that is being captured on it: kernels are noted for later and do not run. Else None.
    """

    __slots__ = (
        "__weakref__", "busy", "capture", "device", "end", "id", "ledger", "overhead", "priority", "seen", "watch",
    )  # fmt: skip

    def __init__(self, device: int, id_: int, ledger: Ledger, overhead: int, priority: int = 0) -> None:
        self.device = device
        self.id = id_
        self.ledger = ledger
        self.overhead = overhead
        self.priority = priority
        self.end = 0
        self.busy = 0
        self.seen: dict[Any, int] = {}
        self.watch: Watch | None = None
        self.capture: Any = None

    def __repr__(self) -> str:
        return f"<Stream {self.id}, done at {self.end / 1e3:.3f} µs>"


class CurrentStreams(dict[Any, Stream]):
    """A thread's current stream on each device; the default stream if none was set."""

    __slots__ = ()

    def __missing__(self, device: Any) -> Stream:
        stream: Stream = device.default_stream
        self[device] = stream
        return stream


class Host:
    """A host thread: its clock, its current streams, and the op that it runs.

    Attributes
    ----------
    now
        Its time, ns.
    streams
        Its current stream on each device.
    seen
        How far streams are known to have come (`happens_before`).
    op
        The running op, as the driver represents it, during a recording; else None.
    dispatched
        When the running op reached C++, during a recording, ns; 0 if nothing is known.
    note
        The index of that op's `Note` in the recorder's notes, once it has been looked up; else None.
    live
        What the running op allocates for, while a live display watches (`live_memory`).
    took
        Whether the running op has allocated memory, during a recording.
    first_uses
        Nanoseconds that it has spent on first uses (`first_use`). They are not in `now`, so that they make no gaps in
        recordings and displays; a program's clocks show both.
    """

    __slots__ = (
        "__weakref__",
        "dispatched",
        "first_uses",
        "live",
        "name",
        "note",
        "now",
        "op",
        "seen",
        "streams",
        "took",
    )

    def __init__(self, now: int = 0, name: str = "") -> None:
        self.now = now
        self.name = name
        self.streams = CurrentStreams()
        self.op: Any = None
        self.note: int | None = None
        self.live: Any = None
        self.took = False
        self.dispatched = 0
        self.first_uses = 0
        self.seen: dict[Any, int] = {}

    @property
    def clock(self) -> int:
        """What the program's clocks show, ns."""
        return self.now + self.first_uses

    def wait(self, until: int) -> None:
        """Let the thread wait until a time; do nothing if that is past."""
        if until > self.now:
            self.now = until

    def place_all(self, device: Any) -> None:
        """Let all that the thread has queued on a device get its place in time: only ranks wait for others there."""

    def work(self, ns: int) -> None:
        """Let the thread spend time outside CUDA."""
        self.now += ns


class _Here(threading.local):
    """The calling thread's `Host`. A thread starts with the time and the knowledge of the thread that started it."""

    def __init__(self) -> None:
        thread = threading.current_thread()
        now, first_uses, seen = vars(thread).get("_fakegpu_lab_parent", (0, 0, {}))
        self.host = Host(now, thread.name)
        self.host.first_uses = first_uses
        self.host.seen.update(seen)
        vars(thread)["_fakegpu_lab_host"] = self.host  # for the thread that joins it
        _hosts.add(self.host)


_hosts: weakref.WeakSet[Host] = weakref.WeakSet()
here = _Here()


def reset() -> None:
    """Return every thread to time 0 and the default streams."""
    for host in list(_hosts):
        host.now = host.first_uses = 0
        host.op = host.note = None
        host.seen.clear()
        host.streams.clear()


def latest() -> int:
    """The time of the host thread that is furthest ahead, ns: the time for an outside observer."""
    return max((host.now for host in _hosts.copy()), default=0)


def launch(host: Host, stream: Stream, ns: int, share: float = 1.0, flops: int = 0, nbytes: int = 0) -> None:
    """Queue a kernel.

    The host pays for the launch; the kernel starts when the launch has reached the card and the stream is free. (A real
    driver's queue holds about a thousand launches, then the host waits; this one has no limit.)

    Parameters
    ----------
    ns
        How long it runs.
    share
        The part of the card's multiprocessors that it fills; only kernels whose shares fit together run at once.
    flops, nbytes
        Floating-point operations, and bytes read and written: for a recorder.
    """
    host.now = now = host.now + stream.overhead
    stream.ledger.kernels += 1
    watch = stream.watch
    if watch is not None:
        watch.kernel(host, stream, ns, share, flops, nbytes)
        return
    start = stream.end
    if start < now:
        start = now
    stream.end = start + ns
    stream.busy += ns


class Mark:
    """A point in a stream's queue, for an event: `time` is when the stream reaches it, ns.

    `seen` is how far other streams are known to have come by then; `first_uses` is the host's, at the call.
    """

    __slots__ = ("first_uses", "seen", "stream", "time")

    def __init__(self, stream: Stream, time: int) -> None:
        self.stream = stream
        self.time = time
        self.first_uses = 0
        self.seen: dict[Any, int] = {}


def record(host: Host, stream: Stream) -> Mark:
    """Mark the end of what is queued on a stream now (cudaEventRecord)."""
    host.now += CALL_NS
    mark = Mark(stream, max(stream.end, host.now))
    mark.first_uses = host.first_uses
    # The mark covers all of the stream so far, and everything that the stream had waited for.
    merge(stream.seen, host.seen)
    mark.seen = {**stream.seen, stream: mark.time}
    return mark


def query(host: Host, mark: Mark) -> bool:
    """Whether the stream has reached the mark (cudaEventQuery, without its cost); if so, the host has synchronised."""
    if mark.time > host.now:
        return False
    merge(host.seen, mark.seen)
    return True


def await_mark(host: Host, stream: Stream, mark: Mark) -> None:
    """Let work queued on `stream` from now on start after the mark (cudaStreamWaitEvent)."""
    host.now += CALL_NS
    merge(stream.seen, mark.seen)
    if mark.time > stream.end:
        stream.end = mark.time


def synchronised(host: Host, streams: list[Stream]) -> None:
    """Note that a host thread has waited for all work queued on some streams."""
    for stream in streams:
        merge(host.seen, stream.seen)
        host.seen[stream] = max(host.seen.get(stream, -1), stream.end)
