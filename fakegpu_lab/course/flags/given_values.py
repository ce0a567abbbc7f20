"""Inside a submission's process: values that the lesson's cells make and its checks read stay as they are."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.cell_text.source import bound_names
from fakegpu_lab.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MOST_BYTES = 4 * 2**20
_MOST_ITEMS = 1000
_ATOMS = (type(None), bool, int, float, complex, str, bytes)


class GivenValues:
    """Numbers, texts, containers of them, tensors on the CPU, and recordings, as the lesson's own cells left them.

    A recording is the first that a cell of the lesson made: what runs before the same lines, when they are run again,
    may be another. Tensors on a GPU are not looked at: to copy them would take simulated time.

    Parameters
    ----------
    read
        The names that checks read.
    seen
        Makes plain data of a value.
    """

    def __init__(self, read: Iterable[str], seen: Callable[[Any], Any]) -> None:
        self._read, self._seen = frozenset(read), seen
        self._kept: dict[str, tuple[str, Any]] = {}
        self._recordings: dict[str, Trace] = {}

    def keep(self, source: str, names: dict[str, Any]) -> None:
        """Remember what a cell of the lesson has made."""
        for name in bound_names(source) & self._read & names.keys():
            self._kept.pop(name, None)
            self._recordings.pop(name, None)
            if type(names[name]) is Trace:
                self._recordings[name] = names[name]
            if _is_plain(names[name]):
                with contextlib.suppress(RuntimeError):  # a tensor that autograd has made cannot be copied
                    self._kept[name] = self._digest(names[name]), copy.deepcopy(names[name])

    def put_back(self, names: dict[str, Any], asked: Iterable[str] = ()) -> list[str]:
        """Restore what was changed, and return the names; recordings without a word, but for those that are `asked`."""
        names |= {name: trace for name, trace in self._recordings.items() if name not in asked}
        found = []
        for name, (kept, value) in self._kept.items():
            now = names.get(name)
            if not _is_plain(now) or self._digest(now) != kept:
                names[name] = copy.deepcopy(value)
                found.append(name)
        return found

    def _digest(self, value: Any) -> str:
        return hashlib.sha256(json.dumps(self._seen(value)).encode()).hexdigest()


def _is_plain(thing: Any, depth: int = 0) -> bool:
    import numpy as np
    import torch

    kind = type(thing)
    if kind is torch.Tensor:
        small = thing.numel() * thing.element_size() <= MOST_BYTES
        return bool(small and thing.device.type == "cpu" and thing.layout == torch.strided)
    if kind is np.ndarray:
        return bool(thing.nbytes <= MOST_BYTES and thing.dtype.kind in "biufc")
    if kind in (list, tuple, set, dict):
        items = [*thing, *(thing.values() if kind is dict else ())]
        return depth < 5 and len(items) <= _MOST_ITEMS and all(_is_plain(item, depth + 1) for item in items)
    return any(kind is one for one in _ATOMS) and not (kind in (str, bytes) and len(thing) > MOST_BYTES)
