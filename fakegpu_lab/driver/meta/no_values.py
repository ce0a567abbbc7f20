"""``compute="meta"``: the errors of ops whose results depend on values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.copies.transfer import NoValuesError, no_values

if TYPE_CHECKING:
    from collections.abc import Callable

_SIGNS = (
    "with Meta tensors",  # no shape function
    "Meta' backend",
    "register_meta function",  # nonzero
    "on meta tensors",  # item
    "a meta tensor",  # repeat_interleave
    "Cannot copy out of meta tensor",
)


def explained(func: Any, error: Exception) -> Exception:
    """`error`; if values are missing, an error that says so and what to do instead."""
    if not current.meta() or not isinstance(error, RuntimeError) or isinstance(error, NoValuesError):
        return error
    text = str(error)
    if any(sign in text for sign in _SIGNS):
        return no_values(f"torch.{func._schema.name.partition('::')[2]}")
    for pattern, message in _MESSAGES:
        match = pattern.search(text)
        if match is not None:
            return RuntimeError(message(*([int(n) for n in group.split(",") if n.strip()] for group in match.groups())))
    return error


def _cannot_broadcast(b: list[int], a: list[int]) -> str:
    """ExpandUtils.cpp, `infer_size_impl`."""
    length = max(len(a), len(b))
    a, b = ([1] * (length - len(shape)) + shape for shape in (a, b))
    place = next(i for i in reversed(range(length)) if a[i] != b[i] and 1 not in (a[i], b[i]))
    return (
        f"The size of tensor a ({a[place]}) must match the size of tensor b ({b[place]}) "
        f"at non-singleton dimension {place}"
    )


def _cannot_multiply(a: list[int], b: list[int]) -> str:
    """Blas.cpp."""
    return f"mat1 and mat2 shapes cannot be multiplied ({a[0]}x{a[1]} and {b[0]}x{b[1]})"


_MESSAGES: tuple[tuple[re.Pattern[str], Callable[..., str]], ...] = (
    (
        re.compile(r"at index 1 had torch\.Size\(\[(.*?)\]\); but expected shape should be broadcastable to \[(.*?)\]"),
        _cannot_broadcast,
    ),
    (re.compile(r"a and b must have same reduction dim, but got \[(.*?)\] X \[(.*?)\]"), _cannot_multiply),
)
"""Errors of torch's Python shape functions, and a function that gives the kernel's message."""
