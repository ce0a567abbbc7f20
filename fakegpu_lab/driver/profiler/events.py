"""An event of the profiler's results, and the tree of Kineto's own events; see `results`."""

from __future__ import annotations

import re
from typing import Any

from torch._C._autograd import DeviceType

MARK = "fakegpu_lab::mark#"
_PYTHON = re.compile(r"\(\d+\): |^<built-in |^nn\.Module: ")
OURS = re.compile(r"(^|/)fakegpu_lab/(driver|hardware)/")


def activity_type(event: Any) -> str:
    """The activity type of an event of Kineto's, which says it itself since torch 2.13."""
    if hasattr(event, "activity_type"):
        return str(event.activity_type())
    if event.name() == "[memory]":
        return "cpu_instant_event"
    if _PYTHON.search(event.name()):
        return "python_function"
    return "user_annotation" if event.is_user_annotation() else "cpu_op"


class Event:
    """One event, with the methods of ``torch._C._autograd._KinetoEvent``.

    A method returns what `fields` has under its name, else what Kineto's own event returns, else an empty value.
    """

    def __init__(self, name: str, kind: str, thread: int, number: int, kineto: Any = None) -> None:
        self.kineto = kineto
        self.start = self.end = 0.0
        self.args: dict[str, Any] = {}
        self.fields: dict[str, Any] = {
            "name": name, "activity_type": kind, "start_thread_id": thread, "end_thread_id": thread,
            "correlation_id": number,
        }  # fmt: skip
        if kineto is None:
            self.fields |= {"device_type": DeviceType.CPU, "device_index": 0, "device_resource_id": thread}
        else:
            self.fields["stack"] = [entry for entry in kineto.stack() if not OURS.search(entry)]

    def start_ns(self) -> float:
        """Nanoseconds since the profiler started."""
        return self.start

    def end_ns(self) -> float:
        """Nanoseconds since the profiler started."""
        return self.end

    def duration_ns(self) -> float:
        """Nanoseconds."""
        return self.end - self.start

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        fields = self.fields
        if name in fields:
            return lambda: fields[name]
        if hasattr(self.kineto, name):  # older torch has fewer of them
            return getattr(self.kineto, name)
        return lambda: _DEFAULTS.get(name)


_DEFAULTS: dict[str, Any] = {
    "shapes": [], "structured_input_shapes": [], "structured_input_strides": [], "dtypes": [], "concrete_inputs": [],
    "kwinputs": {}, "stack": [], "scope": 0, "sequence_nr": -1, "fwd_thread_id": 0, "flops": 0, "nbytes": 0,
    "is_async": False, "is_user_annotation": False, "is_python_function": False, "is_hidden_event": False,
    "linked_correlation_id": 0, "external_id": 0, "overload_name": "", "metadata_json": "", "extra_meta": {},
    "cuda_elapsed_us": -1, "privateuse1_elapsed_us": -1, "flow_id": 0, "flow_type": 0, "flow_start": False,
    "python_id": -1, "python_parent_id": -1, "python_module_id": -1,
}  # fmt: skip


class Node:
    """One of Kineto's events, and the events within it.

    Attributes
    ----------
    number
        The mark's number if it is a mark, else 0.
    marks
        Whether it contains a mark, at any depth.
    python
        Whether it is a Python function (``with_stack=True``).
    ours
        Whether that function belongs to the simulation.
    """

    __slots__ = ("children", "event", "marks", "name", "number", "ours", "python")

    def __init__(self, event: Any, mark: str) -> None:
        self.event = event
        self.name: str = event.name() if event is not None else ""
        self.number = int(self.name[len(mark) :]) if self.name.startswith(mark) else 0
        self.marks = bool(self.number)
        self.python: bool = event is not None and activity_type(event) == "python_function"
        self.ours = self.python and OURS.search(self.name) is not None
        self.children: list[Node] = []


def tree(events: list[Any], mark: str) -> dict[int, Node]:
    """Kineto's events as a tree for each thread, under a root node."""
    order = sorted(range(len(events)), key=lambda i: (events[i].start_ns(), -events[i].end_ns(), i))
    roots: dict[int, Node] = {}
    stacks: dict[int, list[tuple[Node, float]]] = {}
    for event in (events[i] for i in order):
        thread = event.start_thread_id()
        if thread not in roots:
            roots[thread] = Node(None, mark)
            stacks[thread] = [(roots[thread], float("inf"))]
        stack = stacks[thread]
        end = event.end_ns()
        while stack[-1][1] < end or stack[-1][1] <= event.start_ns():
            stack.pop()
        node = Node(event, mark)
        stack[-1][0].children.append(node)
        if node.number:
            for above, _ in stack:
                above.marks = True
        if end > event.start_ns():
            stack.append((node, end))
    return roots
