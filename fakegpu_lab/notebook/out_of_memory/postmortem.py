"""The post-mortem of an out-of-memory error: what filled the device, what was requested, what would have fit."""

from __future__ import annotations

import html
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fakegpu_lab.formatting.table import Table
from fakegpu_lab.formatting.units import capacity, percent, several, size
from fakegpu_lab.hardware.memory_categories import COLOURS, NAMES, spoken
from fakegpu_lab.notebook.out_of_memory.remedies import Remedy, remedies
from fakegpu_lab.recording_views.labels import place

if TYPE_CHECKING:
    from fakegpu_lab.driver.memory_report.out_of_memory import Facts

_PHASES = {
    "forward": "in forward", "backward": "in backward", "optimizer": "in the optimizer's step",
    "move": "while the module moved to the device", "other": "",
}  # fmt: skip

_RECORDING_NOTE = (
    "To see the lines that made them, run the program under lab.record() or after "
    "torch.cuda.memory._record_memory_history()."
)

_THIN, _ALL = 0.02, "var(--jp-ui-font-color2, #5f6672)"
"""The share of the bar below which all tensors are one part of it, and that part's colour."""

_REQUEST = "repeating-linear-gradient(45deg, #b3261e 0 5px, #e07a74 5px 10px)"
"""The request's colour: striped, unlike what tensors hold."""


def take() -> PostMortem | None:
    """The post-mortem of the last out-of-memory error, if there was one since the last call."""
    # Without a machine, the driver was not imported.
    out_of_memory: Any = sys.modules.get("fakegpu_lab.driver.memory_report.out_of_memory")
    if out_of_memory is None or out_of_memory.last is None:
        return None
    found = PostMortem(out_of_memory.last)
    out_of_memory.forget()
    return found


def caused(error: BaseException | None) -> bool:
    """Whether an error is an out-of-memory error, or was raised from one."""
    import torch

    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, torch.OutOfMemoryError):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


@dataclass(frozen=True)
class PostMortem:
    """A post-mortem: text in a terminal, HTML in a notebook."""

    facts: Facts

    @property
    def _request(self) -> str:
        facts = self.facts
        who = place(facts.line).label if facts.line else "The program"
        where = [_PHASES[facts.phase], facts.module and f"of {facts.module}"]
        parts = [facts.op, " ".join(part for part in where if part)]
        how = ", ".join(part for part in parts if part)
        available = f"{capacity(facts.room)} available to them"
        if facts.room < facts.total:
            available += f" (the GPU has {capacity(facts.total)}; CUDA itself and other programs take the rest)"
        said = (
            f"{who} requested {size(facts.asked)}{f' ({how})' if how else ''}. Tensors were using "
            f"{size(facts.allocated)} of the {available}."
        )
        if facts.too_large:
            said += (
                " This one request is larger than all of that: freeing other tensors cannot make room for it. Is its "
                "shape what you meant?"
            )
        return said

    @property
    def _by_category(self) -> Table:
        held = self.facts.categories.model_dump()
        rows = [
            [spoken(name), size(held[name]), percent(held[name], self.facts.room)]
            for name in sorted(NAMES, key=lambda name: -held[name])
            if held[name]
        ]
        # As CUDA's own message counts: what PyTorch has reserved is not free, although no tensor is in it.
        facts = self.facts
        kept = ("reserved by PyTorch, not in use", facts.reserved - facts.allocated)
        for name, nbytes in (kept, ("free", facts.room - facts.reserved)):
            rows.append([name, size(nbytes), percent(nbytes, facts.room)])
        return Table(["part of its memory", "size", "share of available"], rows, numbers=frozenset({1, 2}))

    @property
    def _largest(self) -> Table:
        facts = self.facts
        lines = [place(holder.line).label for holder in facts.largest]
        rows = [
            [
                size(holder.nbytes),
                "×".join(map(str, holder.shape)) or "0-dim",
                holder.dtype,
                spoken(holder.category),
                holder.what,
                *([line] if any(lines) else []),
            ]
            for holder, line in zip(facts.largest, lines, strict=True)
        ]
        note = "" if facts.recorded else _RECORDING_NOTE
        headers = ["largest", "shape", "dtype", "category", "which", *(["made at"] if any(lines) else [])]
        return Table(headers, rows, numbers=frozenset({0}), note=note)

    @property
    def _fragmentation(self) -> str:
        facts = self.facts
        if facts.too_large:
            return ""
        unused = facts.reserved - facts.allocated
        if not unused:
            return f"Nothing was lost to fragmentation: tensors filled all of the {size(facts.reserved)} reserved."
        return (
            f"Of the {size(facts.reserved)} reserved, {size(unused)} were free in {several(facts.pieces, 'piece')}, "
            f"the largest {size(facts.largest_piece)}; {size(facts.free)} of the GPU's memory were not reserved."
        )

    @property
    def remedies(self) -> list[Remedy]:
        """What would have fit."""
        return remedies(self.facts)

    @property
    def _only_this(self) -> str:
        """A sentence below the remedies' heading: outside a model's step, what would have come next is not known."""
        if self.facts.phase in ("forward", "backward", "optimizer"):
            return ""
        return "This counts only the request that failed: what your program does next needs memory, too."

    @property
    def _title(self) -> str:
        return f"Why cuda:{self.facts.device} ({self.facts.name}, {capacity(self.facts.total)}) was out of memory"

    def __str__(self) -> str:
        lines = [self._title, self._request, "", str(self._by_category)]
        if self.facts.largest and not self.facts.too_large:
            lines += ["", str(self._largest)]
        lines += ["", self._fragmentation] if self._fragmentation else []
        if self.remedies:
            lines += ["", "What would have fit:", *([self._only_this] if self._only_this else [])]
            lines += [f"  {n}. {remedy.what}:\n     {remedy.why}" for n, remedy in enumerate(self.remedies, 1)]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        facts = self.facts
        steps = "".join(
            f"<li><b>{html.escape(remedy.what)}</b>: {html.escape(remedy.why)}</li>" for remedy in self.remedies
        )
        only = f"<div>{self._only_this}</div>" if self._only_this else ""
        fitted = f"<div><b>What would have fit</b></div>{only}<ol>{steps}</ol>" if steps else ""
        summary = f"<summary>The {len(facts.largest)} largest tensors</summary>"
        largest = (
            f"<details>{summary}{self._largest._repr_html_()}</details>"
            if facts.largest and not facts.too_large
            else ""
        )
        pieces = f"<p>{html.escape(self._fragmentation)}</p>" if self._fragmentation else ""
        return (
            f'<div style="margin-top: 10px"><b>{html.escape(self._title)}</b></div>'
            f"<p>{html.escape(self._request)}</p>{self._bar()}"
            f"{self._by_category._repr_html_()}{largest}{pieces}{fitted}"
        )

    def _bar(self) -> str:
        """What tensors held, the request on top of it, a line where the available memory ends; and the colours' key."""
        facts = self.facts
        held = facts.categories.model_dump()
        scale = max(facts.room, facts.allocated + facts.asked)
        parts = [(spoken(name), held[name], COLOURS[name]) for name in NAMES if held[name]]
        if facts.allocated < _THIN * scale:  # too thin to see their colours
            parts = [("all tensors", facts.allocated, _ALL)] if facts.allocated else []
        parts.append(("the request", facts.asked, _REQUEST))
        drawn = "".join(
            f'<div title="{name}: {nbytes:,} bytes" style="width: {100 * nbytes / scale:.3f}%; '
            f'background: {colour}"></div>'
            for name, nbytes, colour in parts
        )
        end = f"left: {100 * facts.room / scale:.3f}%; border-left: 3px solid var(--jp-ui-font-color1, #333333)"
        swatch = "display: inline-block; width: 11px; height: 11px; margin-right: 5px"
        key = "".join(
            f'<li style="white-space: nowrap"><span style="{swatch}; background: {colour}"></span>{name} '
            f"{size(nbytes)}</li>"
            for name, nbytes, colour in parts
        )
        key += (
            f'<li style="white-space: nowrap"><span style="{swatch}; width: 3px; background: '
            f'var(--jp-ui-font-color1, #333333)"></span>end of the {capacity(facts.room)} available</li>'
        )
        return (
            f'<div role="img" aria-label="{html.escape(self._request)}" style="position: relative; max-width: 900px; '
            f'padding: 4px 0"><div style="display: flex; height: 16px; border: 1px solid #888888">{drawn}</div>'
            f'<div style="position: absolute; top: 0; bottom: 0; {end}"></div></div>'
            '<ul aria-label="Colors" style="display: flex; flex-wrap: wrap; gap: 0 14px; margin: 2px 0 8px; padding: '
            f'0; list-style: none">{key}</ul>'
        )


def watch(machine: Any = None) -> None:
    """Gather the facts of out-of-memory errors on the enabled machine (`session.on_change`)."""
    if machine is not None:
        from fakegpu_lab.driver.memory_report import out_of_memory

        out_of_memory.watch()
