"""``torch._C._CUDAGraph`` (aten/src/ATen/cuda/CUDAGraph.cpp), the interface of `driver.graphs`.

In a CPU build `torch.cuda.CUDAGraph` inherits from a dummy class, on which the methods are set. In a CUDA build its
base is C++'s own, which only C++ can construct: there it gets a base of ours, with the same methods.
"""

from __future__ import annotations

import itertools
import warnings
from typing import TYPE_CHECKING, Any, NoReturn

import torch
import torch.cuda.graphs

from fakegpu_lab.driver.base import cuda_messages, current, graph_capture, not_simulated
from fakegpu_lab.driver.base.changes import added, begun, computed, in_cuda_builds, replaced
from fakegpu_lab.driver.graphs import capture as capturing
from fakegpu_lab.driver.graphs.replay import replay
from fakegpu_lab.driver.recorder import recording
from fakegpu_lab.driver.torch_cuda.streams import class_rows, executed_again
from fakegpu_lab.hardware.time.clock import here

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.base.changes import Change
    from fakegpu_lab.hardware.allocator.blocks import PoolId

_MODES = ("global", "thread_local", "relaxed")
_handles = itertools.count(1)
_own_pools = itertools.count(1)


class _Held:
    """What a graph keeps on its device: the ops, and the pool with their memory."""

    def __init__(self, capture: capturing.GraphCapture) -> None:
        self.capture = capture

    def __del__(self) -> None:
        self.capture.device.allocator.drop_pool(self.capture.pool)


class CudaGraph:
    """The methods of ``_CUDAGraph``, which `install` sets on torch's dummy class."""

    _keep_graph: bool
    _underway: capturing.GraphCapture | None
    _held: _Held | None
    _instantiated: bool

    def capture_begin(self, pool: PoolId | None = None, capture_error_mode: str = "global") -> None:
        """Begin to capture the current stream, with memory from `pool` or a new one."""
        if capture_error_mode not in _MODES:
            raise RuntimeError(
                f"Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got {capture_error_mode}"
            )
        if self._held is not None:
            raise RuntimeError(
                "This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new instance."
            )
        device = current.device()
        stream = here.host.streams[device]
        if stream is device.default_stream:
            raise RuntimeError(
                "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay "
                "them on the default stream.)"
            )
        where: PoolId = tuple(pool) if pool is not None and any(pool) else (next(_own_pools), 0)  # type: ignore[assignment]
        capture = capturing.begin(device, stream, where)
        device.allocator.hold_pool(where)
        self._underway = capture

    def capture_end(self) -> None:
        """End the capture; the graph can now be replayed."""
        self.capture_end_pre()
        self._instantiated = not self._keep_graph

    def capture_end_pre(self) -> None:
        """End the capture without making the graph ready to launch (since torch 2.15, where Python does that)."""
        capture = self._underway
        if capture is None:
            raise RuntimeError("capture_end() called before capture_begin().")
        if here.host.streams[current.device()] is not capture.origin:
            raise RuntimeError("Capture must end on the same stream it began on.")
        self._underway = None
        capturing.end(capture)
        if not capture.nodes:
            warnings.warn(
                "The CUDA Graph is empty. This usually means that the graph was attempted to be captured on wrong "
                "device or stream.",
                stacklevel=3,
            )
        self._held = _Held(capture)
        self._instantiated = False

    def capture_end_post(self) -> None:
        """Nothing to do: there is no template to destroy."""

    @property
    def _has_graph_exec(self) -> bool:
        return self._held is not None and self._instantiated

    def instantiate(self) -> None:
        """Make the graph ready to launch; only for graphs made with ``keep_graph=True``."""
        if self._held is None:
            raise RuntimeError("capture_end() must have been called before calling instantiate")
        if self._instantiated and not self._keep_graph:
            raise RuntimeError("instantiate() is intended to be called by the user only when keep_graph=true")
        self._instantiated = True

    def replay(self) -> None:
        """Launch the graph on the current stream."""
        if self._held is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        self._instantiated = True
        replay(self._held.capture)

    def reset(self) -> None:
        """Drop the graph, and its reference to the pool."""
        if self._underway is not None:
            self._underway.leave()
            self._underway.put_back()
            self._underway = None
            if not graph_capture.underway:
                recording.intercept(None)
        self._held = None
        self._instantiated = False

    def pool(self) -> PoolId:
        """The id of its memory pool."""
        if self._held is None:
            raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
        return self._held.capture.pool

    def pools(self) -> list[PoolId]:
        """The ids of all its pools (since torch 2.15): it has one."""
        return [self.pool()]

    def enable_debug_mode(self) -> None:
        """No effect: the graph's nodes are not written."""

    def debug_dump(self, debug_path: str) -> NoReturn:
        """Refused: there is no file of the graph."""
        raise not_simulated.error("raw graphs")

    def register_generator_state(self, generator: torch._C.Generator) -> None:
        """Do nothing: generators that draw in a capture register themselves, as since torch 2.13."""
        if cuda_messages.TORCH_VERSION >= (2, 13):
            warnings.warn(
                "CUDAGraph.register_generator_state() is deprecated, and will be removed in a future PyTorch release. "
                "It is now a no-op and can be safely removed from your code.",
                stacklevel=2,
            )

    def raw_cuda_graph(self) -> NoReturn:
        """Refused: there is no such handle."""
        raise not_simulated.error("raw graphs")

    def raw_cuda_graph_exec(self) -> NoReturn:
        """Refused: there is no such handle."""
        raise not_simulated.error("raw graphs")

    @staticmethod
    def get_currently_capturing_graph() -> NoReturn:
        """Refused, with the conditional nodes that it is for."""
        raise not_simulated.error("conditional nodes")


class _Base:
    """The base of `torch.cuda.CUDAGraph` in a CUDA build."""


_Base.__name__ = _Base.__qualname__ = "_CUDAGraph"
_Base.__module__ = "torch._C"


def _new(cls: Any, keep_graph: bool = False) -> Any:
    """Make an empty graph."""
    self = object.__new__(cls)
    self._keep_graph = bool(keep_graph)
    self._underway = self._held = None
    self._instantiated = False
    return self


def graph_pool_handle() -> PoolId:
    """A new pool's id (`MemPool::graph_pool_handle`)."""
    return 0, next(_handles)


def is_current_stream_capturing() -> bool:
    """Whether a CUDA graph is being captured on the current stream of the current device."""
    return bool(graph_capture.underway) and here.host.streams[current.device()].capture is not None


FUNCTIONS: dict[str, Any] = {
    "_graph_pool_handle": graph_pool_handle,
    "_cuda_isCurrentStreamCapturing": is_current_stream_capturing,
}


def _begin() -> Callable[[], None]:
    global _handles, _own_pools
    _handles, _own_pools = itertools.count(1), itertools.count(1)
    return _abandon


def _class() -> list[Change]:
    dummy = type(torch._C._CUDAGraph) is type
    base = "torch._C._CUDAGraph" if dummy else f"{__name__}._Base"
    rows = [
        added(f"{base}.__new__", staticmethod(_new), _WHY),
        added(f"{base}.__init__", lambda self, *args, **kwargs: None, _WHY),
        *(
            added(f"{base}.{name}", method, _WHY)
            for name, method in vars(CudaGraph).items()
            if not name.startswith("__")
        ),
    ]
    if dummy:
        return rows
    return [*rows, replaced("torch._C._CUDAGraph", _Base, _WHY), computed(_executed_again, _WHY)]


def _executed_again() -> list[Change]:
    return class_rows("torch.cuda.graphs", "CUDAGraph", executed_again("torch.cuda.graphs").CUDAGraph)


_BOUND = "torch.cuda.graphs bound a CPU build's dummies"
_WHY = "graphs are captured and replayed by the machine"


def _abandon() -> None:
    """Abandon captures that were not ended."""
    for capture in list(graph_capture.underway):
        capture.leave()
    recording.intercept(None)


CHANGES = [
    *in_cuda_builds(FUNCTIONS),
    *(added(f"torch.cuda.graphs.{name}", function, _BOUND) for name, function in FUNCTIONS.items()),
    begun(_begin, "graphs are numbered from 1; what is captured ends with the machine"),
    computed(_class, _WHY),
    replaced("torch.cuda.graphs.graph.default_capture_stream", None, "the stream is another machine's"),
]
