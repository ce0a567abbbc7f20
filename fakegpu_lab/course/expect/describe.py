"""Describes values and tensors in plain words, for the "expected" and "found" of an outcome."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.expect.plain_data.conversion import Opaque, SeenGroup, SeenTensor, SeenType
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from collections.abc import Iterator

SHOWN = 8
"""Elements of a tensor that are all written."""
_GROUPED = 10_000
"""Whole numbers from here on are written in groups of three digits."""
_TIME = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s)\s*")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def seconds(time: str | float) -> float:
    """Read a time: seconds, or a number with a unit.

    >>> seconds("2.5 ms"), seconds(0.1)
    (0.0025, 0.1)
    """
    if isinstance(time, str):
        match = _TIME.fullmatch(time)
        if match is None:
            raise FakeGpuError(f"{time!r} is not a time: write seconds, or a number with ns, µs, ms or s.")
        return float(match[1]) * _SECONDS[match[2]]
    return float(time)


def times(count: float) -> str:
    """Write how often.

    >>> times(0), times(1), times(12)
    ('never', 'once', '12 times')
    """
    return "never" if count == 0 else "once" if count == 1 else f"{count:,} times"


def value(thing: Any) -> str:
    """Describe what was seen of a value briefly; a large tensor by its shape, dtype and device."""
    if thing is Ellipsis:
        return "still `...`"
    if type(thing) is int and abs(thing) >= _GROUPED:
        return f"{thing:,}"
    if isinstance(thing, SeenGroup):
        return f"a {thing.name}"
    if isinstance(thing, SeenTensor):
        noun = "a tensor" if thing.is_tensor else "an array"
        summary = f"{noun} of shape {thing.shape}, {thing.dtype.removeprefix('torch.')}, on {thing.device}"
        few = thing.numel <= SHOWN and thing.values is not None
        return f"{thing.values.tolist()} ({summary})" if few and thing.values is not None else summary
    text = _text(thing)
    return text if len(text) <= 120 else f"{text[:119]}…"


def _text(thing: Any) -> str:
    """As ``repr``, with objects and tensors in words inside containers, too."""
    if isinstance(thing, Opaque):
        return thing.text
    if isinstance(thing, (SeenTensor, SeenGroup)) or thing is Ellipsis:
        return "..." if thing is Ellipsis else value(thing)
    if isinstance(thing, SeenType):
        return f"<class '{thing.names[0].rstrip('*')}'>"
    if isinstance(thing, dict):
        return "{" + ", ".join(f"{_text(key)}: {_text(item)}" for key, item in thing.items()) + "}"
    if isinstance(thing, tuple):
        return f"({', '.join(map(_text, thing))}{',' * (len(thing) == 1)})"
    return f"[{', '.join(map(_text, thing))}]" if isinstance(thing, list) else repr(thing)


def tensors(thing: Any, name: str = "") -> Iterator[tuple[str, SeenTensor]]:
    """Every tensor in what was seen, with a name: of a module, parameters and buffers; of an optimizer, its state."""
    if isinstance(thing, SeenTensor):
        if thing.is_tensor:
            yield name, thing
    elif isinstance(thing, SeenGroup):
        for key, tensor in thing.tensors:
            yield f"{name}.{key}" if name and thing.kind == "module" else key, tensor
    elif isinstance(thing, dict):
        for key, item in thing.items():
            yield from tensors(item, f"{name}[{key!r}]" if name else str(key))
    elif isinstance(thing, (list, tuple, set)):
        for place, item in enumerate(thing):
            yield from tensors(item, f"{name}[{place}]")


def listed(names: list[str], most: int = 4) -> str:
    """Write names; if there are more than `most`, the first.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    shown = [name for name in names[:most] if name]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest and shown else "")
