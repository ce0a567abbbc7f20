"""Says on stdout that torch.compile is at work, if it takes longer than a moment: a notebook would seem to hang."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 2.0
"""Seconds until it says so."""


@contextlib.contextmanager
def compiling(operations: int) -> Iterator[None]:
    """Say that a graph of this length is being compiled, and at the end how long it took."""
    began, said = time.monotonic(), threading.Event()

    def say() -> None:
        said.set()
        print(f"torch.compile: compiling {operations} operations …", flush=True)

    timer = threading.Timer(PATIENCE, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    if said.is_set():
        print(f"torch.compile: {operations} operations compiled in {time.monotonic() - began:.0f} s", flush=True)
