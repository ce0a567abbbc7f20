"""The state of NumPy's global generator, saved and restored whenever the turn passes: in 2 µs instead of 200.

``numpy.random.get_state`` converts 624 words one by one. But a bit generator gives the address of its state
(`BitGenerator.ctypes.state_address`), and a Mersenne Twister's state is these words and a position. The second number
of a pair of normal numbers, kept for the next draw, is not in there: while there is one, the whole state is read and
set.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, NamedTuple

_WORDS = 624
_NBYTES = 4 * (_WORDS + 1)


class State(NamedTuple):
    """A saved state.

    Attributes
    ----------
    whole
        As ``get_state`` returns it.
    words
        The words and the position as in memory, if they are the whole state; else empty.
    """

    whole: Any
    words: bytes


_latest: State | None = None
"""The state that was saved last: the generator has it until another one is restored."""


def _address(numpy: Any) -> int:
    """The address of the words; 0 if the generator is not a Mersenne Twister or NumPy does not expose it."""
    generator: Any = getattr(getattr(numpy.mtrand, "_rand", None), "_bit_generator", None)
    return int(generator.ctypes.state_address) if type(generator).__name__ == "MT19937" else 0


def save(before: State | None) -> State | None:
    """The state; None if NumPy's generators were not imported.

    Parameters
    ----------
    before
        The state that was restored last. Unless numbers were drawn or a seed was set since, it is the answer.
    """
    global _latest
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is None:
        return None
    address = _address(numpy)
    words = ctypes.string_at(address, _NBYTES) if address else b""
    if before is None or not words or words != before.words:
        whole = numpy.get_state(legacy=False)
        before = State(whole, words if words and _complete(whole, words) else b"")
    _latest = before
    return before


def _complete(whole: Any, words: bytes) -> bool:
    """Whether these bytes are the whole state."""
    state = whole["state"]
    return not whole["has_gauss"] and words == state["key"].tobytes() + state["pos"].to_bytes(4, sys.byteorder)


def restore(state: State) -> None:
    """Restore a saved state, in place of the one that was saved last."""
    numpy: Any = sys.modules["numpy.random"]
    address = _address(numpy)
    if address and state.words and _latest is not None and _latest.words:
        ctypes.memmove(address, state.words, _NBYTES)
    else:
        numpy.set_state(state.whole)
