"""The output of ranks: whole lines, each with the rank's label, as torchrun's ``--tee`` shows them."""

from __future__ import annotations

import io
from typing import Any


class Console:
    """The stream that shows all ranks' lines.

    Parameters
    ----------
    target
        stdout as it was before the run.
    show
        The ranks whose output is shown; None: all.
    """

    def __init__(self, target: Any, show: set[int] | None = None) -> None:
        self.target = target
        self.show = show
        self.writer: RankOutput | None = None


class RankOutput(io.TextIOBase):
    """One rank's stdout and stderr. Both go to stdout, since output on stderr counts as a failure in a notebook."""

    encoding = "utf-8"

    def __init__(self, console: Console, number: int) -> None:
        self._console = console
        self._number = number
        self._label = f"[rank{number}] "
        self._in_line = False

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, text: str) -> int:
        """Show `text`, each of its lines with the label."""
        console = self._console
        if not text or (console.show is not None and self._number not in console.show):
            return len(text)
        if console.writer is not self:
            if console.writer is not None and console.writer._in_line:  # another rank's line has not ended
                console.target.write("\n")
                console.writer._in_line = False
            console.writer = self
        pieces = []
        for line in text.splitlines(keepends=True):
            pieces.append(line if self._in_line else self._label + line)
            self._in_line = not line.endswith(("\n", "\r"))
        console.target.write("".join(pieces))
        return len(text)

    def flush(self) -> None:
        """Flush the console's stream."""
        self._console.target.flush()

    def __del__(self) -> None:
        """Does not flush, as `io` would: nothing is kept here, and an interrupt in a finalizer is lost."""
