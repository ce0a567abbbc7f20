"""Puts one thread's events in order and gives them simulated times; see `results`."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

from torch._C._autograd import DeviceType

from fakegpu_lab.driver.profiler.events import Event, activity_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.driver.profiler.events import Node
    from fakegpu_lab.driver.profiler.session import Session

_APART_NS = 2.0**-10
"""Least distance between two points of a thread."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_DRIVER_MARKS = frozenset(("allocation", "copy", "kernel", "wait"))
_FLOPS_HERE = frozenset(("aten::linear_backward",))
"""Ops that reach the simulation undecomposed, so that Kineto does not know their FLOPs."""

_SYNC_KINDS = {
    "cudaDeviceSynchronize": "Context Sync", "cudaStreamSynchronize": "Stream Sync",
    "cudaEventSynchronize": "Event Sync",
}  # fmt: skip
"""Kineto's name for a wait, by the runtime's call (syncTypeString)."""

Lane = list[tuple[Any, ...]]


class Shared:
    """What the threads of one profiler run share."""

    def __init__(self, session: Session, roots: dict[int, Node], first_sequence_number: int) -> None:
        self.session = session
        self.threads = {thread: number for number, thread in enumerate(sorted(roots), 1)}
        self.first_sequence_number = first_sequence_number
        self.numbers = itertools.count(1)
        self.lane_of: dict[int, Lane] = {}
        self.positions: dict[tuple[str, int], int] = {}
        self.why: dict[int, str] = {}
        for lane in session.lanes.values():
            for position, item in enumerate(lane):
                if item[0] in ("begin", "end", "mark"):
                    self.positions[item[0], item[1]] = position
                    self.lane_of[item[1]] = lane
                    if item[0] == "mark":
                        self.why[item[1]] = item[3]
        self.used: set[int] = set()
        self.addresses: dict[int, int] = {}
        self.host_blocks: dict[int, int] = {}
        self.host_addresses = itertools.count(0x1000, 0x40)
        self._threads = itertools.count(len(roots) + 1)

    def another_thread(self) -> int:
        """A number for a thread that Kineto did not record."""
        return next(self._threads)


class Walk:
    """Goes through one thread's events in order.

    `_points` are the begins and ends of events on the host: (simulated time or None, whether it begins, event). A point
    without an event only has a known time.
    """

    def __init__(self, shared: Shared, thread: int) -> None:
        self._shared = shared
        self._session = shared.session
        self._thread = thread
        self._points: list[tuple[int | None, bool, Event | None]] = []
        self._on_device: list[Event] = []
        self._open: list[Event] = []
        self._whole: list[Event] = []
        self._next: dict[int, int] = {}
        self._extents: dict[tuple[int, int, int], tuple[Event, int, int]] = {}
        self._reached = 0
        self._reached_at: dict[int, tuple[int, int]] = {}

    # --------------------------------------------------------------- in order

    def visit(self, node: Node, *, below: bool = False) -> None:
        """Take the events in a node; `below` a mark only those that contain marks themselves."""
        below = below or self._runs_driver(node)
        for child in node.children:
            if child.number:
                self._take_until(("begin", "mark"), child.number)
                self.visit(child, below=True)
                self._take_until(("end",), child.number)
            elif child.name == "[memory]":
                self._host_memory(child.event, below=below)
            elif (below or node.ours) and not child.marks:
                continue
            elif child.name == "PythonSubclass" or child.ours or (child.python and (below or node.ours)):
                self.visit(child, below=below)
            else:
                event = self._host_event(child)
                self._begin(event, None)
                self.visit(child, below=below)
                self._end(event, None)

    def take(self, lane: Sequence[tuple[Any, ...]]) -> None:
        """Take a thread's notes, without events of Kineto's."""
        for item in lane:
            self._take(item)

    def _runs_driver(self, node: Node) -> bool:
        """Whether the simulation computes this op without a mark around it, in a kernel registered with C++."""
        if node.event is None or (node.python and not node.ours) or node.event.is_user_annotation():
            return False
        if node.event.scope() == 1 or node.name.startswith("autograd::"):
            return False
        return any(
            self._shared.why.get(child.number, "") in _DRIVER_MARKS or (child.ours and self._runs_driver(child))
            for child in node.children
        )

    def _host_event(self, node: Node) -> Event:
        kineto = node.event
        event = self._new(_ADDRESS.sub("", node.name), activity_type(kineto), kineto)
        number, thread = kineto.sequence_nr(), kineto.fwd_thread_id()
        if number >= 0:
            event.fields["sequence_nr"] = number - self._shared.first_sequence_number
        event.fields["fwd_thread_id"] = self._shared.threads.get(thread, 0)
        return event

    def _host_memory(self, kineto: Any, *, below: bool) -> None:
        """Take host memory that the program's CPU tensors use, and not that in which device tensors keep values."""
        blocks = self._shared.host_blocks
        address = self._shared.addresses.get(kineto.start_ns(), 0)
        if kineto.nbytes() < 0:
            if address not in blocks:
                return
            shown = blocks.pop(address)
        elif below:
            return
        else:  # the real address differs in every run
            shown = blocks[address] = next(self._shared.host_addresses)
        event = self._new("[memory]", activity_type(kineto), kineto)
        event.args["Addr"] = shown
        self._points.append((None, True, event))
        self._points.append((None, False, event))

    def _take_until(self, kinds: tuple[str, ...], number: int) -> None:
        """Take the thread's notes up to that mark, and those right after it."""
        position = next((p for kind in kinds if (p := self._shared.positions.get((kind, number))) is not None), None)
        if position is None:
            return
        lane = self._shared.lane_of[number]
        self._shared.used.add(id(lane))
        done = self._next.get(id(lane), 0)
        position += 1
        while position < len(lane) and lane[position][0] not in ("begin", "end", "mark"):
            position += 1
        self.take(lane[done:position])
        self._next[id(lane)] = max(done, position)

    def _take(self, item: tuple[Any, ...]) -> None:
        kind = item[0]
        if kind in ("memory", "out of memory"):
            _, now, device, nbytes, address, *held = item
            event = self._new("[memory]" if kind == "memory" else "[OutOfMemory]", "cpu_instant_event")
            event.args |= {"Addr": address} if kind == "memory" else {}
            event.args |= {"Total Allocated": held[0]} if held else {}
            event.fields |= {"device_type": DeviceType.CUDA, "device_index": device, "nbytes": nbytes}
            self._points += [(now, True, event), (now, False, event)]
        elif kind == "wait":
            _, began, ended, device, name = item
            call = self._call(name, began, ended)
            if self._session.syncs:
                self._synchronization(call, began, ended, device)
        elif kind in ("kernel", "copy"):
            self._launch(*item[1:])
        else:
            self._points.append((item[2], True, None))
            if kind == "begin":
                shown = item[3]
                event = self._new(shown[0] if shown else "", "cpu_op")
                self._whole.append(event)
                if shown:
                    event.fields |= {"shapes": shown[1], "structured_input_shapes": shown[1], "flops": shown[2]}
                    self._begin(event, item[2])
            elif kind == "end" and self._whole and (event := self._whole.pop()).name():
                self._end(event, item[2])

    def _launch(
        self, began: int, ended: int, device: int, stream: int, start: int, end: int, name: str, flops: int,
        nbytes: int, number: int,
    ) -> None:  # fmt: skip
        op = next((e for e in reversed(self._open) if e.activity_type() == "cpu_op"), None)
        if op is not None and op.name() in _FLOPS_HERE:
            op.fields["flops"] = op.fields.get("flops", 0) + flops
        if not name:
            name = f"{op.name().rpartition('::')[2].strip('_') if op else 'unnamed'}_kernel"
        copies = name.startswith("Memcpy")
        call = self._call("cudaMemcpyAsync" if copies else "cudaLaunchKernel", began, ended)
        event = self._new(name, "gpu_memcpy" if copies else "kernel")
        event.start, event.end = start - self._session.began_ns, end - self._session.began_ns
        event.fields |= call.fields | {
            "name": name, "activity_type": "gpu_memcpy" if copies else "kernel", "flow_start": False,
        } | self._place(device, stream)  # fmt: skip
        event.args = {"stream": stream, "device": device, "context": 1, "correlation": call.fields["correlation_id"]}
        if copies:
            event.args |= {"bytes": nbytes, "memory bandwidth (GB/s)": nbytes / max(end - start, 1)}
        event.fields["extra_meta"] = {key: str(value) for key, value in event.args.items()}
        self._on_device.append(event)
        self._reached = max(self._reached, end)
        for around in self._open:
            if around.is_user_annotation():
                key = (id(around), device, stream)
                _, first, last = self._extents.get(key, (around, start, end))
                self._extents[key] = around, min(first, start), max(last, end)

    def _synchronization(self, call: Event, began: int, ended: int, device: int) -> None:
        """A wait of the host, as the device shows it (libkineto/src/CuptiActivity.cpp, CudaSyncActivity).

        Simplified: the stream is not named, and a stream that waits for an event is not shown.
        """
        name = _SYNC_KINDS[call.name()]
        event = self._new(name, "cuda_sync")
        event.start, event.end = began - self._session.began_ns, ended - self._session.began_ns
        event.fields |= self._place(device, -1)
        event.args = {
            "cuda_sync_kind": name, "stream": -1, "correlation": call.fields["correlation_id"], "device": device,
            "context": 1,
        }  # fmt: skip
        self._on_device.append(event)

    @staticmethod
    def _place(device: int, stream: int) -> dict[str, Any]:
        return {
            "device_type": DeviceType.CUDA, "device_index": device, "device_resource_id": stream,
            "start_thread_id": stream, "end_thread_id": stream,
        }  # fmt: skip

    def _call(self, name: str, began: int, ended: int) -> Event:
        """A call of the CUDA runtime."""
        event = self._new(name, "cuda_runtime")
        op = next((e for e in reversed(self._open) if e.activity_type() == "cpu_op"), None)
        number = event.fields["correlation_id"]
        event.fields |= {"linked_correlation_id": op.fields["correlation_id"] if op else 0}
        event.fields |= {"flow_id": number, "flow_type": 2, "flow_start": True}
        event.args = {"correlation": number}
        self._points += [(began, True, event), (ended, False, event)]
        return event

    def _new(self, name: str, kind: str, kineto: Any = None) -> Event:
        event = Event(name, kind, self._thread, next(self._shared.numbers), kineto)
        if kineto is not None or kind == "cpu_op":  # since torch 2.15, only what has one is asked for its kernels
            event.fields["external_id"] = event.fields["correlation_id"]
        return event

    def _begin(self, event: Event, now: int | None) -> None:
        self._open.append(event)
        self._points.append((now, True, event))
        self._reached_at[id(event)] = (self._reached, 0)

    def _end(self, event: Event, now: int | None) -> None:
        self._open.remove(event)
        self._points.append((now, False, event))
        self._reached_at[id(event)] = (self._reached_at[id(event)][0], self._reached)

    # ------------------------------------------------------------------ times

    def finish(self) -> list[Event]:
        """Return all events of the thread, with those that it caused on devices."""
        host: list[Event] = []
        began, last = self._session.began_ns, -_APART_NS
        for now, begins, event in self._timed():
            if event is None:
                continue
            last = max(float(now - began), last + _APART_NS)
            if begins:
                event.start = last
                host.append(event)
            elif event.activity_type() == "cpu_instant_event":
                event.end = event.start
            else:
                event.end = last
        session = self._session
        if session.legacy:
            for event in host:
                if (reached := self._reached_at.get(id(event))) is not None:
                    elapsed = max(reached[1] - began, event.end) - max(reached[0] - began, event.start)
                    event.fields["cuda_elapsed_us"] = elapsed / 1000
            return [event for event in host if event.activity_type() != "cuda_runtime"]
        if not session.host_ops:
            return [event for event in host if event.activity_type() == "cuda_runtime"] + self._on_device
        return (
            host + self._on_device + [self._annotation(key[1], key[2], *found) for key, found in self._extents.items()]
        )

    def _annotation(self, device: int, stream: int, around: Event, first: int, last: int) -> Event:
        """A `record_function` range on a device, from the first kernel launched in it to the last."""
        event = self._new(around.name(), "gpu_user_annotation")
        event.start, event.end = first - self._session.began_ns, last - self._session.began_ns
        event.fields |= {"is_user_annotation": True, **self._place(device, stream)}
        return event

    def _timed(self) -> list[tuple[int, bool, Event | None]]:
        """The points, all with times."""
        timed: list[tuple[int, bool, Event | None]] = []
        before = self._session.began_ns
        pending: list[tuple[bool, Event | None]] = []
        for now, begins, event in self._points:
            if now is None:
                pending.append((begins, event))
                continue
            place = len(pending)
            while place and _waits_for_a_mark(*pending[place - 1]):
                place -= 1
            timed += [(before if i < place else now, *entry) for i, entry in enumerate(pending)]
            pending.clear()
            timed.append((now, begins, event))
            before = now
        return timed + [(before, *entry) for entry in pending]


def _waits_for_a_mark(begins: bool, event: Event | None) -> bool:
    """Whether this is the begin of an op, which begins with its first launch; a range has a mark where it begins."""
    return begins and event is not None and not event.is_user_annotation()
