"""Drawings of memory: an allocator's segments and blocks; a bar by category."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.formatting.drawing import INK, PALETTE, Drawing, ink_on, legend
from fakegpu_lab.formatting.units import capacity, several, size
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.hardware.memory_categories import COLOURS, spoken

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_STATES = {
    "active_allocated": ("tensor", "#0072b2", 0.85),
    "active_pending_free": ("freed, still used by a stream", "#e69f00", 0.85),
    "active_awaiting_free": ("freed, still used by a stream", "#e69f00", 0.85),
    "inactive": ("free", "#9a9a9a", 0.18),
}
"""The states of blocks in ``torch.cuda.memory_snapshot()``."""

_WIDTH, _LEFT = 600.0, 84.0


def allocator(segments: Sequence[Mapping[str, Any]] | None = None, most: int = 12) -> Drawing:
    """Draw the caching allocator's segments and their blocks.

    Parameters
    ----------
    segments
        What ``torch.cuda.memory_snapshot()`` returns; by default that, at this moment.
    most
        How many segments are drawn, the largest first.

    Examples
    --------
    >>> from fakegpu_lab.course.draw import allocator
    >>> block = {"size": 2**20, "state": "active_allocated"}, {"size": 2**20, "state": "inactive"}
    >>> print(allocator([{"total_size": 2**21, "blocks": block}]))
    1 segment of 2.00 MiB in all, 1.00 MiB of it in tensors. Segment 1, 2.00 MiB: tensor 1.00 MiB, free 1.00 MiB.
    """
    if segments is None:
        import torch

        segments = torch.cuda.memory_snapshot()
    shown = sorted(segments, key=lambda segment: -segment["total_size"])[:most]
    row, top = 34.0, 14.0
    largest = max((segment["total_size"] for segment in shown), default=1)
    left_out = len(segments) - len(shown)
    several_gpus = len({segment.get("device") for segment in segments}) > 1
    left = _LEFT + 54 if several_gpus else _LEFT
    drawn = Drawing(_WIDTH, top + row * max(len(shown), 1) + 24 + 20 * bool(left_out))
    told, used = [], dict[str, tuple[str, str]]()
    for number, segment in enumerate(shown, 1):
        y = top + row * (number - 1)
        row_name = f"cuda:{segment['device']}, segment {number}" if several_gpus else f"segment {number}"
        drawn.text(left - 8, y + 16, row_name, anchor="end")
        x, blocks = left, []
        for block in segment["blocks"]:  # in the order of their addresses
            name, colour, opacity = _STATES.get(block["state"], _STATES["inactive"])
            width = (_WIDTH - left - 10) * block["size"] / largest
            held = size(block["size"])
            drawn.rect(x, y, width, 24, colour, opacity=opacity, hint=f"{name}: {held}")
            ink = ink_on(colour) if opacity > 0.5 else INK
            drawn.text(x + width / 2, y + 16, held, anchor="middle", colour=ink, within=width - 4)
            used[name] = (name, f"{colour}{round(255 * opacity):02x}")
            blocks.append(f"{name} {held}")
            x += width
        where = f" on cuda:{segment['device']}" if "device" in segment else ""
        told.append(f"Segment {number}{where}, {size(segment['total_size'])}: {', '.join(blocks)}.")
    if left_out:
        held = size(sum(segment["total_size"] for segment in segments) - sum(one["total_size"] for one in shown))
        rest = f"{len(shown)} of {len(segments)} segments, the largest; the others hold {held}."
        drawn.text(left, drawn.height - 26, rest)
        told.append(rest)
    legend(drawn, left, drawn.height - 6, list(used.values()))
    whole = sum(segment["total_size"] for segment in segments)
    active = sum(b["size"] for s in segments for b in s["blocks"] if b["state"] == "active_allocated")
    first = f"{several(len(segments), 'segment')} of {size(whole)} in all, {size(active)} of it in tensors."
    drawn.words = " ".join([first, *told])
    return drawn


def memory_bar(parts: Mapping[str, float], total: float | None = None) -> Drawing:
    """Draw memory as a bar of parts, with the rest of `total` free.

    Parameters
    ----------
    parts
        Bytes by name. The categories of memory (``parameters``, ``optimizer state``, …) have the colors that they have
        everywhere, as with ``memory_bar(lab.snapshot(categories=True).devices[0].memory.categories.model_dump())``; any
        other part has a color that no category has in this bar.
    total
        The bytes of the whole bar, such as a card's; by default the sum. If the parts need more, a line marks where the
        memory ends.

    Examples
    --------
    >>> from fakegpu_lab.course.draw import memory_bar
    >>> print(memory_bar({"parameters": 2**30, "gradients": 2**30, "optimizer_state": 2**31}, 80 * 2**30))
    4.00 GiB of 80.00 GiB: parameters 1.00 GiB, gradients 1.00 GiB, optimizer state 2.00 GiB.
    >>> print(memory_bar({"parameters": 2**30, "gradients": 2**30}, 1.5 * 2**30))
    2.00 GiB of 1.50 GiB: parameters 1.00 GiB, gradients 1.00 GiB. 512 MiB do not fit.
    """
    held = {name: round(nbytes) for name, nbytes in parts.items() if nbytes}
    if any(nbytes < 0 for nbytes in held.values()):
        raise FakeGpuError("memory_bar: every part must have 0 bytes or more.")
    needed, room = sum(held.values()), round(total) if total else 0
    over = max(needed - room, 0) if room else 0
    whole = max(room, needed, 1)
    drawn = Drawing(_WIDTH, 74)
    known = {name: COLOURS[name.replace(" ", "_")] for name in held if name.replace(" ", "_") in COLOURS}
    others = [color for color in PALETTE if color not in known.values()] or list(PALETTE)
    own = iter(others * (1 + len(held) // len(others)))
    colors = {name: known.get(name) or next(own) for name in held}
    x, width, top = 4.0, _WIDTH - 8, 10.0 + (18 if over else 0)
    drawn.height += top - 10
    drawn.rect(x, top, width, 28, "#9a9a9a", opacity=0.15, hint="free")
    for name, nbytes in held.items():
        part = width * nbytes / whole
        drawn.rect(x, top, part, 28, colors[name], opacity=0.9, hint=f"{spoken(name)}: {size(nbytes)}")
        x += part
    rest = whole - needed
    drawn.text(_WIDTH - 12, top + 18, f"free: {size(rest)}", anchor="end", within=4 + width - x - 8 if rest else 0)
    if over:  # where the memory ends, and what lies beyond it
        end = 4 + width * room / whole
        drawn.line((end, top - 14), (end, top + 34))
        drawn.text(end - 6, top - 5, f"{capacity(room)} in all", anchor="end", within=end - 10)
        drawn.text(end + 6, top - 5, f"{size(over)} too many", within=_WIDTH - end - 10)
    legend(drawn, 4, top + 50, [(f"{spoken(name)} {size(nbytes)}", colors[name]) for name, nbytes in held.items()])
    listed = ", ".join(f"{spoken(name)} {size(nbytes)}" for name, nbytes in held.items())
    of = f" of {capacity(room)}" if room else ""
    drawn.words = f"{size(needed)}{of}: {listed or 'nothing'}." + (f" {size(over)} do not fit." if over else "")
    return drawn
