"""`torch.profiler` with CUDA activity: the simulated kernels, copies and waits, in simulated time.

The host's half of the profiler, Kineto, is real: it knows every op, `record_function` range and autograd node, and how
they nest. Its times are the wall clock's, and are thrown away. While it runs, each op that arrives at the simulation
leaves a *mark* in Kineto's record (an event with a number) and a note of the simulated time under that number here.
When the profiler stops, `profile_results.assemble` puts the two together.

This is done at the four functions of ``torch._C._autograd`` that torch/autograd/profiler.py calls, so that everything
above them (schedules, tables, averages, traces) is torch's own.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from typing import TYPE_CHECKING, Any

import torch
from torch._C._profiler import ProfilerActivity, ProfilerState
from torch.autograd import profiler

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.profiler.events import MARK
from fakegpu_lab.driver.profiler.results import Results, assemble
from fakegpu_lab.driver.recorder import recording
from fakegpu_lab.hardware.time.clock import CALL_NS, here
from fakegpu_lab.hardware.time.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fakegpu_lab.driver.base.patches import Patches
    from fakegpu_lab.hardware.time.clock import Host, Stream
    from fakegpu_lab.hardware.time.happens_before import Uses

_mark: Any = torch._C._profiler._RecordFunctionFast
_CUDA = ProfilerActivity.CUDA
_scripting: Any = torch.jit.is_scripting  # type: ignore[attr-defined]
_UNLIMITED = 1 << 62
_LOG_LEVEL = "KINETO_LOG_LEVEL"


class _Legacy(set[ProfilerActivity]):
    """The activities of a profiler that times each op with two events, and sees no kernel: ``use_kineto=False``."""


class Session(Recorder):
    """What one run of the profiler is told, by host thread, in order.

    Attributes
    ----------
    lanes
        By host thread, tuples that begin with what they are: ``"begin"``, ``"end"`` and ``"mark"`` with a number that
        Kineto has, too, and a time; ``"kernel"``, ``"copy"``, ``"wait"``, ``"memory"`` with what `assemble` shows.
    collecting
        False while CUDA's part was switched off by ``toggle_collection_dynamic``.
    """

    def __init__(self, *, memory: bool, legacy: bool, host_ops: bool) -> None:
        super().__init__(recording.note, recording.notes, here.host.now, _UNLIMITED)
        self.machine = current.machine
        self.memory = memory
        self.legacy = legacy
        self.host_ops = host_ops
        self.collecting = True
        self.lanes: dict[Host, list[tuple[Any, ...]]] = {}
        self.numbers = itertools.count(1)
        self._blocks: dict[int, int] = {}

    def lane(self, host: Host) -> list[tuple[Any, ...]]:
        """What the thread did so far."""
        lane = self.lanes.get(host)
        if lane is None:
            lane = self.lanes[host] = []
        return lane

    def mark(self, now: int | None = None, why: str = "") -> None:
        """Let Kineto's record have a point in the calling thread whose simulated time is known."""
        host = here.host
        number = next(self.numbers)
        self.lane(host).append(("mark", number, host.now if now is None else now, why))
        with _mark(f"{MARK}{number}"):
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
            self.launches = number = self.launches + 1
            self.lane(host).append(
                ("kernel", began, host.now, stream.device, stream.id, start, stream.end, _name(host.op), flops, nbytes,
                 number)
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
        name = self._transfers.pop().name
        if self.collecting:
            began = host.now - stream.overhead
            if host.op is None:
                self.mark(began, "copy")
            self.lane(host).append(
                ("copy", began, host.now, stream.device, stream.id, start, end, name, 0, nbytes, self.launches)
            )

    def wait(self, host: Host, device: int, until: int, why: str) -> None:
        """A host thread is about to wait."""
        if self.outer is not None:
            self.outer.wait(host, device, until, why)
        if self.collecting:
            if host.op is None:
                self.mark(host.now, "wait")
            self.lane(host).append(("wait", host.now, max(until, host.now) + CALL_NS, device, _API.get(why, _API[""])))

    def allocated(self, host: Host, device: int, stream: int, address: int, nbytes: int, block: int, held: int) -> None:
        """A block was taken; its own size counts (c10/cuda/CUDACachingAllocator.cpp, reportMemoryUsage)."""
        if self.outer is not None:
            self.outer.allocated(host, device, stream, address, nbytes, block, held)
        if host.op is None:
            self.mark(host.now, "allocation")
        if self.memory:
            self._blocks[address] = block
            self.lane(host).append(("memory", host.now, device, block))

    def freed(self, host: Host, address: int, uses: Uses | None = None) -> None:
        """A block was given back; one that was taken before the profiler started has no size here."""
        if self.outer is not None:
            self.outer.freed(host, address, uses)
        if self.memory:
            if host.op is None:
                self.mark(host.now, "free")
            block = self._blocks.pop(address, None)
            if block is not None:
                self.lane(host).append(("memory", host.now, 0, -block))


_API = {
    "torch.cuda.synchronize": "cudaDeviceSynchronize",
    "torch.accelerator.synchronize": "cudaDeviceSynchronize",
    "Event.synchronize": "cudaEventSynchronize",
    "": "cudaStreamSynchronize",
}
"""The CUDA runtime's call by what the driver says of a wait."""

_COPIES = frozenset(("copy_", "clone"))


def _name(op: Any) -> str:
    """A kernel's name: its op's, as there is one kernel for it here. CUDA's own are many, and told by template.

    A contiguous copy without conversion is no kernel but a ``cudaMemcpyAsync`` (aten/src/ATen/native/cuda/Copy.cu).
    """
    if op is None:
        return ""
    shown = _as_on_cuda(op[0], op[1])
    name = (shown[0] if shown else str(op[0]._schema.name)).rpartition("::")[2]
    if name in _COPIES:
        tensors = [a for a in op[1][:2] if isinstance(a, torch.Tensor)]
        if all(t.dtype is tensors[0].dtype and t.is_contiguous() for t in tensors):
            return "Memcpy DtoD (Device -> Device)"
    name = name.strip("_")
    return f"multi_tensor_apply_kernel<{name}>" if name.startswith(("foreach_", "fused_")) else f"{name}_kernel"


_session: Session | None = None


def run(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """`recording.run`, with a mark in Kineto's record."""
    __tracebackhide__ = True
    session = _session
    if session is None:
        return recording.run(func, types, args, kwargs)
    host = here.host
    lane = session.lane(host)
    number = next(session.numbers)
    lane.append(("begin", number, host.now, _as_on_cuda(func, args)))
    try:
        with _mark(f"{MARK}{number}"):
            return recording.run(func, types, args, kwargs)
    finally:
        lane.append(("end", number, host.now))


_linear = torch.ops.aten.linear.default


def _as_on_cuda(func: Any, args: tuple[Any, ...]) -> tuple[str, list[list[int]], int] | None:
    """The name, shapes and FLOPs of what CUDA has below an op that arrives here whole."""
    if func is not _linear or len(args) < 2:
        return None
    x, weight = args[0], args[1]
    rows = x.numel() // max(x.shape[-1], 1)
    shapes = [[rows, x.shape[-1]], [weight.shape[-1], weight.shape[0]]]
    flops = 2 * rows * weight.numel()
    if len(args) > 2 and args[2] is not None:
        return "aten::addmm", [list(args[2].shape), *shapes, [], []], flops
    return "aten::mm", shapes, flops


def _begin(session: Session) -> None:
    global _session
    _end()  # Kineto has one profiler at a time: a second one takes over, and the first has nothing to show
    assert session.machine is not None
    recording.start(session.machine, session)
    recording.run_by(run)
    _session = session
    session.mark()


def _end() -> Session | None:
    global _session
    session, _session = _session, None
    if session is not None:
        assert session.machine is not None
        recording.stop(session.machine, session)
        recording.run_by(None)
    return session


def _of_the_host(activities: Iterable[ProfilerActivity]) -> set[ProfilerActivity]:
    """What Kineto itself is to record: without the host's ops there would be nothing to put marks in."""
    return (set(activities) - {_CUDA}) | {ProfilerActivity.CPU}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """In a CUDA build, Kineto looks for cards when it is first used, and would print an error: there are none."""
    if _LOG_LEVEL in os.environ:
        yield
        return
    os.environ[_LOG_LEVEL] = "5"
    try:
        yield
    finally:
        os.environ.pop(_LOG_LEVEL, None)


def install(patches: Patches) -> None:
    """Patch what torch/autograd/profiler.py calls, and the annotations that need no profiler."""
    originals: Any = profiler
    supported, prepare, enable = (
        originals._supported_activities,
        originals._prepare_profiler,
        originals._enable_profiler,
    )
    disable, toggle = originals._disable_profiler, originals._toggle_collection_dynamic
    profile: Any = profiler.profile
    init, export = profile.__init__, profile.export_chrome_trace
    annotation: Any = profiler.record_function
    enter, leave = annotation.__enter__, annotation.__exit__
    starting: list[Any] = []

    @functools.wraps(init)
    def init_(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if getattr(self, "profiler_kind", None) is ProfilerState.KINETO_GPU_FALLBACK:
            self.profiler_kind = ProfilerState.KINETO
            self.kineto_activities = _Legacy(self.kineto_activities | {_CUDA})

    def prepare_(config: Any, activities: Any, **kwargs: Any) -> None:
        if kwargs.get("activity_filter"):
            kwargs["activity_filter"] = {k: v for k, v in kwargs["activity_filter"].items() if k is not _CUDA}
        with _quiet():
            prepare(config, _of_the_host(activities), **kwargs)

    def enable_(config: Any, activities: Any) -> None:
        with _quiet():
            enable(config, _of_the_host(activities))
        if _CUDA in activities:
            memory = bool(starting and starting[-1].profile_memory)
            legacy = isinstance(activities, _Legacy)
            _begin(Session(memory=memory, legacy=legacy, host_ops=ProfilerActivity.CPU in activities))

    def disable_() -> Any:
        session = _end()
        results = disable()
        return results if session is None else assemble(session, results)

    def toggle_(on: bool, activities: Iterable[ProfilerActivity]) -> None:
        if _session is not None and _CUDA in activities:
            _session.collecting = on
        if host := set(activities) - {_CUDA}:
            toggle(on, host)

    start = profile._start_trace

    @functools.wraps(start)
    def start_(self: Any) -> None:
        starting.append(self)
        try:
            start(self)
        finally:
            starting.pop()

    @functools.wraps(export)
    def export_(self: Any, path: str, metadata: Any = None, **kwargs: Any) -> None:
        if isinstance(self.kineto_results, Results):
            self.kineto_results.save(path, metadata)
        else:
            export(self, path, *(() if metadata is None else (metadata,)), **kwargs)

    @functools.wraps(enter)
    def enter_(self: Any) -> Any:
        if _session is not None and not _scripting():
            _session.mark()
        return enter(self)

    @functools.wraps(leave)
    def leave_(self: Any, *exception: Any) -> Any:
        if _session is not None and not _scripting():
            _session.mark()
        return leave(self, *exception)

    patches.later(_end)
    with_cuda = lambda: supported() | {_CUDA}  # noqa: E731
    patches.set(torch.autograd, "_supported_activities", with_cuda)
    patches.set(profiler, "_supported_activities", with_cuda)
    patches.set(profiler, "_prepare_profiler", prepare_)
    patches.set(profiler, "_enable_profiler", enable_)
    patches.set(profiler, "_disable_profiler", disable_)
    patches.set(profiler, "_toggle_collection_dynamic", toggle_)
    patches.set(profile, "__init__", init_)
    patches.set(profile, "_start_trace", start_)
    patches.set(profile, "export_chrome_trace", export_)
    patches.set(annotation, "__enter__", enter_)
    patches.set(annotation, "__exit__", leave_)
