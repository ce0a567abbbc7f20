"""Finds live Python objects by type, without disturbing other threads.

A list of all objects also holds the tuple that another thread's ``tuple(f(x) for x in xs)`` is building. While it does,
CPython's `_PyTuple_Resize`, which finishes that tuple, raises SystemError in the other thread. So the list exists only
within one C call, during which no other thread runs, and only the requested objects come out of it.
"""

from __future__ import annotations

import gc
import sys
import weakref
from contextlib import contextmanager
from itertools import chain, compress, repeat, starmap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ALL: tuple[tuple[int, ...], ...] = ((),)
"""Arguments of `gc.get_objects`, one tuple for each call."""
_YOUNG: tuple[tuple[int, ...], ...]

if sys.version_info < (3, 14):
    _YOUNG, _MOVING = ((0,), (1,)), slice(1, None)  # a collection of generation 0 moves objects to generation 1
else:
    _YOUNG, _MOVING = ((0,),), slice(None)


def subclasses(cls: type) -> set[type]:
    """`cls` and its subclasses, at any depth."""
    found, new = {cls}, [cls]
    while new:
        made: set[type] = set(type.__subclasses__(new.pop())) - found
        found |= made
        new += made
    return found


def live(types: Iterable[type]) -> list[Any]:
    """The live objects of exactly these types; takes about 50 ms in a process that has imported torch."""
    with _no_collection():
        return _scan(set(types), _ALL)


class Finder:
    """Finds the live instances of some classes and their subclasses, again and again.

    Almost all objects are in the garbage collector's oldest generation, and objects come into it only by a collection.
    So a search goes through all objects only if there was such a collection since the last search. Otherwise it goes
    through the young generations, and adds what it found before and is still alive.
    """

    def __init__(self, *classes: type) -> None:
        self._classes = classes
        self._known: tuple[list[int], list[weakref.ref[Any]]] = ([], [])

    def __call__(self) -> list[Any]:
        """All of them."""
        wanted = set().union(*map(subclasses, self._classes))
        with _no_collection():
            moves, known = self._known
            if moves == _moves():
                found = {id(thing): thing for seen in known if (thing := seen()) is not None}
                found |= {id(thing): thing for thing in _scan(wanted, _YOUNG)}
                if moves == _moves():  # no other thread has called gc.collect
                    return list(found.values())
                del found
            moves = _moves()
            things = _scan(wanted, _ALL)
            self._known = (moves, list(map(weakref.ref, things)))
            return things


def _moves() -> list[int]:
    """How many collections there were that may move objects out of the generations `_YOUNG`."""
    return [one["collections"] for one in gc.get_stats()[_MOVING]]


def _scan(wanted: set[type], generations: tuple[tuple[int, ...], ...]) -> list[Any]:
    # `lists` yields each list of objects twice: `things` takes from it, `chosen` looks at the types. Both must be
    # read to the end (hence the None), because the list also holds the iterators that hold it.
    lists = chain.from_iterable(map(repeat, starmap(gc.get_objects, generations), repeat(2)))
    things = chain(chain.from_iterable(lists), [None])
    chosen = map(wanted.__contains__, map(type, chain.from_iterable(lists)))
    return list(compress(things, chosen))


@contextmanager
def _no_collection() -> Iterator[None]:
    """No collection begins by itself: a finalizer might let another thread run."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
