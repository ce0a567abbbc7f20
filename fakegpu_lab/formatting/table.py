"""A small table for a terminal, a notebook or a file.

>>> print(Table(["card", "memory"], [["a100", "80 GiB"], ["t4", "16 GiB"]]))
card  memory
a100  80 GiB
t4    16 GiB
"""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import rich.table


_LONG = 20
"""Letters; a longer word may continue on the next line wherever the table would be wider than the page."""


@dataclass(frozen=True)
class Table:
    """Rows under headers: text when printed, HTML in a notebook, coloured when rich prints it.

    Attributes
    ----------
    headers
        One for each column.
    rows
        Each with as many cells as there are headers.
    title
        A line above the table; may be empty.
    numbers
        The indices of the right-aligned columns.
    note
        A line below the table; may be empty.
    code
        The indices of the columns of code.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    numbers: frozenset[int] = field(default_factory=frozenset)
    note: str = ""
    code: frozenset[int] = field(default_factory=frozenset)

    def __str__(self) -> str:
        widths = [max(len(line[column]) for line in self._lines) for column in range(len(self.headers))]
        text = [
            "  ".join(
                cell.rjust(width) if column in self.numbers else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in self._lines
        ]
        return "\n".join([*([self.title] if self.title else []), *text, *([self.note] if self.note else [])])

    __repr__ = __str__

    @property
    def _lines(self) -> list[Sequence[str]]:
        return [self.headers, *self.rows]

    def _repr_html_(self) -> str:
        def row(tag: str, cells: Sequence[str]) -> str:
            return "".join(
                f'<{tag} style="{self._style(column, cell)}">{html.escape(cell)}</{tag}>'
                for column, cell in enumerate(cells)
            )

        caption = f'<caption style="text-align: left">{html.escape(self.title)}</caption>' if self.title else ""
        body = "\n".join(f"<tr>{row('td', cells)}</tr>" for cells in self.rows)
        head = row("th", self.headers)
        note = f"\n<p>{html.escape(self.note)}</p>" if self.note else ""
        table = f"<table>{caption}\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
        name = html.escape(self.title or self.headers[0], quote=True)
        # Where it is wider than the page, it can be scrolled, also with the keyboard.
        return f'<div style="overflow-x: auto" role="region" tabindex="0" aria-label="{name}">{table}</div>{note}'

    def _style(self, column: int, cell: str) -> str:
        style = "text-align: right; white-space: nowrap" if column in self.numbers else "text-align: left"
        if any(len(word) > _LONG for word in cell.split()):
            style += "; overflow-wrap: anywhere"
        return style + ("; font-family: var(--jp-code-font-family, monospace)" if column in self.code else "")

    def __rich__(self) -> rich.table.Table:
        import rich.box
        import rich.table

        table = rich.table.Table(
            title=self.title or None,
            title_style="bold",
            title_justify="left",
            caption=self.note or None,
            caption_justify="left",
            box=rich.box.SIMPLE_HEAD,
            pad_edge=False,
            show_edge=False,
            collapse_padding=True,
        )
        for column, header in enumerate(self.headers):
            justify: Any = "right" if column in self.numbers else "left"
            table.add_column(header, justify=justify, no_wrap=column == 0, overflow="fold")
        for cells in self.rows:
            table.add_row(*(_plain(cell) for cell in cells))
        return table


def _plain(cell: str) -> str:
    """Keep rich from reading square brackets as markup."""
    import rich.markup

    return rich.markup.escape(cell)
