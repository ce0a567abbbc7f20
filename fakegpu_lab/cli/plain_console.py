"""A console for other people's words: they are shown as they are, and command neither rich nor the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console

from fakegpu_lab.formatting.printable import printable

if TYPE_CHECKING:
    from rich.text import Text


class PlainConsole(Console):
    """Rich would read ``[/red]`` as markup, and a terminal obeys escape sequences."""

    def __init__(self) -> None:
        super().__init__(markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **how: Any) -> Text:
        """Return the text with control characters made visible."""
        return super().render_str(printable(text), **how)
