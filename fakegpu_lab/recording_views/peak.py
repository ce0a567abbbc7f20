"""What made the peak, as a table: the tensors that were held then, alike ones together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fakegpu_lab.formatting.table import Table
from fakegpu_lab.formatting.units import duration, percent, several, size
from fakegpu_lab.hardware.memory_categories import spoken

if TYPE_CHECKING:
    from fakegpu_lab.recording_views.allocations import Allocations, Tensor


class Group(NamedTuple):
    """Tensors that are alike: of one category, shape and dtype, made by one op at one line."""

    nbytes: int
    tensors: int
    category: str
    shape: str
    op: str
    line: str


def shape_of(tensor: Tensor) -> str:
    """Shape and dtype as people write them: ``1024×512 float32``; empty if the memory does not belong to a tensor."""
    return "" if tensor.shape is None else f"{'×'.join(map(str, tensor.shape)) or '0-dim'} {tensor.dtype}".strip()


def groups(found: Allocations) -> list[Group]:
    """What was held at the peak, alike tensors together, the largest groups first."""
    sums: dict[tuple[str, str, str, str], list[int]] = {}
    for tensor in found.tensors:
        if tensor.at_peak:
            frame = tensor.stack[0] if tensor.stack else None
            line = f"{frame.line}  {frame.text}".strip() if frame else "" if tensor.first else "before the recording"
            op = tensor.op.removeprefix("aten::") if tensor.first else ""
            sums.setdefault((tensor.category, shape_of(tensor), op, line), []).append(tensor.nbytes)
    made = [Group(sum(sizes), len(sizes), *kind) for kind, sizes in sums.items()]
    return sorted(made, key=lambda group: -group.nbytes)


def table(found: Allocations, top: int | None = 10) -> Table:
    """The tensors held at the peak, the largest groups first; one more row sums up the others."""
    ordered = groups(found)
    shown = len(ordered) if top is None else top
    rows = [
        [size(nbytes), percent(nbytes, found.peak), f"{tensors:,}", spoken(category), *rest]
        for nbytes, tensors, category, *rest in ordered[:shown]
    ]
    rest = ordered[shown:]
    if rest:
        held, count = sum(group.nbytes for group in rest), sum(group.tensors for group in rest)
        rows.append([size(held), percent(held, found.peak), f"{count:,}", "others", "", "", ""])
    return Table(
        ["memory", "share", "tensors", "category", "shape", "made by", "line"], rows, sentence(found),
        frozenset({0, 1, 2}), found.note,
    )  # fmt: skip


def sentence(found: Allocations, began_ns: int | None = None) -> str:
    """How high the peak was, and when: since the recording began, or in simulated time if that is `began_ns`."""
    if not found.peak_step:
        return f"cuda:{found.device} held most at the beginning: {size(found.peak)}"
    during = next((f", in {r.name}" for r in found.phases if r.first <= found.peak_step < r.last), "")
    when = found.times_ns[found.peak_step - 1]
    after = f"after {duration(when)}" if began_ns is None else f"at {duration(began_ns + when)}"
    return (
        f"Peak of cuda:{found.device}: {size(found.peak)}, {after}{during} "
        f"({several(sum(tensor.at_peak for tensor in found.tensors), 'tensor')})"
    )
