"""What is being captured into CUDA graphs, and what may not be done meanwhile.

A kernel launched on a stream under capture becomes a node of the graph and does not run. What would have to wait for
such a stream is refused and spoils the capture (CUDA Programming Guide, "Prohibited and Unhandled Operations").
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from fakegpu_lab.driver.base import cuda_messages
from fakegpu_lab.hardware.allocator.caching_allocator import DeviceOutOfMemory
from fakegpu_lab.hardware.buffer import Buffer
from fakegpu_lab.hardware.time.clock import CALL_NS, Mark, here
from fakegpu_lab.hardware.time.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fakegpu_lab.hardware.allocator.blocks import PoolId
    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.time.clock import Host, Stream, Watch
    from fakegpu_lab.hardware.time.records import Note


class Node(NamedTuple):
    """One kernel of a graph, or one copy between its device and pinned host memory.

    Attributes
    ----------
    kind
        ``kernel``, ``h2d`` or ``d2h``.
    ns, share, flops, nbytes
        What a kernel costs (`clock.launch`); of a copy, only the bytes.
    note
        The op that it belongs to.
    """

    kind: str
    ns: int
    share: float
    flops: int
    nbytes: int
    note: Note


class CapturedMark(Mark):
    """An event recorded on a stream under capture: it orders the graph's nodes, and has no time.

    `known` is how many nodes of each stream come before it.
    """

    __slots__ = ("capture", "known")

    def __init__(self, stream: Stream, capture: Capture, known: dict[Stream, int]) -> None:
        super().__init__(stream, 0)
        self.capture = capture
        self.known = known


class Capture:
    """One capture underway: the `watch` of its streams.

    Attributes
    ----------
    device, origin, pool
        Where it began, and the memory pool that serves it.
    nodes
        What was launched so far, in order.
    offsets
        By generator state, the random numbers per thread drawn so far (offset_intragraph_).
    valid
        False after something prohibited was done.
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
        """Capture that stream too: it waits for work of this capture."""
        self._streams[stream] = stream.watch, stream.ledger
        self._known[stream] = {}
        stream.capture = stream.watch = self
        stream.ledger = Ledger()  # what is noted has not happened
        self.device.allocator.serve_from(stream.id, self.pool)

    def leave(self) -> None:
        """Let all its streams be as they were."""
        recorded = self.device.timeline.recorder is not None
        for stream, (watch, ledger) in self._streams.items():
            self.device.allocator.serve_from(stream.id, None)
            stream.capture = None
            stream.watch = self.device.timeline if recorded or len(self.device.streams) > 1 else watch
            stream.ledger = ledger
        if self in underway:
            underway.remove(self)

    def kernel(self, host: Host, stream: Stream, ns: int, share: float, flops: int, nbytes: int) -> None:
        """Note a kernel."""
        self.add(stream, Node("kernel", ns, share, flops, nbytes, self.note(host)))

    def add(self, stream: Stream, *nodes: Node) -> None:
        """Append nodes, launched on one of its streams."""
        if not self.valid:
            raise invalidated()
        self.nodes += nodes
        known = self._known[stream]
        known[stream] = known.get(stream, 0) + len(nodes)

    def mark(self, stream: Stream) -> CapturedMark:
        """Record an event on one of its streams."""
        here.host.now += CALL_NS
        return CapturedMark(stream, self, dict(self._known[stream]))

    def awaited(self, stream: Stream, mark: CapturedMark) -> None:
        """Let one of its streams wait for an event recorded on another."""
        here.host.now += CALL_NS
        known = self._known[stream]
        for other, count in mark.known.items():
            known[other] = max(known.get(other, 0), count)

    def unjoined(self) -> bool:
        """Whether some stream has work that the origin has not waited for."""
        joined = self._known[self.origin]
        return any(known.get(stream, 0) > joined.get(stream, 0) for stream, known in self._known.items())


underway: list[Capture] = []


class _Thread(threading.local):
    silent = False
    """Whether this thread computes what a graph does, whose copies take their time elsewhere."""


thread = _Thread()


def current_capture() -> Capture | None:
    """The capture on one of the calling thread's current streams."""
    if not underway or thread.silent:
        return None
    found = (stream.capture for stream in here.host.streams.values())
    return next((capture for capture in found if capture is not None), None)


def unsupported() -> RuntimeError:
    """The error for what may not be done to a stream under capture."""
    return cuda_messages.capture_error(
        "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"
    )


def invalidated() -> RuntimeError:
    """The error for going on with a spoilt capture."""
    return cuda_messages.capture_error(
        "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"
    )


def captured_event() -> RuntimeError:
    """The error for asking an event of a graph for its time."""
    return cuda_messages.capture_error(
        "cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"
    )


def wait_for_mark(queue: Stream, mark: Mark | None) -> None:
    """Let a stream wait for an event, where one of the two belongs to a capture: the other must, too, from then on."""
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
    """Refuse to wait for streams under capture, or to ask how far they are; spoils the capture."""
    for stream in streams:
        if stream.capture is not None:
            stream.capture.valid = False
            raise unsupported()


def capture_copy(
    source: Device | None, target: Device | None, nbytes: int, *, pinned: bool, non_blocking: bool
) -> bool:
    """Whether a copy is a node of a graph now, or was one; None stands for the host."""
    if thread.silent:
        return True
    if not underway or source is target:
        return False
    stream = here.host.streams[source or target]
    if source is not None and target is not None:
        if stream.capture is not None or here.host.streams[target].capture is not None:
            raise RuntimeError("Capturing copies between two GPUs into a CUDA graph is not part of the simulation.")
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
    """Where an op that draws numbers in a capture starts, counted from the graph's beginning; None outside of one.

    The first to draw from a state takes device memory for its seed and its offset (CUDAGeneratorCaptureState).
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
    """`assertNotCapturing` of ATen/cuda/CUDAGraphsUtils.cuh; `attempt` says what is tried."""
    capture = current_capture()
    if capture is not None:
        status = "Active" if capture.valid else "Invalidated"
        raise RuntimeError(
            f"{attempt} during CUDA graph capture. If you need this call to be captured, please file an issue. "
            f"Current cudaStreamCaptureStatus: cudaStreamCaptureStatus{status}"
        )
