"""Where telemetry comes from: one `Source` a kernel watches the machine and remembers what readers will ask for."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

from fakegpu_lab import session
from fakegpu_lab.advice import advise as trace_advice
from fakegpu_lab.driver.memory_report.live_categories import Watch
from fakegpu_lab.hardware.memory_categories import NAMES
from fakegpu_lab.notebook.telemetry.messages import Advice, LastError, Telemetry
from fakegpu_lab.notebook.telemetry.rolling_window import Windows, totals
from fakegpu_lab.timeline.labels import place

if TYPE_CHECKING:
    from fakegpu_lab.hardware.machine import Machine
    from fakegpu_lab.hardware.snapshot import DeviceSnapshot
    from fakegpu_lab.notebook.telemetry.messages import Row

ROWS = 600
"""Of a device's history; of more, every other one of the older half goes, but never the highest of its neighbours."""

ADVICE = 6
"""Findings that are told, the dearest first."""

STEPS = 400
"""Marks of steps; the last ones."""

NO_MACHINE = "There is no simulated GPU in this notebook. %fakegpu a100:2 enables two."


class History:
    """The rows of one device, each with a number that grows."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, Row]] = []
        self._number = 0

    def add(self, row: Row) -> None:
        """Append a row; one at the same moment, or of the same state as the two before, replaces the last."""
        rows = self.rows
        self._number += 1
        if rows and (rows[-1][1][0] == row[0] or (len(rows) > 1 and row[1:] == rows[-1][1][1:] == rows[-2][1][1:])):
            rows[-1] = (self._number, row)
        else:
            rows.append((self._number, row))
        if len(rows) > ROWS:
            self._thin()

    def _thin(self) -> None:
        old, new = self.rows[: ROWS // 2], self.rows[ROWS // 2 :]
        held = len(NAMES) + 1
        kept = [max(pair, key=lambda entry: sum(entry[1][1:held])) for pair in zip(old[::2], old[1::2], strict=False)]
        self.rows = kept + new

    def since(self, number: int) -> tuple[Row, ...]:
        """The rows that came after that number."""
        return tuple(row for found, row in self.rows if found > number)

    @property
    def number(self) -> int:
        """The last row's number."""
        return self._number


class Source:
    """Watches whichever machine is enabled, from `open` to `close`. Readers come and go (`Reader`)."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.epoch = 0
        self.busy = False
        self.error: LastError | None = None
        self.advice: tuple[Advice, ...] = ()
        self._advised: object = None
        self.histories: dict[int, History] = {}
        self.steps: list[tuple[int, int]] = []
        self.now_ns = 0
        self.machine: Machine | None = None
        self.utilisation: dict[int, float] = {}
        self.devices: tuple[DeviceSnapshot, ...] = ()
        self._watch: Watch | None = None
        self.windows: Windows | None = None
        self._before: dict[int, tuple[int, int]] = {}

    def open(self) -> None:
        """Begin to watch; the machine may change meanwhile."""
        if self._changed not in session.on_change:
            session.on_change.append(self._changed)
            self._changed(session.machine() if session.enabled() else None)

    def close(self) -> None:
        """Watch no more; what is known stays."""
        if self._changed in session.on_change:
            session.on_change.remove(self._changed)
        self._stop()

    def _stop(self) -> None:
        if self.windows is not None:
            self.windows.stop()
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    def _changed(self, machine: Machine | None) -> None:
        with self.lock:
            self._stop()
            self.machine = machine
            if machine is None:
                return  # what was known can still be looked at
            self.epoch += 1
            self.histories = {card.slot: History() for card in machine.cards}
            self.steps = []
            self.error = None
            self.now_ns = 0
            self.utilisation = {}
            self._before = {}
            self._watch = Watch(machine)
            self.windows = Windows(machine)
            self._watch.on_step.append(self.windows.stepped)
            # A front end may open while a cell runs: then this is not the cell's thread.
            beside = self.busy and threading.current_thread() is not threading.main_thread()
            self._watch.start()
            if not beside:
                if self.busy:
                    self.windows.begin()
                self._watch.look()

    # What happens in the notebook; in the thread of the cell.

    def begin(self) -> None:
        """A cell begins."""
        self.busy = True
        if self._watch is not None and self.windows is not None:
            self._watch.begin()
            self.windows.begin()

    def end(self, error: BaseException | None = None) -> None:
        """A cell has ended, with this error if any."""
        self.busy = False
        if error is not None:
            text = str(error).strip().splitlines()
            named = re.search(r"(?:GPU |cuda:)(\d+)", str(error))
            said = text[0][:300] if text else ""
            self.error = LastError(kind=type(error).__name__, message=said, device=int(named[1]) if named else None)
        if self._watch is not None and self.windows is not None:
            self.windows.end()
            self._watch.look(thorough=True)
            self._advise()

    def _advise(self) -> None:
        """Look through the last window for what could be better, once."""
        trace = self.windows.trace if self.windows is not None else None
        if trace is None or trace is self._advised:
            return
        self._advised = trace
        findings = list(trace_advice(trace))[:ADVICE]
        self.advice = tuple(
            Advice(rule=found.title, text=f"{found.text} {found.remedy}", line=place(found.line).label)
            for found in findings
        )

    # What readers read; in any thread.

    def poll(self) -> None:
        """Take in what the watch has seen, and read the counters."""
        with self.lock:
            machine, watch = self.machine, self._watch
            if machine is None or watch is None:
                return
            looks, steps = watch.take()
            self.steps = [*self.steps, *steps][-STEPS:]
            for look in looks:
                self.now_ns = max(self.now_ns, look.now_ns)
                for card, sums, reserved in zip(machine.cards, look.categories, look.reserved, strict=True):
                    values = (getattr(sums, name) for name in NAMES)
                    self.histories[card.slot].add((look.now_ns, *values, reserved))
            self.devices = machine.snapshot().devices
            for device in self.devices:
                self._measure(device)

    def _measure(self, device: DeviceSnapshot) -> None:
        """Utilisation: of the time between two looks, the part in which a kernel ran."""
        now = max(self.now_ns, device.time.done_ns)
        busy, then = self._before.get(device.slot, (0, 0))
        if now > then:
            share = (device.time.busy_ns - busy) / (now - then)
            self.utilisation[device.slot] = round(min(max(share, 0.0), 1.0), 3)
            self._before[device.slot] = (device.time.busy_ns, now)


class Reader:
    """One reader's place in what a source tells: `message` is all that is new to it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.seq = 0
        self._epoch = -1
        self._numbers: dict[int, int] = {}
        self._devices: tuple[DeviceSnapshot, ...] = ()
        self._steps = -1
        self._timeline = 0
        self._told: tuple[Any, ...] = ()

    def forget(self) -> None:
        """Have the next message tell all."""
        self._epoch = -1

    def message(self) -> Telemetry | None:
        """The next message; None if there is nothing new."""
        source = self.source
        with source.lock:
            whole = self._epoch != source.epoch or self.seq == 0
            if whole:
                self._numbers, self._devices, self._steps, self._timeline, self._told = {}, (), -1, 0, ()
            history = {}
            for slot, rows in source.histories.items():
                new = rows.since(self._numbers.get(slot, 0))
                if new:
                    history[slot] = new
                self._numbers[slot] = rows.number
            steps = tuple(step for step in source.steps if step[1] > self._steps)
            self._steps = source.steps[-1][1] if source.steps else self._steps
            changed = tuple(device for device in source.devices if device not in self._devices)
            self._devices = source.devices
            timeline = source.windows.timeline if source.windows is not None else None
            newer = timeline if timeline is not None and timeline.number > self._timeline else None
            self._timeline = newer.number if newer is not None else self._timeline
            collectives = totals(list(source.windows.collectives)) if source.windows is not None else ()
            told = (source.busy, source.error, source.machine is not None, source.advice, collectives)
            if not whole and not (history or steps or changed or newer or told != self._told):
                return None
            before, self._told = self._told, told
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
                now_ns=source.now_ns,
                busy=source.busy,
                devices=source.devices if whole else changed,
                utilisation=dict(source.utilisation),
                history=history,
                steps=steps,
                timeline=newer,
                collectives=collectives if whole or collectives != before[4] else None,
                error=source.error,
                advice=source.advice if whole or source.advice != before[3] else None,
            )
