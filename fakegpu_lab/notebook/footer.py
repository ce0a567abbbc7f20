"""``%fakegpu footer on``: a line after each cell that used a simulated GPU, with what it did."""

from __future__ import annotations

from typing import TypeAlias

from fakegpu_lab import session
from fakegpu_lab.formatting.units import duration, several, size

_Figures: TypeAlias = "tuple[object, int, tuple[int, int, int], tuple[int, ...]]"

_on = False
_before: _Figures | None = None


def switch(on: bool) -> None:
    """Print the line from the next cell on, or stop printing it."""
    global _on, _before
    _on, _before = on, None


def _figures() -> _Figures:
    """The machine, its time, (kernels, copies, bytes copied), and the devices' peaks."""
    snapshot = session.snapshot()
    counters = [device.counters for device in snapshot.devices]
    counts = (
        sum(each.kernels for each in counters),
        sum(each.h2d_count + each.d2h_count + each.p2p_sent_count for each in counters),
        sum(each.h2d_bytes + each.d2h_bytes + each.p2p_sent_bytes for each in counters),
    )
    return (
        session.machine(),
        snapshot.done_ns,
        counts,
        tuple(device.memory.peak_allocated for device in snapshot.devices),
    )


def begin() -> None:
    """Note the figures before a cell runs."""
    global _before
    _before = _figures() if _on and session.enabled() else None


def line() -> str:
    """What the cell did; empty if it used no GPU."""
    if not session.enabled():
        return ""
    machine, now, counts, peaks = _figures()
    same_machine = _before is not None and _before[0] is machine
    _, then, old, _ = _before if same_machine and _before is not None else (machine, 0, (0, 0, 0), ())
    kernels, copies, copied = (count - before for count, before in zip(counts, old, strict=True))
    if not (kernels or copies):
        return ""
    moved = f" ({size(copied)})" if copied else ""
    most = max(peaks)
    where = f" on cuda:{peaks.index(most)}" if len(peaks) > 1 else ""
    return (
        f"[{duration(now - then)} simulated · {several(kernels, 'kernel')} · "
        f"{several(copies, 'transfer')}{moved} · peak memory {size(most)}{where}]"
    )


def end() -> None:
    """Print the line after a cell has run."""
    if _on:
        text = line()
        if text:
            print(text)
