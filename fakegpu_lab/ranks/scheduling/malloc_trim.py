"""glibc's heap while ranks run: one arena for all, since one rank runs at a time, and trimmed after the run.

glibc gives each thread an arena of its own, and memory that one frees the others cannot use: eight ranks of a small GPT
took 150 MiB and 4% of the processor's time more. With other C libraries (macOS, Windows, musl) this does nothing.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

_M_ARENA_MAX = -8
"""From malloc.h."""


@cache
def _glibc() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") and hasattr(library, "mallopt") else None


@cache
def share() -> None:
    """Let new threads share the existing arenas; glibc has no way to undo this, and none is needed."""
    if (library := _glibc()) is not None:
        library.mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Return free memory to the system: after a run, most of what the run took."""
    if (library := _glibc()) is not None:
        library.malloc_trim(0)
