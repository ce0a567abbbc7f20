"""The C library's heap while ranks run: one for all, since one rank runs at a time, and given back afterwards.

glibc gives each thread an arena of its own, and what one frees the others cannot use: eight ranks of a small GPT took
150 MiB and 4 % of the processor's time more. Elsewhere (macOS, Windows, musl) nothing is done.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

_M_ARENA_MAX = -8
"""malloc.h."""


@cache
def _glibc() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") and hasattr(library, "mallopt") else None


@cache
def share() -> None:
    """Let threads that start from now on share the arenas there are; glibc knows no way back, nor is one needed."""
    if (library := _glibc()) is not None:
        library.mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Return what is free to the system: after a run that is most of what it took."""
    if (library := _glibc()) is not None:
        library.malloc_trim(0)
