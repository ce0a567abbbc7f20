"""``%fakegpu footer on``: after each cell that used a simulated GPU, one line of what it did."""

from __future__ import annotations

from typing import TypeAlias

from fakegpu_lab import session
from fakegpu_lab.formatting.units import duration, several, size

_Figures: TypeAlias = "tuple[object, int, tuple[int, int, int], tuple[int, ...]]"

_on = False
_before: _Figures | None = None


def switch(on: bool) -> None:
    """Print the line from the next cell on, or no more."""
    global _on, _before
    _on, _before = on, None


def _figures() -> _Figures:
    """The machine, its time, (kernels, copies, bytes copied), the devices' peaks."""
    snapshot = session.snapshot()
    counters = [device.counters for device in snapshot.devices]
    did = (
        sum(each.kernels for each in counters),
        sum(each.h2d_count + each.d2h_count + each.p2p_sent_count for each in counters),
        sum(each.h2d_bytes + each.d2h_bytes + each.p2p_sent_bytes for each in counters),
    )
    return session.machine(), snapshot.done_ns, did, tuple(device.memory.peak_allocated for device in snapshot.devices)


def begin() -> None:
    """A cell begins."""
    global _before
    _before = _figures() if _on and session.enabled() else None


def line() -> str:
    """What the cell did; empty if that was nothing."""
    if not session.enabled():
        return ""
    machine, now, did, peaks = _figures()
    known = _before is not None and _before[0] is machine
    _, then, old, _ = _before if known and _before is not None else (machine, 0, (0, 0, 0), ())
    kernels, copies, copied = did[0] - old[0], did[1] - old[1], did[2] - old[2]
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
    """A cell has ended."""
    if _on:
        text = line()
        if text:
            print(text)
