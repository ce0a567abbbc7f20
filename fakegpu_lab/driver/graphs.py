"""CUDA graphs: ops noted while they are captured, and computed again at every replay, on the same memory.

While a capture is underway, `run` stands in front of the dispatch path. Each op that launches a kernel on a captured
stream is kept with its arguments. On CUDA it does not run then. Here it is computed, for whatever comes next in the
capture may look at it; at the end of the capture all memory from before is put back as it was, and what was made in it
is zero (on a card: whatever was there).

A replay computes the ops in order on the inner tensors, and writes their results where the captured results are. No
memory is taken for it: the graph's private pool has it already. Then all kernels are launched at once.

Simplified: branches of a graph (several captured streams) run one after the other. Memory that was freed in the
capture and serves another tensor of the pool keeps its values here: nothing is overwritten.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils._python_dispatch import _disable_current_modes

from fakegpu_lab.driver import asserts, capturing, current, dispatch, memory, messages, recording
from fakegpu_lab.driver.capturing import Capture
from fakegpu_lab.driver.inner import inner_of
from fakegpu_lab.driver.op import Op
from fakegpu_lab.driver.tensor import FakeCudaTensor, wrap_view
from fakegpu_lab.hardware import copies
from fakegpu_lab.hardware.buffer import Buffer
from fakegpu_lab.hardware.clock import Stream, here, launch
from fakegpu_lab.hardware.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fakegpu_lab.hardware.blocks import PoolId
    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.recorder import Note

_clone: Any = torch.UntypedStorage.clone
_fill: Any = torch.UntypedStorage.fill_  # type: ignore[attr-defined]
_COPIES = frozenset(("copy_", "_to_copy", "_copy_from"))
_WRITES_UNDECLARED = frozenset(("running_mean", "running_var"))


class _Borrowed(Buffer):
    """The place of a storage, without holding it: a graph's ops do not keep memory alive, nor do replays take any."""

    __slots__ = ()

    def __init__(self, device: Device, nbytes: int, stream: int = 0) -> None:
        self.device = device
        self.allocator = device.allocator
        self.nbytes = nbytes
        self.block = None

    def __del__(self) -> None:
        pass

    def resize(self, nbytes: int) -> None:
        """Nothing to take."""
        self.nbytes = nbytes


class _Step(NamedTuple):
    """One op of a graph: its call, on tensors that hold no device memory, and the inner tensors of its results."""

    func: Any
    types: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[torch.Tensor]
    stream: int
    inference: bool


class GraphCapture(Capture):
    """A capture, with the ops behind its nodes."""

    def __init__(self, device: Device, origin: Stream, pool: PoolId) -> None:
        super().__init__(device, origin, pool, lambda host: recording.notes[recording.note(host)])
        self.steps: list[_Step] = []
        self._before: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self._made: dict[int, torch.UntypedStorage] = {}
        self._inside = False

    def run(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compute one op, and keep it for the replays if it launches anything."""
        op = _op(func)
        if self._inside or op.is_view:
            return dispatch.run(func, types, args, kwargs)
        given: list[torch.Tensor] = []
        step_args, step_kwargs = self._borrow(op, args, given), self._borrow(op, kwargs, given)
        self._save(op, args, kwargs)
        before = len(self.nodes)
        self._inside = True
        try:
            result = dispatch.run(func, types, args, kwargs)
        finally:
            self._inside = False
        if len(self.nodes) == before:
            return result
        own = {id(tensor) for tensor in given}
        known = {_storage(tensor).data_ptr() for tensor in given if _has_values(tensor)}
        results = []
        for tensor in _tensors(result):
            if id(tensor) in own:
                continue
            results.append(torch.ops.aten.alias.default(inner_of(tensor)))
            if _has_values(tensor) and (address := _storage(tensor).data_ptr()) not in known:
                self._made.setdefault(address, _storage(tensor))
        stream = here.host.streams[self.device].id
        inference = torch.is_inference_mode_enabled()
        self.steps.append(_Step(func, types, step_args, step_kwargs, results, stream, inference))
        return result

    def _borrow(self, op: Op, value: Any, given: list[torch.Tensor]) -> Any:
        """An argument as a replay passes it; its tensors are added to `given`.

        A CPU scalar goes into a kernel by value, when it is launched; only a copy reads host memory at the replay.
        """
        if isinstance(value, torch.Tensor):
            given.append(value)
            if value.__class__ is FakeCudaTensor:
                if value._inner.layout is not torch.strided:
                    raise RuntimeError("Capturing sparse tensors into a CUDA graph is not part of the simulation.")
                place = _Borrowed(value._device, value._buffer.nbytes)
                place.block = value._buffer.block
                return wrap_view(torch.ops.aten.alias.default(value._inner), value._device, place)
            if op.name in _COPIES or not _has_values(value):
                return value
            if value.untyped_storage().data_ptr() in self._made:
                return value  # what the simulation keeps on the host: an attention's seed
            return value.clone()
        if isinstance(value, dict):
            return {name: self._borrow(op, item, given) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            items = [self._borrow(op, item, given) for item in value]
            return items if isinstance(value, list) else tuple(items)
        return value

    def _save(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Remember what is in memory that the op will write to, unless the capture made it."""
        for name, value in [*zip(op.arguments, args, strict=False), *kwargs.items()]:
            if name in op.written or name in _WRITES_UNDECLARED:
                for tensor in _tensors(value):
                    if not _has_values(tensor):
                        continue
                    storage = _storage(tensor)
                    address = storage.data_ptr()
                    if address and address not in self._before and address not in self._made:
                        self._before[address] = storage, _clone(storage)

    def put_back(self) -> None:
        """Undo what was computed."""
        for storage in self._made.values():
            _fill(storage, 0)
        for storage, content in self._before.values():
            if storage.nbytes() == content.nbytes():
                storage.copy_(content)
        self._before.clear()
        self._made.clear()


def _op(func: Any) -> Op:
    found = _ops.get(id(func))
    if found is None:
        found = _ops[id(func)] = Op(func)
    return found


_ops: dict[int, Op] = {}


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _has_values(tensor: torch.Tensor) -> bool:
    inner = inner_of(tensor)
    return inner.layout is torch.strided and not inner.is_meta


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    storage: torch.UntypedStorage = inner_of(tensor).untyped_storage()
    return storage


def run(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """`dispatch.run` while a capture is underway."""
    __tracebackhide__ = True
    host = here.host
    outer = host.op, host.note
    host.op, host.note = (func, args, sys._getframe(1)), None
    try:
        capture = capturing.here_capture()
        if isinstance(capture, GraphCapture):
            with torch._C.DisableTorchFunction():
                return capture.run(func, types, args, kwargs or {})
        return dispatch.run(func, types, args, kwargs)
    finally:
        host.op, host.note = outer


def begin(device: Device, stream: Stream, pool: PoolId) -> GraphCapture:
    """Begin to capture a stream."""
    if stream.capture is not None:
        raise messages.capture_error("cudaErrorIllegalState", "the operation cannot be performed in the present state")
    capture = GraphCapture(device, stream, pool)
    capturing.underway.append(capture)
    recording.front(run)
    return capture


def end(capture: GraphCapture) -> None:
    """End a capture; raises if something prohibited was done in it, or a stream was not joined."""
    unjoined = capture.unjoined()
    capture.leave()
    capture.put_back()
    if not capturing.underway:
        recording.front(None)
    if not capture.valid:
        raise capturing.invalidated()
    if unjoined:
        raise messages.capture_error("cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work")


def replay(capture: GraphCapture) -> None:
    """Launch a captured graph on the current stream."""
    host = here.host
    device = capture.device
    stream = host.streams[device]
    if device.retired:
        raise asserts.gone(device)
    around = stream.capture
    if any(capture.offsets.values()):
        capturing.assert_not("Cannot prepare for replay during capturing stage.")
    if isinstance(around, GraphCapture):  # a child graph
        around.add(stream, *capture.nodes)
        around.steps += capture.steps
        return
    if not current.meta():
        _compute(capture)
    _launch(capture, stream)


_FILLED: Note = ("aten::fill_", (), None, 0, "", False)


def _launch(capture: GraphCapture, stream: Stream) -> None:
    """Let the graph take its time: one launch for the host, and its nodes one after the other on the stream.

    Before it a generator's seed and offset are filled in, for graphs that draw numbers (`setup_for_replay`).
    """
    host, device = here.host, capture.device
    recorded = device.timeline.recorder is not None
    outer = host.op, host.note

    def belongs(note: Note) -> None:
        if recorded:
            host.op, host.note = (None, (), None), recording.told(note)

    try:
        for state, drawn in capture.offsets.items():
            if current.meta():
                state.offset = (state.offset + drawn) % 2**64
            belongs(_FILLED)
            for _ in range(2 if drawn else 0):
                launch(host, stream, device.roofline.floor, device.roofline.one_block, 0, 8)
        before = host.now
        for node in capture.nodes:
            belongs(node.note)
            host.now = before  # one launch overhead, for all
            if node.kind == "kernel":
                launch(host, stream, node.ns, node.share, node.flops, node.nbytes)
            else:
                move = copies.to_device if node.kind == "h2d" else copies.to_host
                move(host, device, node.nbytes, pinned=True, non_blocking=True)
        host.now = before + stream.overhead
    finally:
        host.op, host.note = outer


def _compute(capture: GraphCapture) -> None:
    """Do the arithmetic of a replay."""
    host, device = here.host, capture.device
    stream, ordinal, now = host.streams[device], current.thread.index, host.now
    streams: dict[int, Stream] = {}
    with _no_memory(device), torch._C._AutoDispatchBelowAutograd(), torch._C.DisableTorchFunction():
        try:
            current.thread.index = device.index
            for step in capture.steps:
                silent = streams.get(step.stream)
                if silent is None:
                    silent = streams[step.stream] = Stream(device.index, step.stream, Ledger(), 0)
                host.streams[device] = silent
                if step.inference:  # its tensors may be written to nowhere else
                    with torch.inference_mode():
                        _do(step)
                else:
                    _do(step)
        finally:
            host.streams[device] = stream
            host.now = now
            current.thread.index = ordinal


def _do(step: _Step) -> None:
    """Compute one op of a graph, and put its results where the captured ones are."""
    result = dispatch.run(step.func, step.types, step.args, dict(step.kwargs))
    if not step.results:
        return
    own = {id(tensor) for tensor in _tensors([*step.args, *step.kwargs.values()])}
    new = [tensor for tensor in _tensors(result) if id(tensor) not in own]
    for target, tensor in zip(step.results, new, strict=True):
        value = inner_of(tensor)
        if value.numel() and value.data_ptr() != target.data_ptr():
            target.copy_(value)


@contextmanager
def _no_memory(device: Device) -> Iterator[None]:
    """Let this thread's ops take no device memory, make no copies in time, and tell no recorder or mode."""
    host = here.host
    before = vars(memory)["Buffer"]

    def buffer(where: Device, nbytes: int, stream: int = 0) -> Buffer:
        return (_Borrowed if here.host is host else before)(where, nbytes, stream)

    workspaces = dict(device.workspaces)
    capturing.thread.silent = True
    for module in (dispatch, memory):
        vars(module)["Buffer"] = buffer
    try:
        with torch.no_grad(), torch.autocast("cuda", enabled=False), _disable_current_modes():
            yield
    finally:
        for module in (dispatch, memory):
            vars(module)["Buffer"] = before
        capturing.thread.silent = False
        device.workspaces.clear()
        device.workspaces.update(workspaces)
