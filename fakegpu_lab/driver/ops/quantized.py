"""Quantized tensors on a device, whose quantizer is the inner tensor's; C++ cannot pass a scheme through Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.device_memory import new
from fakegpu_lab.driver.base.tensor import inner_of
from fakegpu_lab.driver.copies.transfer import count_copy

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.base.tensor import FakeCudaTensor

_PER_TENSOR = (torch.per_tensor_affine, torch.per_tensor_symmetric)


def is_quantized(self: FakeCudaTensor) -> bool:
    """`Tensor.is_quantized`."""
    return self._inner.is_quantized


def qscheme(self: FakeCudaTensor) -> Any:
    """`Tensor.qscheme`."""
    return self._inner.qscheme()


def suffixes(tensor: FakeCudaTensor) -> list[str]:
    """The parts that `torch._tensor_str._str_intern` prints for a quantized tensor, after its device."""
    scheme = qscheme(tensor)
    texts = [f"size={tuple(tensor.shape)}", f"dtype={tensor.dtype}", f"quantization_scheme={scheme}"]
    if scheme in _PER_TENSOR:
        return [*texts, f"scale={tensor.q_scale()}", f"zero_point={tensor.q_zero_point()}"]
    scales, points = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
    return [*texts, f"scale={scales}", f"zero_point={points}", f"axis={tensor.q_per_channel_axis()}"]


def _factory(name: str) -> Callable[..., FakeCudaTensor]:
    """A factory of empty quantized tensors, which makes them on the host's side."""
    overload = getattr(torch.ops.aten, name).default

    def factory(*args: Any, device: torch.device | None = None, **kwargs: Any) -> FakeCudaTensor:
        where = current.device(device.index if device is not None else None)
        if where.retired:
            raise device_asserts.retired_error(where)
        kwargs.pop("pin_memory", None)
        inner_args = [inner_of(value) for value in args]
        options = {key: inner_of(value) for key, value in kwargs.items()}
        inner: torch.Tensor = overload(*inner_args, device="cpu", **options)
        return new(inner, where)

    return factory


_to_copy: Any = torch.ops.aten._to_copy.default
_PLAIN = torch._C.DispatchKey.CompositeExplicitAutograd


def to_copy(source: torch.Tensor, *, device: torch.device | None = None, **options: Any) -> torch.Tensor:
    """``aten::_to_copy`` of a quantized tensor on the host.

    C++ would write the quantizer into the result, assuming it to be a QTensorImpl.
    """
    if device is None or not current.is_ours(device):
        return _to_copy._op_dk(_PLAIN, source, device=device, **options)  # type: ignore[no-any-return]
    if options.get("dtype") not in (None, source.dtype):
        raise RuntimeError(
            "Copying from quantized Tensor to non-quantized Tensor is not allowed, please use dequantize to get a "
            "float Tensor from a quantized Tensor"
        )
    where = current.device(device.index)
    if where.retired:
        raise device_asserts.retired_error(where)
    inner = source.clone()
    count_copy(None, where, inner.nbytes, non_blocking=bool(options.get("non_blocking")))
    return new(inner, where)


def register(library: Any) -> None:
    """Register the move of a quantized tensor to a device, and the factories that load one from a file."""
    for key in ("QuantizedCUDA", "QuantizedPrivateUse1"):  # the target device is part of the key, too
        library.impl("_to_copy", to_copy, key)
    for name in ("_empty_affine_quantized", "_empty_per_channel_affine_quantized"):
        for key in ("QuantizedCUDA", "QuantizedPrivateUse1", "CUDA", "PrivateUse1"):
            library.impl(name, _factory(name), key)
