"""The post-mortem of an out-of-memory error: what filled the device, what was requested, what would have fitted."""

from __future__ import annotations

import html
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fakegpu_lab.formatting.table import Table
from fakegpu_lab.formatting.units import several, size
from fakegpu_lab.hardware.memory_categories import COLOURS, NAMES, spoken
from fakegpu_lab.notebook.out_of_memory.remedies import Remedy, remedies
from fakegpu_lab.recording_views.labels import place

if TYPE_CHECKING:
    from fakegpu_lab.driver.memory_report.facts import Facts

_PHASES = {
    "forward": "in forward", "backward": "in backward", "optimizer": "in the optimizer's step",
    "move": "while the module moved to the device", "other": "",
}  # fmt: skip

_RECORDING_NOTE = (
    "The lines that made them are told, too, where lab.record() or torch.cuda.memory._record_memory_history() was on."
)


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
        where = [facts.op and f"by {facts.op}", _PHASES[facts.phase], facts.module and f"of {facts.module}"]
        if facts.line:
            where.append(f"at {place(facts.line).label}")
        place_of_request = " ".join(part for part in where if part)
        return (
            f"{size(facts.asked)} were asked for {place_of_request}, where tensors held {size(facts.allocated)} of the "
            f"{size(facts.room)} that there are for them."
        )

    @property
    def _by_category(self) -> Table:
        held = self.facts.categories.model_dump()
        whole = max(self.facts.allocated, 1)
        rows = [
            [spoken(name), size(held[name]), f"{100 * held[name] / whole:.0f} %"]
            for name in sorted(NAMES, key=lambda name: -held[name])
            if held[name]
        ]
        return Table(["what filled it", "memory", "share"], rows, numbers=frozenset({1, 2}))

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
        headers = ["largest", "shape", "dtype", "what for", "which", *(["made at"] if any(lines) else [])]
        return Table(headers, rows, numbers=frozenset({0}), note=note)

    @property
    def _fragmentation(self) -> str:
        facts = self.facts
        unused = facts.reserved - facts.allocated
        if not unused:
            return f"Nothing was lost to fragmentation: tensors filled all of the {size(facts.reserved)} reserved."
        return (
            f"Of the {size(facts.reserved)} reserved, {size(unused)} were free in {several(facts.pieces, 'piece')}, "
            f"the largest {size(facts.largest_piece)}; {size(facts.free)} of the card were not reserved."
        )

    @property
    def remedies(self) -> list[Remedy]:
        """What would have fitted."""
        return remedies(self.facts)

    @property
    def _title(self) -> str:
        return f"Why cuda:{self.facts.device} ({self.facts.name}, {size(self.facts.total)}) was out of memory"

    def __str__(self) -> str:
        lines = [self._title, self._request, "", str(self._by_category)]
        if self.facts.largest:
            lines += ["", str(self._largest)]
        lines += ["", self._fragmentation]
        if self.remedies:
            lines += ["", "What would have fitted:"]
            lines += [f"  {n}. {remedy.what}:\n     {remedy.why}" for n, remedy in enumerate(self.remedies, 1)]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        facts = self.facts
        held = facts.categories.model_dump()
        parts = [*((name, held[name], COLOURS[name]) for name in NAMES), ("asked for", facts.asked, "#b3261e")]
        scale = max(facts.room, facts.allocated + facts.asked)
        bar = "".join(
            f'<div title="{spoken(name)}: {nbytes:,} bytes" style="width: {100 * nbytes / scale:.3f}%; '
            f'background: {colour}"></div>'
            for name, nbytes, colour in parts
            if nbytes
        )
        steps = "".join(
            f"<li><b>{html.escape(remedy.what)}</b>: {html.escape(remedy.why)}</li>" for remedy in self.remedies
        )
        fitted = f"<div><b>What would have fitted</b></div><ol>{steps}</ol>" if steps else ""
        summary = f"<summary>The {len(facts.largest)} largest tensors</summary>"
        largest = f"<details>{summary}{self._largest._repr_html_()}</details>" if facts.largest else ""
        return (
            f"<div><b>{html.escape(self._title)}</b></div><p>{html.escape(self._request)}</p>"
            f'<div role="img" aria-label="{html.escape(self._request)}" style="display: flex; height: 16px; '
            f'max-width: 900px; border: 1px solid #888888">{bar}</div>'
            f"{self._by_category._repr_html_()}{largest}<p>{html.escape(self._fragmentation)}</p>{fitted}"
        )


def watch(machine: Any = None) -> None:
    """Gather the facts of out-of-memory errors on the enabled machine (`session.on_change`)."""
    if machine is not None:
        from fakegpu_lab.driver.memory_report import out_of_memory

        out_of_memory.watch()
