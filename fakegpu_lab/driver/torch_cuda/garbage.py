"""torch.utils.viz._cycles, which shows the reference cycles that kept device memory, and where it was taken.

It has Python's garbage collector save what it finds (``gc.DEBUG_SAVEALL``). C++ then still has the memory; but the
collector has already called `Buffer.__del__`, which frees it. So while torch observes, memory that a collection finds
is freed when the collection ends, and what was saved, at the end of the next collection that saves nothing.
"""

from __future__ import annotations

import functools
import gc
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base.changes import begun, imported, wrapped
from fakegpu_lab.hardware.buffer import Buffer
from fakegpu_lab.user_code import interrupts

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.base.changes import Change

_found: list[Buffer] = []
_before: dict[type[Buffer], Any] = {}


def _keep(self: Buffer) -> None:
    """`Buffer.__del__` during a collection."""
    _found.append(self)


@interrupts.whole
def _in_collections(phase: str, info: dict[str, int]) -> None:
    if phase == "start":
        kinds: list[type[Buffer]] = [Buffer]
        for kind in kinds:
            kinds += kind.__subclasses__()
            if "__del__" in vars(kind) and kind not in _before:  # one is below two others
                _before[kind] = vars(kind)["__del__"]
                setattr(kind, "__del__", _keep)  # noqa: B010 - mypy rejects an assignment
        return
    for kind, free in _before.items():
        setattr(kind, "__del__", free)  # noqa: B010
    _before.clear()
    if not gc.get_debug() & gc.DEBUG_SAVEALL:
        while _found:
            _found.pop().__del__()


def _stop() -> None:
    while _in_collections in gc.callbacks:
        gc.callbacks.remove(_in_collections)


def _observing(observe_garbage: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(observe_garbage)
    def observe(observer: Any) -> Any:
        gc.callbacks.append(_in_collections)
        disarm = observe_garbage(observer)

        def disarm_both() -> None:
            disarm()
            _stop()

        return disarm_both

    return observe


def _observer(cycles: Any) -> list[Change]:
    return [wrapped(f"{cycles.__name__}.observe_garbage", _observing, "device memory counts in reference cycles")]


CHANGES = [
    imported("torch.utils.viz._cycles", _observer, "torch's observer of garbage"),
    begun(lambda: _stop, "it stops with the machine"),
]
