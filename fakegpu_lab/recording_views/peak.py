"""What made the peak, as a table: the tensors that were held then, alike ones together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab.formatting.table import Table
from fakegpu_lab.formatting.units import duration, percent, several, size
from fakegpu_lab.hardware.memory_categories import spoken

if TYPE_CHECKING:
    from fakegpu_lab.recording_views.allocations import Allocations, Tensor


def _kind(tensor: Tensor) -> tuple[str, str, str, str]:
    """What alike tensors have in common: category, shape, op, line."""
    shape = "" if tensor.shape is None else "×".join(map(str, tensor.shape)) or "0-dim"
    frame = tensor.stack[0] if tensor.stack else None
    where = f"{frame.line}  {frame.text}".strip() if frame else "" if tensor.first else "before the recording"
    op = tensor.op.removeprefix("aten::") if tensor.first else ""
    return spoken(tensor.category), f"{shape} {tensor.dtype}".strip(), op, where


def table(found: Allocations, top: int | None = 10) -> Table:
    """The tensors held at the peak, the largest groups first; one more row sums up the others."""
    groups: dict[tuple[str, str, str, str], list[Tensor]] = {}
    for tensor in found.tensors:
        if tensor.at_peak:
            groups.setdefault(_kind(tensor), []).append(tensor)
    ordered = sorted(groups.items(), key=lambda item: -sum(tensor.nbytes for tensor in item[1]))
    shown = len(ordered) if top is None else top
    rows = [
        [size(held := sum(t.nbytes for t in tensors)), percent(held, found.peak), f"{len(tensors):,}", *kind]
        for kind, tensors in ordered[:shown]
    ]
    rest = [tensor for _, tensors in ordered[shown:] for tensor in tensors]
    if rest:
        held = sum(tensor.nbytes for tensor in rest)
        rows.append([size(held), percent(held, found.peak), f"{len(rest):,}", "others", "", "", ""])
    return Table(
        ["memory", "share", "tensors", "what for", "shape", "made by", "line"], rows, sentence(found),
        frozenset({0, 1, 2}), found.note,
    )  # fmt: skip


def sentence(found: Allocations) -> str:
    """How high the peak was, and when."""
    if not found.peak_step:
        return f"cuda:{found.device} held most at the beginning: {size(found.peak)}"
    during = next((f", in {r.name}" for r in found.phases if r.first <= found.peak_step < r.last), "")
    after = duration(found.times_ns[found.peak_step - 1])
    return (
        f"Peak of cuda:{found.device}: {size(found.peak)}, after {after}{during} "
        f"({several(sum(tensor.at_peak for tensor in found.tensors), 'tensor')})"
    )
