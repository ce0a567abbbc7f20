"""CUDA graphs under capture: their nodes, and the calls that are refused meanwhile.

A kernel launched on a stream under capture becomes a node of the graph and does not run. A call that would have to
wait for such a stream fails and invalidates the capture (CUDA Programming Guide, "Prohibited and Unhandled
Operations").
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from fakegpu_lab.driver.base import cuda_messages, not_simulated
from fakegpu_lab.hardware.allocator.caching_allocator import DeviceOutOfMemory
from fakegpu_lab.hardware.buffer import Buffer
from fakegpu_lab.hardware.time.clock import CALL_NS, Mark, await_mark, here, record
from fakegpu_lab.hardware.time.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fakegpu_lab.hardware.allocator.blocks import PoolId
    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.time.access import Access
    from fakegpu_lab.hardware.time.clock import Host, Stream, Watch
    from fakegpu_lab.hardware.time.records import Note


class Node(NamedTuple):
    """One kernel of a graph, one copy between its device and pinned host memory, or a call.

    Attributes
    ----------
    kind
        ``kernel``, ``h2d``, ``d2h``, or ``call`` for what is not launched like a kernel (a collective).
    ns, share, flops, nbytes
        The cost of a kernel (see `clock.launch`); a copy has only the bytes.
    note
        The op that launched it.
    access
        What a kernel of the user's does to the hardware; else None.
    """

    kind: str
    ns: int
    share: float
    flops: int
    nbytes: int
    note: Note
    access: Access | None = None


class CapturedMark(Mark):
    """An event recorded on a stream under capture: it orders the graph's nodes and has no time.

    `known` says how many nodes of each stream come before it.
    """

    __slots__ = ("capture", "known")

    def __init__(self, stream: Stream, capture: Capture, known: dict[Stream, int]) -> None:
        super().__init__(stream, 0)
        self.capture = capture
        self.known = known


class Capture:
    """A capture in progress; it is the `watch` of its streams.

    Attributes
    ----------
    device, origin, pool
        The device and stream where it began, and its memory pool.
    nodes
        What has been launched so far, in order.
    offsets
        For each generator state, the random numbers that a thread has drawn so far (offset_intragraph_).
    valid
        False after a prohibited call.
    """

    def __init__(self, device: Device, origin: Stream, pool: PoolId, note: Callable[[Host], Note]) -> None:
        self.device = device
        self.origin = origin
        self.pool = pool
        self.note = note
        self.nodes: list[Node] = []
        self.offsets: dict[Any, int] = {}
        self.offset_memory: list[Buffer] = []
        self.valid = True
        self._streams: dict[Stream, tuple[Watch | None, Ledger]] = {}
        self._known: dict[Stream, dict[Stream, int]] = {}
        self.join(origin)

    def join(self, stream: Stream) -> None:
        """Capture `stream` too: it waits for work of this capture."""
        self._streams[stream] = stream.watch, stream.ledger
        self._known[stream] = {}
        stream.capture = stream.watch = self
        stream.ledger = Ledger()  # captured work has not run
        self.device.allocator.serve_from(stream.id, self.pool)

    def leave(self) -> None:
        """Restore its streams."""
        recorded = self.device.timeline.recorder is not None
        for stream, (watch, ledger) in self._streams.items():
            self.device.allocator.serve_from(stream.id, None)
            stream.capture = None
            stream.watch = self.device.timeline if recorded or len(self.device.streams) > 1 else watch
            stream.ledger = ledger
        if self in underway:
            underway.remove(self)

    def kernel(self, host: Host, stream: Stream, ns: int, share: float, flops: int, nbytes: int) -> None:
        """Add a kernel."""
        self.add(stream, Node("kernel", ns, share, flops, nbytes, self.note(host)))

    def add(self, stream: Stream, *nodes: Node) -> None:
        """Add nodes that were launched on `stream`, one of its streams."""
        if not self.valid:
            raise invalidated()
        self.nodes += nodes
        known = self._known[stream]
        known[stream] = known.get(stream, 0) + len(nodes)

    def mark(self, stream: Stream) -> CapturedMark:
        """Record an event on `stream`, one of its streams."""
        here.host.now += CALL_NS
        return CapturedMark(stream, self, dict(self._known[stream]))

    def awaited(self, stream: Stream, mark: CapturedMark) -> None:
        """Make `stream` wait for an event that was recorded on another of its streams."""
        here.host.now += CALL_NS
        known = self._known[stream]
        for other, count in mark.known.items():
            known[other] = max(known.get(other, 0), count)

    def unjoined(self) -> bool:
        """Whether a stream has work that the origin has not waited for."""
        joined = self._known[self.origin]
        return any(known.get(stream, 0) > joined.get(stream, 0) for stream, known in self._known.items())


underway: list[Capture] = []


class _Thread(threading.local):
    silent = False
    """Whether this thread is computing the values of a graph that runs: the time of its copies is counted elsewhere."""


thread = _Thread()


def current_capture() -> Capture | None:
    """The capture on one of the calling thread's current streams."""
    if not underway or thread.silent:
        return None
    found = (stream.capture for stream in here.host.streams.values())
    return next((capture for capture in found if capture is not None), None)


def unsupported() -> RuntimeError:
    """The error for a call that is not allowed on a stream under capture."""
    return cuda_messages.capture_error(
        "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"
    )


def invalidated() -> RuntimeError:
    """The error for continuing an invalidated capture."""
    return cuda_messages.capture_error(
        "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"
    )


def captured_event() -> RuntimeError:
    """The error for querying or timing an event of a graph."""
    return cuda_messages.capture_error(
        "cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"
    )


def mark(stream: Stream) -> Mark:
    """Record an event on a stream, captured or not."""
    return record(here.host, stream) if stream.capture is None else stream.capture.mark(stream)


def wait(stream: Stream, mark: Mark | None) -> None:
    """Make a stream wait for an event; for none, if it was never recorded."""
    if stream.capture is not None or isinstance(mark, CapturedMark):
        _wait_captured(stream, mark)
    elif mark is not None:
        await_mark(here.host, stream, mark)


def _wait_captured(queue: Stream, mark: Mark | None) -> None:
    """Make a stream wait for an event, where at least one of them belongs to a capture; then both do."""
    if mark is None:
        return
    if not isinstance(mark, CapturedMark):
        queue.capture.valid = False
        raise cuda_messages.capture_error(
            "cudaErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream"
        )
    capture = mark.capture
    if capture not in underway:
        raise captured_event()
    if queue.capture is None:
        capture.join(queue)
    elif queue.capture is not capture:
        queue.capture.valid = capture.valid = False
        raise cuda_messages.capture_error(
            "cudaErrorStreamCaptureMerge", "operation would result in a merge of separate capture sequences"
        )
    capture.awaited(queue, mark)


def forbid_wait(streams: Iterable[Stream]) -> None:
    """Refuse to wait for or to query streams under capture; invalidates the capture."""
    for stream in streams:
        if stream.capture is not None:
            stream.capture.valid = False
            raise unsupported()


def capture_copy(
    source: Device | None, target: Device | None, nbytes: int, *, pinned: bool, non_blocking: bool
) -> bool:
    """Whether a graph has the copy as a node, so that nothing is left to count; None stands for the host."""
    if thread.silent:
        return True
    if not underway or source is target:
        return False
    stream = here.host.streams[source or target]
    if source is not None and target is not None:
        if stream.capture is not None or here.host.streams[target].capture is not None:
            raise not_simulated.error("captured peer copies")
        return False
    if stream.capture is None:
        return False
    if not pinned:
        raise RuntimeError(
            "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is pinned. "
            "Please use tensor.pin_memory() or allocate the tensor with pin_memory=True."
        )
    if not non_blocking:
        forbid_wait((stream,))
    note = stream.capture.note(here.host)
    stream.capture.add(stream, Node("h2d" if source is None else "d2h", 0, 0.0, 0, nbytes, note))
    return True


def advance(state: Any, increment: int) -> int | None:
    """The offset, from the start of the graph, at which an op under capture draws random numbers; None without capture.

    The first draw from a state takes device memory for its seed and its offset (CUDAGeneratorCaptureState).
    """
    capture = current_capture()
    if capture is None:
        return None
    if state not in capture.offsets:
        capture.offsets[state] = 0
        try:
            capture.offset_memory += [Buffer(capture.device, 8, 0), Buffer(capture.device, 8, 0)]
        except DeviceOutOfMemory as error:
            raise cuda_messages.out_of_memory(error) from None
    offset = capture.offsets[state]
    capture.offsets[state] = offset + (increment + 3) // 4 * 4
    return offset


def assert_not_capturing(attempt: str) -> None:
    """`assertNotCapturing` of ATen/cuda/CUDAGraphsUtils.cuh; `attempt` begins its sentence."""
    capture = current_capture()
    if capture is not None:
        status = "Active" if capture.valid else "Invalidated"
        raise RuntimeError(
            f"{attempt} during CUDA graph capture. If you need this call to be captured, please file an issue. "
            f"Current cudaStreamCaptureStatus: cudaStreamCaptureStatus{status}"
        )
