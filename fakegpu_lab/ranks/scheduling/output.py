"""What ranks print: whole lines, each with the rank's label, as torchrun's ``--tee`` shows them."""

from __future__ import annotations

import io
from typing import Any


class Console:
    """Where all ranks' lines end up.

    Parameters
    ----------
    target
        The stream that is shown: stdout as it was before the run.
    show
        The ranks whose output is shown; None: all.
    """

    def __init__(self, target: Any, show: set[int] | None = None) -> None:
        self.target = target
        self.show = show
        self.writer: RankOutput | None = None


class RankOutput(io.TextIOBase):
    """One rank's stdout, or its stderr: shown on stdout, for what is on stderr counts as a failure in a notebook."""

    encoding = "utf-8"

    def __init__(self, console: Console, number: int) -> None:
        self._console = console
        self._number = number
        self._label = f"[rank{number}] "
        self._midway = False

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, text: str) -> int:
        """Show `text`, each of its lines with the label."""
        console = self._console
        if not text or (console.show is not None and self._number not in console.show):
            return len(text)
        if console.writer is not self:
            if console.writer is not None and console.writer._midway:  # another rank's line is not at its end
                console.target.write("\n")
                console.writer._midway = False
            console.writer = self
        pieces = []
        for line in text.splitlines(keepends=True):
            pieces.append(line if self._midway else self._label + line)
            self._midway = not line.endswith(("\n", "\r"))
        console.target.write("".join(pieces))
        return len(text)

    def flush(self) -> None:
        """Flush the stream that is shown."""
        self._console.target.flush()
