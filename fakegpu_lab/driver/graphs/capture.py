"""Captures a CUDA graph: keeps each op that launches a kernel on a captured stream, with its arguments.

During a capture, `run` stands in front of the dispatch path. On CUDA, ops do not run during a capture. Here they are
computed, because the code that follows may look at their results; at the end of the capture, memory from before gets
its old values back, and memory allocated in the capture is set to zero (on a card its values are undefined).
"""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fakegpu_lab.driver.base import cuda_messages, graph_capture, not_simulated
from fakegpu_lab.driver.base.graph_capture import Capture
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, inner_of, tensors_of, wrap_view
from fakegpu_lab.driver.cost.op import Op
from fakegpu_lab.driver.dispatch import dispatcher
from fakegpu_lab.driver.graphs.pool_memory import PoolMemory
from fakegpu_lab.driver.random import generators
from fakegpu_lab.driver.recorder import recording
from fakegpu_lab.hardware.buffer import Buffer
from fakegpu_lab.hardware.time.clock import Stream, here

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.hardware.allocator.blocks import PoolId
    from fakegpu_lab.hardware.device import Device

_COPIES = frozenset(("copy_", "_to_copy", "_copy_from"))
_WRITES_UNDECLARED = frozenset(("running_mean", "running_var"))


class BorrowedMemory(Buffer):
    """Refers to device memory without owning it: a graph's ops do not keep memory alive, and replays take none."""

    __slots__ = ()

    def __init__(self, device: Device, nbytes: int, stream: int = 0) -> None:
        self.device = device
        self.allocator = device.allocator
        self.nbytes = nbytes
        self.block = None

    def __del__(self) -> None:
        pass

    def resize(self, nbytes: int) -> None:
        """Note the size; nothing is allocated."""
        self.nbytes = nbytes


class Step(NamedTuple):
    """One op of a graph: its call, on tensors that hold no device memory, and the inner tensors of its results."""

    func: Any
    types: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[torch.Tensor]
    stream: int
    inference: bool


class Call(NamedTuple):
    """What is not an op, and what a replay does where it was captured: a collective. Its tensors hold no memory."""

    function: Callable[..., None]
    arguments: tuple[list[torch.Tensor], ...]


class GraphCapture(Capture):
    """A capture with the ops of its nodes."""

    def __init__(self, device: Device, origin: Stream, pool: PoolId) -> None:
        super().__init__(device, origin, pool, lambda host: recording.notes[recording.note(host)])
        self.steps: list[Step | Call] = []
        self.memory = PoolMemory(device, pool)
        self._before: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._made: dict[int, torch.Tensor] = {}
        self._inside = False

    def run(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compute one op, and keep it for the replays if it launches anything."""
        op = _op(func)
        if self._inside or op.is_view:
            return dispatcher.run(func, types, args, kwargs)
        given: list[torch.Tensor] = []
        step_args, step_kwargs = self._borrow(op, args, given), self._borrow(op, kwargs, given)
        self._save(op, args, kwargs)
        before = len(self.nodes)
        self._inside = True
        try:
            result = dispatcher.run(func, types, args, kwargs)
        finally:
            self._inside = False
        if len(self.nodes) == before:
            return result
        self._use(op, args, kwargs)
        own = {id(tensor) for tensor in given}
        known = {_storage(tensor).data_ptr() for tensor in given if _has_values(tensor)}
        results = []
        for tensor in tensors_of(result):
            if id(tensor) in own:
                continue
            results.append(torch.ops.aten.alias.default(inner_of(tensor)))
            if _has_values(tensor) and (address := _storage(tensor).data_ptr()) not in known:
                self._made.setdefault(address, _values(tensor))
                if tensor.__class__ is FakeCudaTensor:
                    self.memory.use(tensor, writes=True)
        stream = here.host.streams[self.device].id
        inference = torch.is_inference_mode_enabled()
        self.steps.append(Step(func, types, step_args, step_kwargs, results, stream, inference))
        return result

    def call(self, name: str, function: Callable[..., None], *lists: list[torch.Tensor]) -> None:
        """Keep a call for the replays; it may write to all tensors in its lists.

        Parameters
        ----------
        name
            What the node is called.
        """
        lent: dict[int, torch.Tensor] = {}
        for tensor in itertools.chain(*lists):
            if isinstance(tensor, FakeCudaTensor):
                lent[id(tensor)] = borrowed(tensor)
                if _has_values(tensor):
                    self.memory.use(tensor, writes=True)
        note = (name, (), None, 0, "", "", ())
        self.add(here.host.streams[self.device], graph_capture.Node("call", 0, 0.0, 0, 0, note))
        self.steps.append(Call(function, tuple([lent.get(id(t), t) for t in tensors] for tensors in lists)))

    def _borrow(self, op: Op, value: Any, given: list[torch.Tensor]) -> Any:
        """An argument as a replay passes it; its tensors are added to `given`.

        A CPU scalar goes into a kernel by value, when it is launched; only a copy reads host memory at the replay.
        """
        if isinstance(value, torch.Tensor):
            given.append(value)
            if value.__class__ is FakeCudaTensor:
                if value._inner.layout is not torch.strided:
                    raise not_simulated.error("captured sparse tensors")
                return borrowed(value)
            if op.name in _COPIES or not _has_values(value):
                return value
            if value.untyped_storage().data_ptr() in self._made:
                return value  # a result that the simulation keeps on the host, such as the seed of attention
            return value.clone()
        if isinstance(value, torch._C.Generator):  # it may get another state later (`graphsafe_set_state`)
            return generators.of(value, self.device.index).graphsafe_get_state()
        if isinstance(value, dict):
            return {name: self._borrow(op, item, given) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            items = [self._borrow(op, item, given) for item in value]
            return items if isinstance(value, list) else tuple(items)
        return value

    def _save(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Save the values of memory that the op will write to, unless the capture allocated it."""
        for name, value in [*zip(op.arguments, args, strict=False), *kwargs.items()]:
            if name in op.written or name in _WRITES_UNDECLARED:
                for tensor in tensors_of(value):
                    if not _has_values(tensor):
                        continue
                    address = _storage(tensor).data_ptr()
                    if address and address not in self._before and address not in self._made:
                        now = _values(tensor)
                        self._before[address] = now, now.clone()

    def _use(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note the memory of the pool that the op's arguments have."""
        for name, value in [*zip(op.arguments, args, strict=False), *kwargs.items()]:
            writes = name in op.written or name in _WRITES_UNDECLARED
            for tensor in tensors_of(value):
                if tensor.__class__ is FakeCudaTensor and _has_values(tensor):
                    self.memory.use(tensor, writes=writes)

    def put_back(self) -> None:
        """Undo the computations of the capture."""
        with torch.inference_mode():  # which may write to both kinds of tensors
            for made in self._made.values():
                made.zero_()
            for now, before in self._before.values():
                if now.untyped_storage().nbytes() == before.nbytes:  # nothing has resized it
                    now.copy_(before)
        self._before.clear()
        self._made.clear()


def borrowed(tensor: FakeCudaTensor, kind: type[BorrowedMemory] = BorrowedMemory) -> FakeCudaTensor:
    """The tensor, without holding its memory."""
    memory = kind(tensor._device, tensor._buffer.nbytes)
    memory.block = tensor._buffer.block
    return wrap_view(torch.ops.aten.alias.default(tensor._inner), tensor._device, memory)


def _op(func: Any) -> Op:
    found = _ops.get(id(func))
    if found is None:
        found = _ops[id(func)] = Op(func)
    return found


_ops: dict[int, Op] = {}


def _has_values(tensor: torch.Tensor) -> bool:
    inner = inner_of(tensor)
    return inner.layout is torch.strided and not inner.is_meta


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    storage: torch.UntypedStorage = inner_of(tensor).untyped_storage()
    return storage


def _values(tensor: torch.Tensor) -> torch.Tensor:
    """All values of a tensor's storage, as a CPU tensor; a storage that the program holds counts as the device's."""
    inner = inner_of(tensor)
    count = _storage(tensor).nbytes() // inner.element_size()
    return torch.as_strided(inner.detach(), (count,), (1,), 0)


def run(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """`dispatcher.run` while a capture is underway."""
    __tracebackhide__ = True
    host = here.host
    outer = host.op, host.note
    host.op, host.note = (func, args, sys._getframe(1)), None
    try:
        capture = graph_capture.current_capture()
        if isinstance(capture, GraphCapture):
            with torch._C.DisableTorchFunction():
                return capture.run(func, types, args, kwargs or {})
        return dispatcher.run(func, types, args, kwargs)
    finally:
        host.op, host.note = outer


def begin(device: Device, stream: Stream, pool: PoolId) -> GraphCapture:
    """Begin to capture a stream."""
    if stream.capture is not None:
        raise cuda_messages.capture_error(
            "cudaErrorIllegalState", "the operation cannot be performed in the present state"
        )
    capture = GraphCapture(device, stream, pool)
    graph_capture.underway.append(capture)
    recording.intercept(run)
    return capture


def end(capture: GraphCapture) -> None:
    """End a capture; raises if a prohibited call was made in it, or a stream was not joined."""
    unjoined = capture.unjoined()
    capture.leave()
    capture.put_back()
    if not graph_capture.underway:
        recording.intercept(None)
    if not capture.valid:
        raise graph_capture.invalidated()
    capture.memory.share()
    if unjoined:
        raise cuda_messages.capture_error("cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work")
