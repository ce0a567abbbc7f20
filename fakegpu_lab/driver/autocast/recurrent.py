"""Whole recurrent layers in a region: cuDNN runs them in float16, even if the region's dtype is bfloat16.

The autocast kernel of ``_cudnn_rnn`` casts to ``at::kHalf`` whatever the region's dtype is
(aten/src/ATen/cudnn/AutocastRNN.cpp). So the region's dtype is float16 while the layer runs, by cuDNN or cell by cell.
Simplified: if it runs cell by cell, the casts of the weights are kept in the weight cache; cuDNN makes one flat copy
for each call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

_LAYERS = tuple(f"{kind}.{form}" for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu") for form in ("input", "data"))
_KEY = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)  # type: ignore[attr-defined]


def _by_cudnn(source: torch.Tensor) -> bool:
    """Whether CUDA would take cuDNN (`cudnn_is_acceptable`), for dtypes that autocast casts."""
    return torch._C._get_cudnn_enabled() and source.numel() > 0 and source.dtype is not torch.float64


def _kernel(func: Any) -> Callable[..., Any]:
    def layer(keys: Any, source: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        region = torch.get_autocast_dtype("cuda")
        if region is torch.float16 or not _by_cudnn(source):
            return func.redispatch(keys - _KEY, source, *args, **kwargs)
        torch.set_autocast_dtype("cuda", torch.float16)
        try:
            return func.redispatch(keys - _KEY, source, *args, **kwargs)
        finally:
            torch.set_autocast_dtype("cuda", region)

    return layer


def register(library: Any) -> None:
    """Register the kernels with `library`; inside them autocast stays on."""
    for name in _LAYERS:
        packet, _, overload = name.partition(".")
        func = getattr(getattr(torch.ops.aten, packet), overload)
        library.impl(name, _kernel(func), "AutocastPrivateUse1", with_keyset=True)
