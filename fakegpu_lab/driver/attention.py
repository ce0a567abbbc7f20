"""Scaled dot-product attention by a fused kernel, as a card computes it.

torch chooses a fused kernel only for the device types it knows (`_fused_sdp_choice_stub`); for PrivateUse1 it would
take the math path and its N×N buffer. Registered above autograd, this calls torch's CPU flash kernel, which keeps
what CUDA's flash and memory-efficient kernels keep for backward: the output and one float per row (logsumexp).
Where the CPU kernel does not apply (dropout, odd masks or shapes), the math path runs. Which of its kernels a card
would take is not modelled here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.tensor import FakeCudaTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.driver.op import Op

_FLASH = 1  # SDPBackend::flash_attention
_flash: Callable[..., Sequence[torch.Tensor]] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_math: Callable[..., Sequence[torch.Tensor]] = torch.ops.aten._scaled_dot_product_attention_math.default


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """``aten::scaled_dot_product_attention`` on a device, differentiable."""
    inner: list[Any] = [t._inner if t.__class__ is FakeCudaTensor else t for t in (query, key, value, attn_mask)]
    mask = inner[3]
    plain = all(t is None or t.device.type == "cpu" for t in inner)
    trained = attn_mask is not None and attn_mask.requires_grad and torch.is_grad_enabled()
    if plain and not trained and not enable_gqa and query.dim() == 4:
        q, k, v = inner[:3]
        if torch._fused_sdp_choice(q, k, v, mask, dropout_p, is_causal, scale=scale) == _FLASH:
            if attn_mask is not None and attn_mask.dtype is torch.bool:
                attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(~attn_mask, float("-inf"))
            return _flash(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)[0]
    return _math(query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa)[0]


def _below_autograd(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    return scaled_dot_product_attention(*args, **kwargs)


HANDLERS: dict[str, Callable[[Op, tuple[Any, ...], dict[str, Any]], Any]] = {
    "scaled_dot_product_attention": _below_autograd,
}
