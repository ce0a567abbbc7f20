"""Collects the kernels, copies, waits and memory of one profiler run, under CUDA's names."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.cost.op_row import row_named
from fakegpu_lab.driver.profiler.events import MARK
from fakegpu_lab.driver.recorder import recording
from fakegpu_lab.hardware.time.clock import CALL_NS, here
from fakegpu_lab.hardware.time.recorder import Recorder

if TYPE_CHECKING:
    from fakegpu_lab.hardware.time.clock import Host, Stream
    from fakegpu_lab.hardware.time.happens_before import Uses

kineto_range: Any = torch._C._profiler._RecordFunctionFast
"""Leaves an event in Kineto's record."""
_UNLIMITED = 1 << 62


class Session(Recorder):
    """What the devices report during one run of the profiler, in order, by host thread.

    Attributes
    ----------
    lanes
        By host thread, tuples that begin with their kind: ``"begin"``, ``"end"`` and ``"mark"`` with a number that
        Kineto's record has too, and a time; ``"kernel"``, ``"copy"``, ``"wait"``, ``"memory"`` with what the results
        show.
    cuda
        Whether CUDA is among the activities; without it, only the memory of ``profile_memory=True`` is noted.
    syncs
        Whether the host's waits are shown on the devices, too (``enable_cuda_sync_events``).
    collecting
        False while ``toggle_collection_dynamic`` has CUDA's part switched off.
    metadata
        What ``add_metadata`` was called with, as JSON. PyTorch 2.10 leaves it to Kineto; newer versions give it to the
        export.
    """

    def __init__(self, *, memory: bool, legacy: bool, host_ops: bool, cuda: bool = True, syncs: bool = False) -> None:
        super().__init__(recording.note, recording.notes, here.host.now, _UNLIMITED)
        self.machine = current.machine
        self.memory = memory
        self.legacy = legacy
        self.host_ops = host_ops
        self.cuda = self.collecting = cuda
        self.syncs = syncs
        self.metadata: dict[str, str] = {}
        self.lanes: dict[Host, list[tuple[Any, ...]]] = {}
        self.numbers = itertools.count(1)
        self._blocks: dict[int, int] = {}

    def lane(self, host: Host) -> list[tuple[Any, ...]]:
        """The thread's notes so far."""
        lane = self.lanes.get(host)
        if lane is None:
            lane = self.lanes[host] = []
        return lane

    def mark(self, now: int | None = None, why: str = "") -> None:
        """Put a point with a known simulated time into Kineto's record of the calling thread."""
        host = here.host
        number = next(self.numbers)
        self.lane(host).append(("mark", number, host.now if now is None else now, why))
        with kineto_range(f"{MARK}{number}"):
            pass

    def kernel(
        self, host: Host, stream: Stream, before: int, start: int, share: float, flops: int, nbytes: int
    ) -> None:
        """A kernel was launched; the launch has just ended."""
        if self.outer is not None:
            self.outer.kernel(host, stream, before, start, share, flops, nbytes)
        if self.collecting:
            began = host.now - stream.overhead
            if host.op is None:
                self.mark(began, "kernel")
            number = next(self._launches)
            self.lane(host).append(
                ("kernel", began, host.now, stream.device, stream.id, start, stream.end, _kernel_name(host), flops,
                 nbytes, number)
            )  # fmt: skip

    def copy(
        self,
        host: Host,
        stream: Stream,
        source: int | None,
        target: int | None,
        nbytes: int,
        start: int,
        end: int,
        *,
        pinned: bool | None,
    ) -> None:
        """A copy was queued; the call has just ended."""
        super().copy(host, stream, source, target, nbytes, start, end, pinned=pinned)
        transfer = self._transfers.pop()
        if self.collecting:
            began = host.now - stream.overhead
            if host.op is None:
                self.mark(began, "copy")
            self.lane(host).append(
                ("copy", began, host.now, stream.device, stream.id, start, end, transfer.name, 0, nbytes,
                 transfer.correlation)
            )  # fmt: skip

    def wait(self, host: Host, device: int, until: int, why: str) -> None:
        """A host thread is about to wait."""
        if self.outer is not None:
            self.outer.wait(host, device, until, why)
        if self.collecting:
            if host.op is None:
                self.mark(host.now, "wait")
            name = _RUNTIME_CALLS.get(why, _RUNTIME_CALLS[""])
            self.lane(host).append(("wait", host.now, max(until, host.now) + CALL_NS, device, name))

    def allocated(self, host: Host, device: int, stream: int, address: int, nbytes: int, block: int, held: int) -> None:
        """A block was taken; its own size counts (c10/cuda/CUDACachingAllocator.cpp, reportMemoryUsage)."""
        if self.outer is not None:
            self.outer.allocated(host, device, stream, address, nbytes, block, held)
        if host.op is None:
            self.mark(host.now, "allocation")
        if self.memory:
            self._blocks[address] = block
            self.lane(host).append(("memory", host.now, device, block, address, held))

    def freed(self, host: Host, address: int, uses: Uses | None = None, category: str = "") -> None:
        """A block was given back; the size of one that was taken before the profiler started is unknown."""
        if self.outer is not None:
            self.outer.freed(host, address, uses, category)
        if self.memory:
            if host.op is None:
                self.mark(host.now, "free")
            block = self._blocks.pop(address, None)
            if block is not None:
                self.lane(host).append(("memory", host.now, 0, -block, address))

    def out_of_memory(self, device: int, nbytes: int, limit: int, free: int) -> None:
        """A request for memory failed (c10/core/Allocator.cpp, reportOutOfMemoryToProfiler)."""
        if self.memory:
            host = here.host
            if host.op is None:
                self.mark(host.now, "allocation")
            self.lane(host).append(("out of memory", host.now, device, nbytes, 0))


_RUNTIME_CALLS = {
    "torch.cuda.synchronize": "cudaDeviceSynchronize",
    "torch.accelerator.synchronize": "cudaDeviceSynchronize",
    "Event.synchronize": "cudaEventSynchronize",
    "": "cudaStreamSynchronize",
}
"""The CUDA runtime's call, by the driver's name for a wait."""

_COPIES = frozenset(("copy_", "clone"))


def _kernel_name(host: Host) -> str:
    """The name of the kernel that a thread has launched, after its op: here an op has one kernel.

    CUDA may have several, named by templates. A contiguous copy without conversion is not a kernel but a
    ``cudaMemcpyAsync`` (aten/src/ATen/native/cuda/Copy.cu).
    """
    op = host.op
    if op is None:
        return ""
    if op[0] is None:  # the replay of a graph
        name, shown = (recording.notes[host.note][0] if host.note is not None else ""), None
    else:
        shown = as_on_cuda(op[0], op[1])
        name = shown[0] if shown else str(op[0]._schema.name)
    if name and "::" not in name:  # the user's own kernel
        return name
    name = name.rpartition("::")[2]
    if name in _COPIES and op[1]:
        tensors = [a for a in op[1][:2] if isinstance(a, torch.Tensor)]
        if all(t.dtype is tensors[0].dtype and t.is_contiguous() for t in tensors):
            return "Memcpy DtoD (Device -> Device)"
    gemm = row_named(name).cublas == "gemm"
    name = name.strip("_")
    if gemm:
        return f"gemm_kernel<{name}>"
    return f"multi_tensor_apply_kernel<{name}>" if name.startswith(("foreach_", "fused_")) else f"{name}_kernel"


_linear = torch.ops.aten.linear.default


def as_on_cuda(func: Any, args: tuple[Any, ...]) -> tuple[str, list[list[int]], int] | None:
    """Name, shapes and FLOPs of the op that CUDA runs for one that reaches the simulation undecomposed."""
    if func is not _linear or len(args) < 2:
        return None
    x, weight = args[0], args[1]
    rows = x.numel() // max(x.shape[-1], 1)
    shapes = [[rows, x.shape[-1]], [weight.shape[-1], weight.shape[0]]]
    flops = 2 * rows * weight.numel()
    if len(args) > 2 and args[2] is not None:
        return "aten::addmm", [list(args[2].shape), *shapes, [], []], flops
    return "aten::mm", shapes, flops
