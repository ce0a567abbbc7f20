"""Refuses strided nested tensors on a device: C++ reads their sizes from a tensor with data. Jagged ones work."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.copies.transfer import HANDLERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.base.patches import Patches
    from fakegpu_lab.driver.cost.op import Op


_nested: Any = torch._C._nested  # type: ignore[attr-defined]


def _refuse(*args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError(  # a jagged tensor's `__torch_function__` would catch a NotImplementedError and try another way
        "A nested tensor of the strided layout cannot live on a simulated GPU: make it with layout=torch.jagged, which "
        "can (attention over jagged tensors needs a head width that a fused kernel takes: a multiple of 8)."
    )


def _is_on_device(value: Any) -> bool:
    """Whether a tensor, a list of tensors or a device is a simulated GPU's."""
    if isinstance(value, torch.Tensor):
        return value.is_cuda
    if isinstance(value, (list, tuple)):
        return any(_is_on_device(item) for item in value)
    return isinstance(value, (str, torch.device)) and current.is_ours(torch.device(value))


def _host_only(function: Callable[..., Any]) -> Callable[..., Any]:
    """A constructor of strided nested tensors that refuses our devices."""

    @functools.wraps(function)
    def constructor(*args: Any, **kwargs: Any) -> Any:
        if _is_on_device(kwargs.get("device")) or _is_on_device(args):
            _refuse()
        return function(*args, **kwargs)

    return constructor


def _refuse_op(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _refuse()


HANDLERS.update(
    dict.fromkeys(
        ("_nested_tensor_from_mask", "_nested_from_padded", "_nested_from_padded_tensor", "_nested_view_from_buffer"),
        _refuse_op,
    )
)


def register(library: Any) -> None:
    """Register the refusal for a nested tensor that is moved to a device."""
    for key in ("NestedTensorPrivateUse1", "NestedTensorCUDA"):
        library.impl("_to_copy", _refuse, key)


def install(patches: Patches) -> None:
    """Patch the constructors."""
    patches.set(_nested, "nested_tensor", _host_only(_nested.nested_tensor))
    for name in ("_nested_tensor_from_tensor_list", "_nested_view_from_buffer"):
        patches.set(torch, name, _host_only(getattr(torch, name)))
