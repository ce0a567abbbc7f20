"""The source of telemetry: a kernel's one `Source` watches the machine and keeps what its readers will need."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from fakegpu_lab import session
from fakegpu_lab.advice import advise as trace_advice
from fakegpu_lab.driver.memory_report.live_categories import Watch
from fakegpu_lab.driver.memory_report.memory_curve import kept
from fakegpu_lab.hardware.machine import Machine
from fakegpu_lab.hardware.time.clock import latest
from fakegpu_lab.notebook.telemetry.messages import Advice, LastError, Telemetry
from fakegpu_lab.notebook.telemetry.rolling_window import Windows, totals
from fakegpu_lab.real import nvml
from fakegpu_lab.real.watch import Watch as RealWatch
from fakegpu_lab.recording_views.labels import place

if TYPE_CHECKING:
    from fakegpu_lab.driver.memory_report.memory_curve import Curve
    from fakegpu_lab.hardware.snapshot import DeviceSnapshot
    from fakegpu_lab.notebook.telemetry.messages import CollectiveTotal, DeviceAllocations, Row, Timeline
    from fakegpu_lab.real.cards import Cards

ADVICE = 6
"""The most findings that are sent, the costliest first."""

STEPS = 400
"""How many of the last steps are kept."""

NEW_ROWS = 240
"""The most new rows of a card that an update has; of more, the lowest, highest and last of each stretch of time."""

NO_MACHINE = "There is no simulated GPU in this notebook. %fakegpu a100:2 enables two."


NOT_COUNTED = (
    "A real GPU counts neither kernels nor copies, and its timeline is not recorded all the time: "
    "lab.record() records them."
)


class Source:
    """Watches whichever machine is enabled, from `open` to `close`, for any number of `Reader`s."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.epoch = 0
        self.busy = False
        self.error: LastError | None = None
        self.advice: tuple[Advice, ...] = ()
        self._advised: object = None
        self.curves: dict[int, Curve] = {}
        self.steps: list[tuple[int, int]] = []
        self.now_ns = 0
        self.machine: Machine | Cards | None = None
        self.utilisation: dict[int, float] = {}
        self.devices: tuple[DeviceSnapshot, ...] = ()
        self._watch: Watch | RealWatch | None = None
        self.windows: Windows | None = None
        self._before: dict[int, tuple[int, int]] = {}

    def open(self) -> None:
        """Start to watch the enabled machine, or the real cards, and those that replace them."""
        if self._changed not in session.on_change:
            session.on_change.append(self._changed)
            session.on_watch.append(self._changed)
            self._changed(session.shown())

    def close(self) -> None:
        """Stop watching; what is known stays."""
        if self._changed in session.on_change:
            session.on_change.remove(self._changed)
            session.on_watch.remove(self._changed)
        self._stop()

    def _stop(self) -> None:
        if self.windows is not None:
            self.windows.stop()
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    def _changed(self, machine: Machine | Cards | None) -> None:
        with self.lock:
            self._stop()
            self.machine = machine
            if machine is None:
                return  # the last state can still be shown
            self.epoch += 1
            self.steps = []
            self.error = None
            self.advice = ()
            self.now_ns = 0
            self.utilisation = {}
            self._before = {}
            if isinstance(machine, Machine):
                self._watch = Watch(machine)
                self.windows = Windows(machine)
                self._watch.on_step.append(self.windows.stepped)
            else:
                self._watch = RealWatch(machine)
                self.windows = None
                self.advice = (Advice(rule="Real GPUs", text=f"{NOT_COUNTED} {nvml.why_missing()}".strip(), line=""),)
            self.curves = self._watch.curves
            # A front end may open the comm while a cell runs: then this is not the cell's thread.
            other_thread = self.busy and threading.current_thread() is not threading.main_thread()
            self._watch.start()
            if not other_thread:
                if self.busy and self.windows is not None:
                    self.windows.begin()
                self._watch.look()

    # Called by the notebook's hooks, in the cell's thread.

    def begin(self) -> None:
        """Note that a cell begins."""
        self.busy = True
        if self._watch is not None:
            self._watch.begin()
            if self.windows is not None:
                self.windows.begin()

    def end(self, error: BaseException | None = None) -> None:
        """Note that a cell has ended, and its error, if any."""
        self.busy = False
        if error is not None:
            text = str(error).strip().splitlines()
            named = re.search(r"(?:GPU |cuda:)(\d+)", str(error))
            message = text[0][:300] if text else ""
            self.error = LastError(kind=type(error).__name__, message=message, device=int(named[1]) if named else None)
        if self._watch is not None:
            if self.windows is not None:
                self.windows.end()
            self._watch.look(thorough=True)
            self._advise()

    def _advise(self) -> None:
        """Look for advice in the last window, unless that was done."""
        trace = self.windows.trace if self.windows is not None else None
        if trace is None or trace is self._advised:
            return
        self._advised = trace
        findings = list(trace_advice(trace))[:ADVICE]
        self.advice = tuple(
            Advice(
                rule=found.title,
                text=f"{found.text} {found.remedy}".replace("`", ""),  # readers show it as it is
                line=place(found.line).label,
            )
            for found in findings
        )

    # Called for readers, in any thread.

    def poll(self) -> None:
        """Collect what the watch has seen, and read the counters."""
        with self.lock:
            machine, watch = self.machine, self._watch
            if machine is None or watch is None:
                return
            self.steps = [*self.steps, *watch.take()][-STEPS:]
            self.now_ns = max(self.now_ns, latest() if isinstance(machine, Machine) else machine.now_ns)
            self.devices = machine.snapshot().devices
            for device in self.devices:
                if isinstance(machine, Machine):
                    self._measure(device.slot, machine.cards[device.slot].ran(self.now_ns))
                elif (share := machine.readings(device.index).utilization) is not None:
                    self.utilisation[device.slot] = share

    def status(self) -> _Status:
        """What every message has, beside what is new to its reader."""
        collectives = totals(list(self.windows.collectives)) if self.windows is not None else ()
        return _Status(self.busy, self.error, self.machine is not None, self.advice, collectives)

    def _measure(self, slot: int, busy: int) -> None:
        """Measure utilisation: the share of the host's time since the last poll in which a kernel ran.

        `busy` is for how long kernels have run by now, ns: what is queued has not run yet.
        """
        now = self.now_ns
        before, then = self._before.get(slot, (0, 0))
        if now > then:
            share = (busy - before) / (now - then)
            self.utilisation[slot] = round(min(max(share, 0.0), 1.0), 3)
            self._before[slot] = (busy, now)


class _Status(NamedTuple):
    """What a message has in addition to rows, steps, devices and the timeline."""

    busy: bool
    error: LastError | None
    enabled: bool
    advice: tuple[Advice, ...]
    collectives: tuple[CollectiveTotal, ...]


@dataclass
class _Sent:
    """What a reader has been sent.

    Attributes
    ----------
    rows
        By slot, the number of the last row.
    step, timeline, allocations
        The numbers of the last ones.
    """

    rows: dict[int, int] = field(default_factory=dict)
    devices: tuple[DeviceSnapshot, ...] = ()
    step: int = -1
    timeline: int = 0
    allocations: int = 0
    status: _Status | None = None


class Reader:
    """One reader of a source: `message` is everything that is new to it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.seq = 0
        self._epoch = -1
        self._sent = _Sent()

    def forget(self) -> None:
        """Let the next message have the whole state."""
        self._epoch = -1

    def message(self) -> Telemetry | None:
        """The next message; None if there is nothing new."""
        source = self.source
        with source.lock:
            whole = self._epoch != source.epoch or self.seq == 0
            if whole:
                self._sent = _Sent()
            history = self._new_rows(whole=whole)
            steps = self._new_steps()
            devices = self._changed_devices()
            timeline = self._newer_timeline()
            allocations = self._newer_allocations()
            status, before = source.status(), self._sent.status
            if not whole and not (history or steps or devices or timeline or allocations or status != before):
                return None
            self._sent.status = status
            self._epoch = source.epoch
            self.seq += 1
            machine = source.machine
            return Telemetry(
                kind="state" if whole else "update",
                seq=self.seq,
                epoch=source.epoch,
                enabled=machine is not None,
                note="" if machine is not None else NO_MACHINE,
                spec=machine.spec.text if machine is not None else "",
                compute=machine.compute if machine is not None else "real",
                real=machine is not None and not isinstance(machine, Machine),
                now_ns=source.now_ns,
                busy=source.busy,
                devices=source.devices if whole else devices,
                utilisation=dict(source.utilisation),
                history=history,
                steps=steps,
                timeline=timeline,
                allocations=allocations,
                collectives=status.collectives if before is None or status.collectives != before.collectives else None,
                error=source.error,
                advice=status.advice if before is None or status.advice != before.advice else None,
            )

    def _new_rows(self, *, whole: bool) -> dict[int, tuple[Row, ...]]:
        history = {}
        for slot, curve in self.source.curves.items():
            new = curve.since(self._sent.rows.get(slot, 0))
            if new:
                history[slot] = new if whole else tuple(kept(new, NEW_ROWS))
            self._sent.rows[slot] = curve.number
        return history

    def _new_steps(self) -> tuple[tuple[int, int], ...]:
        steps = tuple(step for step in self.source.steps if step[1] > self._sent.step)
        if self.source.steps:
            self._sent.step = self.source.steps[-1][1]
        return steps

    def _changed_devices(self) -> tuple[DeviceSnapshot, ...]:
        changed = tuple(device for device in self.source.devices if device not in self._sent.devices)
        self._sent.devices = self.source.devices
        return changed

    def _newer_timeline(self) -> Timeline | None:
        timeline = self.source.windows.timeline if self.source.windows is not None else None
        if timeline is None or timeline.number <= self._sent.timeline:
            return None
        self._sent.timeline = timeline.number
        return timeline

    def _newer_allocations(self) -> tuple[DeviceAllocations, ...] | None:
        if self.source.windows is None:
            return None
        number, allocations = self.source.windows.allocations(busy=self.source.busy)
        if number <= self._sent.allocations:
            return None
        self._sent.allocations = number
        return allocations
