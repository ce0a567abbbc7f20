"""A cache for torch's shape functions, which a program calls again and again under ``compute="meta"``.

Most of them are written in Python and take 0.3 ms, some 2 ms (``layer_norm``), and a training step has thousands of
ops. Their results follow from sizes, strides and dtypes of the tensors and from the other arguments. Torch's own
FakeTensorMode has such a cache for the same reason (`torch/_subclasses/fake_tensor.py`).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fakegpu_lab.driver.cost.op import Op

MAX_ENTRIES = 4096
"""Entries for one op: sizes that never come again must not fill the memory."""

_PLAIN = frozenset(
    (type(None), bool, int, float, complex, str, torch.dtype, torch.layout, torch.memory_format, torch.device)
)

_default_dtype = torch.get_default_dtype
_empty_strided = torch.empty_strided
_strided = torch.strided


def is_cacheable(op: Op) -> bool:
    """Whether the results of `op` are new tensors that depend only on the kind of its arguments."""
    fresh = op.only_tensors and not any(op.returns) and not op.written and not op.random
    return fresh and bool(op.tensors or op.has_lists)


def cached(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, called once for each kind of arguments."""
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
            if len(known) >= MAX_ENTRIES:
                known.clear()
            known[key] = _factory(result, tree_leaves((args, kwargs)))
            return result
        return made() if made is not None else call(*args, **kwargs)

    return shape


def _key(values: Iterable[Any]) -> tuple[Any, ...] | None:
    """All that results depend on; None if an argument is neither a plain value nor a plain meta tensor."""
    key: list[Any] = []
    for value in values:
        kind = value.__class__
        if kind is torch.Tensor:
            if not _is_plain(value):
                return None
            key.append((value.shape, value.stride(), value.dtype))
        elif kind in _PLAIN:
            key.append((kind, value))  # 1, 1.0 and True are equal, but promote differently
        elif kind is list or kind is tuple:
            inner = _key(value)
            if inner is None:
                return None
            key.append(inner)
        else:
            return None
    return tuple(key)


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.is_meta and tensor.layout is _strided and not tensor.is_conj() and not tensor.is_neg()


def _factory(result: Any, arguments: list[Any]) -> Callable[[], Any] | None:
    """A function that makes such results again; None if sizes, strides and dtypes do not describe them."""
    others = [one for one in arguments if isinstance(one, torch.Tensor)]
    if isinstance(result, torch.Tensor):
        description = _describe(result, others)
        return None if description is None else lambda: _new(description)
    several = []
    for one in result:
        several.append(None if one is None else _describe(one, others))
        if one is not None and several[-1] is None:
            return None
        others.append(one)
    kind: Any = result.__class__  # tuple, or one of torch.return_types
    return lambda: kind([found and _new(found) for found in several])


Description = tuple[torch.Size, tuple[int, ...], torch.dtype]


def _describe(tensor: Any, others: list[Any]) -> Description | None:
    """Shape, strides and dtype of a new tensor; None if its storage is larger than these need, or another's."""
    if tensor.__class__ is not torch.Tensor or not _is_plain(tensor):
        return None
    shape, strides = tensor.shape, tensor.stride()
    last = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    storage = tensor.untyped_storage()
    if storage.nbytes() != (0 if 0 in shape else last + 1) * tensor.element_size():
        return None
    if any(other is not None and torch._C._is_alias_of(tensor, other) for other in others):  # type: ignore[attr-defined]
        return None
    return shape, strides, tensor.dtype


def _new(description: Description) -> torch.Tensor:
    shape, strides, dtype = description
    return _empty_strided(shape, strides, dtype=dtype, device="meta")


_like = cached(torch.empty_like)


def like(tensor: torch.Tensor) -> torch.Tensor:
    """`torch.empty_like`, cached."""
    made: torch.Tensor = _like(tensor)
    return made
