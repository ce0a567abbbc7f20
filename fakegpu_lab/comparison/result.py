"""The result of comparing two recordings: sentences, tables, and a figure."""

from __future__ import annotations

import html
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fakegpu_lab.comparison import changes, tables
from fakegpu_lab.comparison.causes import Pair, causes, work
from fakegpu_lab.comparison.sentence import reasons, verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.comparison.causes import Cause
    from fakegpu_lab.comparison.changes import Change
    from fakegpu_lab.comparison.sides import Side
    from fakegpu_lab.formatting.table import Table

_ALIKE = 0.05
"""Steps whose FLOPs differ by less do the same work."""


class Comparison:
    """Two recordings, compared: a notebook shows sentences, tables and a figure, `print` the sentences and the tables.

    Made by `compare`.

    Attributes
    ----------
    before, after
        Both recordings, with their devices, their steps, and where their time went.
    """

    def __init__(self, before: Side, after: Side) -> None:
        self.before, self.after = before, after
        before.cut_like(after)
        after.cut_like(before)

    @cached_property
    def per_step(self) -> bool:
        """Whether times are those of one step: both have steps, of the same work, and not the same number of them."""
        old, new = self.before, self.after
        if min(old.steps, new.steps) < 2 or old.steps == new.steps:
            return False
        whole = work(old, new)
        return not _differ(whole[0] / old.steps, whole[1] / new.steps) or _differ(*whole)

    @property
    def before_ns(self) -> float:
        """How long the first recording took, or a step of it, in ns."""
        return self._pair.both(lambda side: side.elapsed_ns)[0]

    @property
    def after_ns(self) -> float:
        """How long the second recording took, or a step of it, in ns."""
        return self._pair.both(lambda side: side.elapsed_ns)[1]

    @property
    def speedup(self) -> float:
        """How many times as fast the second recording is: 2 if it takes half of the time."""
        return self.before_ns / max(self.after_ns, 1e-9)

    @cached_property
    def changes(self) -> list[Change]:
        """What changed, kernel by kernel and copy by copy: those whose time changed most first."""
        return changes.changes(self.before, self.after, per_step=self.per_step)

    @cached_property
    def _pair(self) -> Pair:
        return Pair(self.before, self.after, self.changes, self.per_step)

    @cached_property
    def causes(self) -> list[Cause]:
        """Why it is faster or slower, the largest cause first; what worked against it is last.

        Their times add up to the difference of the elapsed times.
        """
        return causes(self._pair)

    @cached_property
    def verdict(self) -> str:
        """How much faster or slower, in a sentence."""
        return verdict(self._pair)

    @cached_property
    def reasons(self) -> list[str]:
        """Why, and what is not comparable: a few sentences."""
        return reasons(self._pair, self.causes)

    @property
    def sentence(self) -> str:
        """How much faster or slower, and why: the verdict and the reasons in one text."""
        return " ".join([self.verdict, *self.reasons])

    def time(self) -> Table:
        """Where the time went in both; each column adds up to its elapsed time."""
        return tables.time(self._pair)

    def by_device(self) -> Table:
        """Where the time of each device went, in both."""
        return tables.by_device(self._pair)

    def kernels(self, top: int | None = 10) -> Table:
        """What is new, gone, fused, slower or faster: the rows whose time changed most."""
        return tables.kernels(self._pair, top)

    def totals(self) -> Table:
        """Memory, bytes copied, and the numbers of kernels, launches, waits and steps."""
        return tables.totals(self._pair)

    @property
    def tables(self) -> Sequence[Table]:
        """All tables; `by_device` only if there are several devices."""
        several = max(len(self.before.devices), len(self.after.devices)) > 1
        return [self.time(), *([self.by_device()] if several else []), self.kernels(), self.totals()]

    def figure(self, theme: str | None = None) -> Any:
        """Draw both timelines, one above the other, on one scale.

        Parameters
        ----------
        theme
            ``"light"`` or ``"dark"``; by default JupyterLab's own colors, and elsewhere plotly's default template.

        Returns
        -------
        plotly.graph_objects.Figure
        """
        from fakegpu_lab.comparison import figure

        return figure.figure(self.before, self.after, theme)

    def write_html(self, path: str | Path, theme: str | None = None) -> Path:
        """Write a page with the sentences, the tables and the figure, which needs no network; return its path."""
        from fakegpu_lab.comparison import page

        path, title = Path(path), f"Compared: {self.before.label} and {self.after.label}"
        path.write_text(page.page(title, self._said_html(), self.tables, self.figure(theme), theme), encoding="utf-8")
        return path

    def _said_html(self) -> str:
        """The verdict and the reasons as HTML."""
        listed = "".join(f"<li>{html.escape(one)}</li>" for one in self.reasons)
        return f"<p><b>{html.escape(self.verdict)}</b></p>{f'<ul>{listed}</ul>' if listed else ''}"

    @property
    def said(self) -> str:
        """The verdict, and the reasons below it as a list."""
        return "\n".join([self.verdict, *(f"- {one}" for one in self.reasons)])

    def __repr__(self) -> str:
        return "\n\n".join([self.said, *map(str, self.tables)])

    def _repr_html_(self) -> str:
        return self._said_html() + "".join(table._repr_html_() for table in self.tables)

    def _ipython_display_(self) -> None:
        from IPython.display import HTML, display

        from fakegpu_lab.user_code import environment

        if getattr(environment.shell(), "kernel", None) is None:
            print(repr(self))
            return
        display(HTML(self._repr_html_()))  # type: ignore[no-untyped-call]
        display(self.figure())  # type: ignore[no-untyped-call]


def _differ(first: float, second: float) -> bool:
    return abs(first - second) > _ALIKE * max(first, second)
