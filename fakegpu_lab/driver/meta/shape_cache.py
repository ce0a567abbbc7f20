"""What torch's shape functions said, kept: under ``compute="meta"`` a program asks them the same again and again.

Most of them are written in Python and take a third of a millisecond, some two (``layer_norm``), and a training step
has thousands of ops. What they say follows from sizes, strides and dtypes of the tensors and from the other arguments;
torch's own FakeTensorMode keeps it for the same reason (`torch/_subclasses/fake_tensor.py`, its dispatch cache).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fakegpu_lab.driver.cost.op import Op

MOST = 4096
"""Answers kept of an op: sizes that never come again must not fill the memory."""

_PLAIN = frozenset(
    (type(None), bool, int, float, complex, str, torch.dtype, torch.layout, torch.memory_format, torch.device)
)

_default_dtype = torch.get_default_dtype
_empty_strided = torch.empty_strided
_strided = torch.strided


def follow(op: Op) -> bool:
    """Whether the results of `op` are new tensors that follow from its arguments."""
    fresh = op.only_tensors and not any(op.returns) and not op.written and not op.random
    return fresh and bool(op.tensors or op.has_lists)


def remembered(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, which is asked once for each kind of arguments."""
    known: dict[Any, Callable[[], Any] | None] = {}

    def shape(*args: Any, **kwargs: Any) -> Any:
        key = _key(chain(args, *kwargs.items()) if kwargs else args)
        if key is None:
            return call(*args, **kwargs)
        key = (key, _default_dtype())
        try:
            made = known[key]
        except KeyError:
            result = call(*args, **kwargs)
            if len(known) >= MOST:
                known.clear()
            known[key] = _maker(result, tree_leaves((args, kwargs)))
            return result
        return made() if made is not None else call(*args, **kwargs)

    return shape


def _key(values: Iterable[Any]) -> tuple[Any, ...] | None:
    """What results follow from; None if these are not all plain values and plain tensors of torch's meta device."""
    key: list[Any] = []
    for value in values:
        kind = value.__class__
        if kind is torch.Tensor:
            if not _usual(value):
                return None
            key.append((value.shape, value.stride(), value.dtype))
        elif kind in _PLAIN:
            key.append((kind, value))  # 1, 1.0 and True are equal, and promote otherwise
        elif kind is list or kind is tuple:
            inner = _key(value)
            if inner is None:
                return None
            key.append(inner)
        else:
            return None
    return tuple(key)


def _usual(tensor: torch.Tensor) -> bool:
    return tensor.is_meta and tensor.layout is _strided and not tensor.is_conj() and not tensor.is_neg()


def _maker(result: Any, arguments: list[Any]) -> Callable[[], Any] | None:
    """What makes such results again; None if they are more than sizes, strides and dtypes say."""
    others = [one for one in arguments if isinstance(one, torch.Tensor)]
    if isinstance(result, torch.Tensor):
        described = _described(result, others)
        return None if described is None else lambda: _made(described)
    several = []
    for one in result:
        several.append(None if one is None else _described(one, others))
        if one is not None and several[-1] is None:
            return None
        others.append(one)
    kind: Any = result.__class__  # tuple, or one of torch.return_types
    return lambda: kind([found and _made(found) for found in several])


Described = tuple[torch.Size, tuple[int, ...], torch.dtype]


def _described(tensor: Any, others: list[Any]) -> Described | None:
    """Size, strides and dtype of a new tensor; None if it has more storage than these take, or another's."""
    if tensor.__class__ is not torch.Tensor or not _usual(tensor):
        return None
    shape, strides = tensor.shape, tensor.stride()
    last = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    storage = tensor.untyped_storage()
    if storage.nbytes() != (0 if 0 in shape else last + 1) * tensor.element_size():
        return None
    if any(other is not None and torch._C._is_alias_of(tensor, other) for other in others):  # type: ignore[attr-defined]
        return None
    return shape, strides, tensor.dtype


def _made(described: Described) -> torch.Tensor:
    shape, strides, dtype = described
    return _empty_strided(shape, strides, dtype=dtype, device="meta")


_like = remembered(torch.empty_like)


def like(tensor: torch.Tensor) -> torch.Tensor:
    """`torch.empty_like`, without its Python."""
    made: torch.Tensor = _like(tensor)
    return made
