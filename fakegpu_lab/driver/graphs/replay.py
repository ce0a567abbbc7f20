"""Replays a CUDA graph: computes its ops in order on the inner tensors, then launches all its kernels at once.

Results are written to the captured results. A replay allocates nothing: the memory is in the graph's private pool.

Simplified: branches of a graph (several captured streams) run one after the other.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base import current, device_memory, graph_capture
from fakegpu_lab.driver.base.tensor import inner_of, tensors_of
from fakegpu_lab.driver.dispatch import dispatcher
from fakegpu_lab.driver.graphs.capture import BorrowedMemory, Call, GraphCapture
from fakegpu_lab.driver.recorder import recording, results
from fakegpu_lab.hardware.time.clock import Stream, here, launch
from fakegpu_lab.hardware.time.ledger import Ledger
from fakegpu_lab.hardware.transfers import copies

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fakegpu_lab.driver.base.graph_capture import Node
    from fakegpu_lab.driver.graphs.capture import Step
    from fakegpu_lab.hardware.buffer import Buffer
    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.time.records import Note


def replay(capture: GraphCapture) -> None:
    """Launch a captured graph on the current stream."""
    host = here.host
    device = capture.device
    stream = host.streams[device]
    if device.retired:
        raise device_asserts.retired_error(device)
    results.use_all()
    around = stream.capture
    if any(capture.offsets.values()):
        graph_capture.assert_not_capturing("Cannot prepare for replay during capturing stage.")
    if isinstance(around, GraphCapture):  # a child graph
        around.add(stream, *capture.nodes)
        around.steps += capture.steps
        around.memory.include(capture.memory)
        return
    after = 0
    for steps, nodes, call in _parts(capture):
        if not current.meta():
            _compute(capture, steps, last=call is None)
        _launch(capture, stream, nodes, first=not after)
        after = after or host.now
        if call is not None:
            call.function(*call.arguments)
        host.now = after  # one launch overhead, for all parts


def _parts(capture: GraphCapture) -> Iterator[tuple[list[Step], list[Node], Call | None]]:
    """The ops and kernels before each call, and the call; at the end those after the last one."""
    calls = [place for place, step in enumerate(capture.steps) if isinstance(step, Call)]
    nodes = [place for place, node in enumerate(capture.nodes) if node.kind == "call"]
    step = node = 0
    for next_step, next_node in zip([*calls, None], [*nodes, None], strict=True):
        ops: Any = capture.steps[step:next_step]
        call: Any = capture.steps[next_step] if next_step is not None else None
        yield ops, capture.nodes[node:next_node], call
        step, node = (next_step or 0) + 1, (next_node or 0) + 1


_FILLED: Note = ("aten::fill_", (), None, 0, "", "", ())


def _launch(capture: GraphCapture, stream: Stream, nodes: list[Node], *, first: bool) -> None:
    """Launch the nodes in simulated time: one launch for the host, and one node after the other on the stream.

    Graphs that draw random numbers first fill in a generator's seed and offset (`setup_for_replay`).
    """
    host, device = here.host, capture.device
    recorded = device.timeline.recorder is not None
    outer = host.op, host.note, host.dispatched

    def note_op(note: Note) -> None:
        if recorded:
            host.op, host.note, host.dispatched = (None, (), None), recording.index_of(note), 0

    try:
        for state, drawn in capture.offsets.items() if first else ():
            if current.meta():
                state.offset = (state.offset + drawn) % 2**64
            note_op(_FILLED)
            for _ in range(2 if drawn else 0):
                launch(host, stream, device.roofline.floor, device.roofline.one_block, 0, 8)
        before = host.now
        for node in nodes:
            note_op(node.note)
            host.now = before  # one launch overhead, for all
            if node.kind == "kernel":
                launch(host, stream, node.ns, node.share, node.flops, node.nbytes)
                if node.access is not None and device.timeline.recorder is not None:
                    device.timeline.recorder.accessed(host, node.access)
            else:
                move = copies.to_device if node.kind == "h2d" else copies.to_host
                move(host, device, node.nbytes, pinned=True, non_blocking=True)
        host.now = before + stream.overhead
    finally:
        host.op, host.note, host.dispatched = outer


def _compute(capture: GraphCapture, steps: list[Step], *, last: bool) -> None:
    """Compute the values of a replay."""
    host, device = here.host, capture.device
    stream, ordinal, now = host.streams[device], current.thread.index, host.now
    streams: dict[int, Stream] = {}
    with _no_memory(device), torch._C._AutoDispatchBelowAutograd(), torch._C.DisableTorchFunction():
        try:
            current.thread.index = device.index
            for step in steps:
                silent = streams.get(step.stream)
                if silent is None:
                    silent = streams[step.stream] = Stream(device.index, step.stream, Ledger(), 0)
                host.streams[device] = silent
                if step.inference:  # inference tensors may only be written to in inference mode
                    with torch.inference_mode():
                        _do(step)
                else:
                    _do(step)
            if last:
                with torch.inference_mode(False):
                    capture.memory.overwrite()
        finally:
            host.streams[device] = stream
            host.now = now
            current.thread.index = ordinal


def _do(step: Step) -> None:
    """Compute one op of a graph, and write its results to the captured ones."""
    result = dispatcher.run(step.func, step.types, step.args, dict(step.kwargs))
    if not step.results:
        return
    own = {id(tensor) for tensor in tensors_of([*step.args, *step.kwargs.values()])}
    new = [tensor for tensor in tensors_of(result) if id(tensor) not in own]
    for target, tensor in zip(step.results, new, strict=True):
        value = inner_of(tensor)
        if value.numel() and value.data_ptr() != target.data_ptr():
            target.copy_(value)


@contextmanager
def _no_memory(device: Device) -> Iterator[None]:
    """Within this context, this thread's ops take no device memory and no time, and reach no recorder or mode."""
    host = here.host
    before = vars(device_memory)["Buffer"]

    def buffer(where: Device, nbytes: int, stream: int = 0) -> Buffer:
        return (BorrowedMemory if here.host is host else before)(where, nbytes, stream)

    workspaces = dict(device.workspaces)
    graph_capture.thread.silent = True
    for module in (dispatcher, device_memory):
        vars(module)["Buffer"] = buffer
    try:
        with torch.no_grad(), torch.autocast("cuda", enabled=False), _disable_current_modes():
            yield
    finally:
        for module in (dispatcher, device_memory):
            vars(module)["Buffer"] = before
        graph_capture.thread.silent = False
        device.workspaces.clear()
        device.workspaces.update(workspaces)
