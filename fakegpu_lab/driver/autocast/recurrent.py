"""Whole recurrent layers in a region: cuDNN's run in float16, also where the region's dtype is bfloat16.

The autocast kernel of ``_cudnn_rnn`` casts to ``at::kHalf`` and does not ask for the region's dtype
(aten/src/ATen/cudnn/AutocastRNN.cpp). Here a layer runs cell by cell, so the region's dtype is float16 for as long as
the layer runs. Simplified: the weights' casts are kept in the weight cache; cuDNN's are one flat copy for each call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

_LAYERS = tuple(f"{kind}.{form}" for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu") for form in ("input", "data"))
_KEY = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)  # type: ignore[attr-defined]


def _by_cudnn(source: torch.Tensor) -> bool:
    """Whether CUDA would take cuDNN (`cudnn_is_acceptable`): it is not asked for what autocast leaves alone."""
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
