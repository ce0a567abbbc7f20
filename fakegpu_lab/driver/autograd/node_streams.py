"""Runs each node of backward on the stream of its forward, with the waits between streams.

The engine does that in C++ for CUDA ("Stream semantics of backward passes" in torch's notes on CUDA): a node waits for
the streams that made its gradients, gradients of one input are added on the stream of the node that takes them, and in
the end the streams that were current when backward was called wait for those of the leaves
(torch/csrc/autograd/engine.cpp, input_buffer.cpp). Here hooks around each node do the same, if a graph has nodes on
several streams. `Following` is made for one backward.

Simplified: the stream of a leaf is that of the first op in the graph that uses it, also if something kept its
AccumulateGrad from an earlier graph; a hook that somebody registered before a node itself (`Node.register_prehook`)
still sees the stream of the node before; the current device stays the caller's.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fakegpu_lab.driver.base import current, graph_capture, stream_history
from fakegpu_lab.driver.base.privateuse1 import NAME
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.hardware.time.clock import Mark, Stream, here
from fakegpu_lab.user_code import interrupts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fakegpu_lab.driver.base.stream_history import History
    from fakegpu_lab.hardware.device import Device

_LEAF = 2**63
"""Numbers from here on are those of AccumulateGrad nodes: they run as soon as they can."""


class _Ready(NamedTuple):
    """A gradient in an input buffer: where it is added to, and when it is there (InputBuffer)."""

    adding: Stream
    stream: Stream
    mark: Mark | None


class _Thread(threading.local):
    following: Following | None = None


_thread = _Thread()


class Following:
    """One backward that runs on several streams.

    Attributes
    ----------
    node
        The node that runs.
    """

    def __init__(self, streams: dict[Any, Stream], roots: list[tuple[Any, int, Any]]) -> None:
        self.node: Any = None
        self._streams = streams
        self._roots = roots
        self._callers = dict(here.host.streams)
        self._ready: dict[Any, dict[int, _Ready]] = {}
        self._leaves: dict[Stream, None] = {}
        self._handles: list[Any] = []
        self._outer = _thread.following

    @interrupts.whole
    def begin(self) -> None:
        """Hook into the nodes; gradients of the roots come from the caller's streams."""
        _thread.following = self
        for node in self._streams:
            self._handles.append(node.register_prehook(self._before(node)))
            self._handles.append(node.register_hook(self._after(node)))
        for node, slot, grad in self._roots:
            if isinstance(grad, torch.Tensor):
                self._add(grad, None, node, slot)

    @interrupts.whole
    def end(self, *, failed: bool) -> None:
        """Give the caller back its streams; they wait for those of the leaves, unless backward failed."""
        _thread.following = self._outer
        for handle in self._handles:
            handle.remove()
        try:
            if not failed:
                self._join()
        finally:
            for device in list(here.host.streams):
                stream = self._callers.get(device, device.default_stream)
                if here.host.streams[device] is not stream:
                    stream_history.make_current(device, stream)

    def _join(self) -> None:
        for node in list(self._ready):  # gradients that the caller asked for: their nodes did not run
            stream = self._streams.get(node)
            if stream is not None:
                self._receive(node, stream)
                self._leaves[stream] = None
        for leaf in self._leaves:
            device = current.device(leaf.device)
            caller = self._callers.get(device, device.default_stream)
            if leaf is not caller:
                graph_capture.wait(caller, graph_capture.mark(leaf))

    def enter(self, node: Any) -> None:
        """Let `node` run: on its stream, after the gradients that it gets."""
        if node is self.node:
            return
        self.node = node
        stream = self._streams.get(node)
        if stream is not None:
            device = current.device(stream.device)
            if here.host.streams[device] is not stream:
                stream_history.make_current(device, stream)
            self._receive(node, stream)

    def _receive(self, node: Any, stream: Stream) -> None:
        for ready in self._ready.pop(node, {}).values():
            if ready.stream is not stream:
                graph_capture.wait(stream, ready.mark or graph_capture.mark(ready.stream))

    def _before(self, node: Any) -> Any:
        def enter(_: Any) -> None:
            self.enter(node)

        return enter

    def _after(self, node: Any) -> Any:
        def leave(grads: Any, _: Any) -> None:
            stream, edges = self._streams[node], node.next_functions
            if not edges:
                self._leaves[stream] = None
            for grad, (target, slot) in zip(grads, edges, strict=False):
                if target is not None and isinstance(grad, torch.Tensor):
                    self._add(grad, stream, target, slot)

        return leave

    def _add(self, grad: Any, producer: Stream | None, target: Any, slot: int) -> None:
        """InputBuffer::add, but for the addition itself, which follows on the stream that is current then."""
        device = grad._device if grad.__class__ is FakeCudaTensor else None
        if device is None:
            if not grad.is_cuda:
                return
            device = current.device(grad.device.index)
        producer = producer or here.host.streams[device]
        consumer = self._streams.get(target) or here.host.streams[device]
        slots = self._ready.setdefault(target, {})
        before = slots.get(slot)
        if before is None:
            here_already = next((s for s in (consumer, producer) if s.device == device.index), None)
            adding = here_already or here.host.streams[device]
            if consumer is not producer:
                _record_stream(grad, consumer)
            slots[slot] = _Ready(
                adding, producer, None if consumer is adding is producer else graph_capture.mark(producer)
            )
            return
        adding = before.adding
        if adding is not producer:
            graph_capture.wait(adding, graph_capture.mark(producer))
            _record_stream(grad, adding)
        if adding is not before.stream:
            graph_capture.wait(adding, before.mark or graph_capture.mark(before.stream))
        if here.host.streams[device] is not adding:
            stream_history.make_current(device, adding)
        slots[slot] = _Ready(adding, adding, None)


def _record_stream(grad: Any, stream: Stream) -> None:
    if grad.__class__ is FakeCudaTensor and grad._device.index == stream.device and grad._buffer.block is not None:
        grad._device.allocator.record_stream(grad._buffer.block, stream.id)


def follow(tensors: Any, grads: Any) -> Following | None:
    """Prepare a backward from `tensors`; None if the whole graph is on the current streams."""
    histories = stream_history.several()
    if histories is None:
        return None
    edges = [(*_edge(tensor), grad) for tensor, grad in zip(tensors, grads, strict=True)]
    roots = [edge for edge in edges if edge[0] is not None]
    streams = _streams_of([node for node, _, _ in roots], histories)
    if all(stream is here.host.streams[current.device(stream.device)] for stream in streams.values()):
        return None
    return Following(streams, roots)


def enter_current() -> None:
    """Called first in a tensor's hook, which C++ runs before those of the node."""
    if _thread.following is not None:
        _thread.following.enter(torch._C._current_autograd_node())


def _edge(root: Any) -> tuple[Any, int]:
    """The node and the slot that the gradient of a root goes to."""
    if isinstance(root, torch.Tensor):
        return root.grad_fn, root.output_nr
    return root.node, root.output_nr  # a GradientEdge


def _streams_of(roots: list[Any], histories: dict[Device, History]) -> dict[Any, Stream]:
    """The stream of each node that leads from the roots, unless it is none of a device's (Node::stream)."""
    first: dict[Any, int] = {}
    nodes, waiting = set(roots), list(roots)
    while waiting:
        node = waiting.pop()
        number = node._sequence_nr()
        first[node] = min(number, first.get(node, number))
        for target, _ in node.next_functions:
            if target is None:
                continue
            if target._sequence_nr() >= _LEAF:
                first[target] = min(number, first.get(target, number))
            if target not in nodes:
                nodes.add(target)
                waiting.append(target)
    return dict(_placed(first, histories))


def _placed(numbers: dict[Any, int], histories: dict[Device, History]) -> Iterator[tuple[Any, Stream]]:
    streams = here.host.streams
    for node, number in numbers.items():
        where = next((one.device for one in node._input_metadata if one.device.type == NAME), None)
        if where is None:
            continue
        device = current.device(where.index)
        stream = histories[device].at(number) if device in histories else streams[device]
        if streams[device].capture is not None and stream.capture is None:
            stream = streams[device]  # maybe_override_stale_capture_stream
        yield node, stream
