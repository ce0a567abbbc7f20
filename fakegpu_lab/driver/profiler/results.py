"""Joins Kineto's events and the simulation's notes into the profiler's results, in simulated time.

Kineto's own times, which are the wall clock's, give the tree of its events; from then on only their order counts. The
marks among them have simulated times. An event between two marks gets the time of the one before it, or of the one
after it if it is an op that had not launched anything yet; so ops on CPU tensors take no time, as in `lab.record`.
Points at the same simulated time are kept apart, in order, by about a thousandth of a nanosecond, because torch finds
the nesting of events by their times.

The ops that the simulation itself runs on the CPU to compute a device's op are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.profiler import chrome_export
from fakegpu_lab.driver.profiler.events import MARK, Event, tree
from fakegpu_lab.driver.profiler.simulated_times import Shared, Walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fakegpu_lab.driver.profiler.session import Session


class Results:
    """Stands in for ``torch._C._autograd._ProfilerResult``, in simulated time."""

    def __init__(self, events: list[Event], kineto: Any, session: Session) -> None:
        self._events = events
        self._kineto = kineto
        self._session = session

    def events(self) -> list[Event]:
        """All events."""
        return self._events

    def trace_start_ns(self) -> int:
        """0: times count from the start of the profiler."""
        return 0

    def save(self, path: str, metadata: dict[str, str] | None = None) -> None:
        """Write a Chrome trace."""
        chrome_export.save(self._events, path, self._session.began_ns, {**self._session.metadata, **(metadata or {})})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._kineto, name)


def assemble(session: Session, kineto: Any) -> Results:
    """Make the results of a profiler that has just stopped."""
    events = kineto.events()
    roots = tree(events, MARK)
    shared = Shared(session, roots, min((n for e in events if (n := e.sequence_nr()) >= 0), default=0))
    if session.memory:
        shared.addresses.update(_addresses(kineto.experimental_event_tree()))
    found: list[Event] = []
    for thread, root in sorted(roots.items()):
        walk = Walk(shared, shared.threads[thread])
        walk.visit(root)
        found += walk.finish()
    for lane in session.lanes.values():  # threads that Kineto does not record: only their kernels and runtime calls
        if id(lane) not in shared.used:
            walk = Walk(shared, shared.another_thread())
            walk.take(lane)
            found += walk.finish()
    return Results(found, kineto, session)


def _addresses(nodes: list[Any]) -> Iterator[tuple[int, int]]:
    """When (by Kineto's clock) and at what address host memory was taken or given back."""
    while nodes:
        for node in nodes:
            if node.name == "[memory]":
                yield node.start_time_ns, node.typed[1].ptr
        nodes = [child for node in nodes for child in node.children]
