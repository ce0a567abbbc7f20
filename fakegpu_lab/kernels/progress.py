"""`Progress`: says how far a launch is that takes long."""

from __future__ import annotations

import sys
import time

PATIENCE = 2.0
"""Seconds until a launch says how far it is."""


class Progress:
    """Shows, after `PATIENCE` seconds and then ever more rarely, how far a launch is; on stdout.

    Parameters
    ----------
    name
        The kernel's.
    total
        What is to run.
    what
        Of what: ``"programs"`` or ``"blocks"``.
    """

    def __init__(self, name: str, total: int, what: str) -> None:
        self._name, self._total, self._what = name, total, what
        self._began = time.monotonic()
        self._due = PATIENCE

    def reached(self, done: int) -> None:
        """Report that so much of the kernel has run, from time to time."""
        spent = time.monotonic() - self._began
        if spent >= self._due and done < self._total:
            left = spent / done * (self._total - done)
            print(
                f"{self._name}: {done:,} of {self._total:,} {self._what} in {spent:.0f} s, {left:.0f} s to go",
                flush=True,
            )
            self._due = 2.5 * spent

    def end(self) -> None:
        """The launch has ended."""
        if self._due > PATIENCE and sys.exc_info()[0] is None:
            print(f"{self._name}: {self._total:,} {self._what} in {time.monotonic() - self._began:.0f} s", flush=True)
