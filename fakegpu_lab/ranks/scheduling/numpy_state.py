"""The state of NumPy's global generator, taken and put back at every turn of the ranks: 2 µs instead of 200.

``numpy.random.get_state`` converts 624 words one by one. A bit generator tells the address of its state, though
(`BitGenerator.ctypes.state_address`), and a Mersenne Twister's is these words and a position. Not among them is the
second one of a pair of normal numbers, while it waits to be drawn: then the whole state is asked for and set.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, NamedTuple

_WORDS = 624
_NBYTES = 4 * (_WORDS + 1)


class State(NamedTuple):
    """What was taken.

    Attributes
    ----------
    whole
        As ``get_state`` gives it.
    words
        The words and the position as they are in memory, if they are all there is to the state; else empty.
    """

    whole: Any
    words: bytes


_in_place: State | None = None
"""What was taken last: until something is put in its place, the generator still has it."""


def _address(numpy: Any) -> int:
    """Where the words are; 0 for a generator that is no Mersenne Twister, or of which NumPy does not tell."""
    generator: Any = getattr(getattr(numpy.mtrand, "_rand", None), "_bit_generator", None)
    return int(generator.ctypes.state_address) if type(generator).__name__ == "MT19937" else 0


def take(before: State | None) -> State | None:
    """The state; None where nobody has imported NumPy's generators.

    Parameters
    ----------
    before
        What was put back last. Unless numbers were drawn or a seed was set since, it is the answer.
    """
    global _in_place
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is None:
        return None
    address = _address(numpy)
    words = ctypes.string_at(address, _NBYTES) if address else b""
    if before is None or not words or words != before.words:
        whole = numpy.get_state(legacy=False)
        before = State(whole, words if words and _alone(whole, words) else b"")
    _in_place = before
    return before


def _alone(whole: Any, words: bytes) -> bool:
    """Whether these bytes are the whole state."""
    state = whole["state"]
    return not whole["has_gauss"] and words == state["key"].tobytes() + state["pos"].to_bytes(4, sys.byteorder)


def put(state: State) -> None:
    """Put back what was taken, in place of what was taken last."""
    numpy: Any = sys.modules["numpy.random"]
    address = _address(numpy)
    if address and state.words and _in_place is not None and _in_place.words:
        ctypes.memmove(address, state.words, _NBYTES)
    else:
        numpy.set_state(state.whole)
