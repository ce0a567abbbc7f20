"""The hover texts of a figure's bars, in the HTML that plotly understands."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from fakegpu_lab.formatting.units import amount, duration, rate, several, size
from fakegpu_lab.hardware.time.records import Collective, Kernel, Transfer
from fakegpu_lab.recording_views.labels import place, shapes

if TYPE_CHECKING:
    from collections import Counter

    from fakegpu_lab.hardware.time.records import HostWork, Record, Wait

_TEXT = 70
"""The most characters of a source line that are shown."""


def ran(record: Kernel | Transfer | Collective, before: Record | None, *, measured: bool = False) -> str:
    """Describe a kernel, copy or collective; `before` is the previous record on the same stream.

    Of a real card, when it began is `measured`, and why is known only of kernels behind others in their stream.
    """
    ns = record.end_ns - record.start_ns
    facts = [duration(ns)]
    lines = [_bold(record.name)]
    if isinstance(record, Kernel):
        lines[0] += " (backward)" if record.backward else ""
        if record.function and record.function != record.name:
            lines.append(html.escape(_shortened(record.function)))
        if record.shapes:
            lines.append(shapes(record.shapes))
        if record.flops:
            facts += [amount(record.flops, "FLOP"), rate(record.flops, ns, "FLOP/s")]
    elif isinstance(record, Collective):
        how = html.escape(f"{record.algorithm} {record.protocol}".strip())
        group = f"group {html.escape(record.group)}, " if record.group else ""
        lines.append(f"{group}number {record.number}, rank {record.rank} of {len(record.ranks)}, {how}")
        if record.joined_ns > record.start_ns:
            facts = [f"{duration(record.joined_ns - record.start_ns)} for the slowest rank"]
            ns = record.end_ns - record.joined_ns
            facts.append(f"then {duration(ns)}")
        facts.append(size(record.nbytes) if record.nbytes else "")
        facts.append(f"bus {amount(record.bus_bandwidth, 'B/s')}" if record.bus_bandwidth else "")
    if not isinstance(record, Collective):
        facts += [size(record.nbytes), rate(record.nbytes, ns, "B/s")] if record.nbytes else []
    lines.append(", ".join(fact for fact in facts if fact))
    return "<br>".join(
        [*lines, f"stream {record.stream}; {began(record) if measured else why(record, before)}", *_where(record)]
    )


def began(record: Kernel | Transfer | Collective) -> str:
    """When a record of a real card began, after its launch."""
    waited = record.start_ns - record.launched_ns
    if not record.thread:
        return "its launch was not recorded"
    if waited <= 0:
        return "began during its launch"
    behind = " behind other work in its stream" if isinstance(record, Kernel) and record.waited_for else ""
    return f"began {duration(waited)} after its launch{behind}"


def _shortened(text: str) -> str:
    return text if len(text) <= _TEXT else text[: _TEXT - 1] + "…"


def why(record: Kernel | Transfer | Collective, before: Record | None) -> str:
    """What a record waited for: its launch, its stream, an event, the card or the copy engine."""
    waited = record.start_ns - record.launched_ns
    if waited <= 0:
        idle = record.start_ns - before.end_ns if before is not None else 0
        return f"its stream was idle {duration(idle)}: waited for the launch" if idle > 0 else "began when launched"
    text = f"waited {duration(waited)} "
    if isinstance(record, Kernel) and record.waited_for == "the card":
        return text + "for room on the card"
    if before is not None and before.end_ns >= record.start_ns:
        return text + "for the work before it in its stream"
    if isinstance(record, Transfer):
        return text + "for an event or the copy engine"
    return text + "for an event, that is for another stream"


def launch(record: Kernel | Transfer | Collective) -> str:
    """Describe a launch by what it launched."""
    return "<br>".join([f"launches {_bold(record.name)} on cuda:{record.device} stream {record.stream}",
                        *_where(record)])  # fmt: skip


def wait(record: Wait) -> str:
    """Describe a wait of the host, and its reason."""
    lines = [f"<b>the host waits</b> {duration(record.end_ns - record.start_ns)} for cuda:{record.device}"]
    return "<br>".join([*lines, html.escape(record.name), *_where(record)])


def host_work(record: HostWork) -> str:
    """Describe work on the host."""
    return "<br>".join([f"{_bold(record.name)} {duration(record.end_ns - record.start_ns)}", *_where(record)])


def module(path: str, kind: str) -> str:
    """The first line for a module's span."""
    return f"{_bold(path)} ({kind})<br>"


def lasting(ns: int, kernels: int) -> str:
    """The second line for a module's span: how long it is."""
    return f"{duration(ns)}, {several(kernels, 'kernel')}"


def together(count: int, ns: int, names: Counter[str]) -> str:
    """Describe bars that are drawn as one."""
    most = ", ".join(f"{number:,} × {html.escape(name)}" for name, number in names.most_common(3))
    return f"<b>{count:,} together</b> in {duration(ns)}<br>{most}<br>figure(start=…, end=…) shows them apart"


def _bold(name: str) -> str:
    return f"<b>{html.escape(name)}</b>"


def _where(record: Record) -> list[str]:
    lines = [f"module {html.escape(record.module)}"] if record.module else []
    found = place(record.line)
    if found.label:
        text = _shortened(found.text)
        lines.append(f"{html.escape(found.label)}" + (f"<br>  <i>{html.escape(text)}</i>" if text else ""))
    return lines
