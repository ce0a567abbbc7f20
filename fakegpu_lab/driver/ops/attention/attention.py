"""`scaled_dot_product_attention` on a device: validates, chooses a kernel, calls it; and the math path.

torch chooses a fused kernel only for device types that it knows (`_fused_sdp_choice_stub`); for PrivateUse1 it would
take the math path. So this function is registered above autograd. It follows
aten/src/ATen/native/transformers/attention.cpp: `choice` selects the kernel, `fused` has the fused ones. As there,
the choice does not depend on the class of the tensors: a DTensor or a tensor under `torch.func.grad` takes the same
kernel, and so has no forward-mode derivative where a plain one has none. Inside `torch.vmap`, C++ decomposes the
function first, and it takes the math path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import pad

from fakegpu_lab.driver.base.half_precision import HALVES
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.ops.attention import choice
from fakegpu_lab.driver.ops.attention.choice import CUDNN, EFFICIENT, FLASH, MATH, Params
from fakegpu_lab.driver.placement.dtypes import cpp_name

if TYPE_CHECKING:
    from fakegpu_lab.driver.cost.op import Op

    Tensor = torch.Tensor

_aten: Any = torch.ops.aten


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``aten::scaled_dot_product_attention`` on a device, differentiable."""
    _validate(query, key, value, attn_mask)
    params = Params(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
    backend = choice.choose(params)
    mask = _additive(attn_mask, query.dtype)
    if backend == MATH:
        return math(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa)
    if backend == FLASH:
        return _flash(query, key, value, dropout_p, is_causal, scale)
    trains = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)
    if backend == EFFICIENT:
        bias = None if mask is None else _aligned(mask).expand(*query.shape[:3], key.shape[2])
        kernel = _aten._scaled_dot_product_efficient_attention
        return kernel(query, key, value, bias, trains, dropout_p, is_causal, scale=scale)[0]  # type: ignore[no-any-return]
    assert backend == CUDNN
    kernel = _aten._scaled_dot_product_cudnn_attention
    return kernel(query, key, value, mask, trains, dropout_p, is_causal, False, scale=scale)[0]  # type: ignore[no-any-return]


def _flash(query: Tensor, key: Tensor, value: Tensor, dropout: float, causal: bool, scale: float | None) -> Tensor:
    """Flash, on heads padded to a multiple of 8 elements (pad_last_dim)."""
    width = query.shape[-1]
    scale = width**-0.5 if scale is None else scale
    padded = [pad(t, (0, -width % 8)) if width % 8 else t for t in (query, key, value)]
    out: Tensor = _aten._scaled_dot_product_flash_attention(*padded, dropout, causal, False, scale=scale)[0]
    return out[..., :width] if width % 8 else out


def _validate(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> None:
    """validate_sdpa_input, without the comparisons that `tensor_api.composite_functions` makes."""
    if min(query.dim(), key.dim(), value.dim()) < 2:
        raise RuntimeError(
            "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: "
            f"{query.dim()} key.dim: {key.dim()} and value.dim: {value.dim()} instead."
        )
    if mask is not None and mask.dtype not in (torch.bool, torch.float32, query.dtype):
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: "
            f"{cpp_name(mask.dtype)} and  query.dtype: {cpp_name(query.dtype)} instead."
        )


def _additive(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """convert_boolean_attn_mask: 0 where a key takes part, -inf elsewhere."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask.logical_not(), float("-inf"))


def _aligned(mask: Tensor) -> Tensor:
    """pad_bias: the efficient kernel needs rows that begin at multiples of 8 elements."""
    if mask.stride(-1) == 1 and all(stride % 8 == 0 for stride in mask.stride()[:-1]):
        return mask
    last = mask.shape[-1]
    return pad(mask, (0, 8 - last % 8))[..., :last]


def math(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    causal: bool,
    scale: float | None,
    grouped: bool,
) -> Tensor:
    """_scaled_dot_product_attention_math.

    C++ adds the mask to a copy of the scores for tensor subclasses; on a card it adds it in place.
    """
    dtype = query.dtype
    if dtype in HALVES and not torch._C._get_math_sdp_allow_fp16_bf16_reduction():
        query, key, value = query.float(), key.float(), value.float()
    factor = abs(query.shape[-1] ** -0.5 if scale is None else scale) ** 0.5 if query.shape[-1] else 1.0
    query = query * (-factor if scale is not None and scale < 0 else factor)
    if causal:
        if mask is not None:
            raise RuntimeError(
                "_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"
            )
        seen = torch.ones((query.shape[-2], key.shape[-2]), dtype=torch.bool, device=query.device).tril()
        mask = _additive(seen, query.dtype)
        del seen
    if grouped:
        key, value = _repeated(query, key, value)
    scores = query @ (key.transpose(-2, -1) * factor)
    if mask is not None:
        in_place = scores.__class__ is FakeCudaTensor and torch.result_type(scores, mask) == scores.dtype
        scores = scores.add_(mask) if in_place else scores + mask
    weights = _aten._safe_softmax(scores, -1)
    del scores
    if dropout > 0:
        weights = torch.dropout(weights, dropout, True)
    out: Tensor = weights @ value
    return out.to(dtype)


def _repeated(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """pre_process_group_query_attention_input."""
    heads, k, v = query.shape[-3], key.shape[-3], value.shape[-3]
    if heads == k == v:
        return key, value
    if not (k and v) or heads % k or heads % v:
        raise RuntimeError("Number of heads in key and value must divide the number of heads in ")
    return key.repeat_interleave(heads // k, -3), value.repeat_interleave(heads // v, -3)


def below_autograd(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """``aten::scaled_dot_product_attention``, called below autograd."""
    return scaled_dot_product_attention(*args, **kwargs)


def choice_of(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """``aten::_fused_sdp_choice``."""
    named = dict(zip(op.arguments, args, strict=False)) | kwargs
    query, key, value = named["query"], named["key"], named["value"]
    dropout, causal = named.get("dropout_p", 0.0), named.get("is_causal", False)
    return choice.choose(
        Params(query, key, value, named.get("attn_mask"), dropout, causal, named.get("enable_gqa", False))
    )


def safe_softmax(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """``aten::_safe_softmax``, by the ops that it consists of on a device, with their memory."""
    scores, dim = args[:2]
    out = torch.softmax(scores, dim, dtype=args[2] if len(args) > 2 else kwargs.get("dtype"))
    masked = torch.all(scores.eq(float("-inf")), dim, keepdim=True)
    return torch.where(masked, torch.zeros((), dtype=out.dtype, device=out.device), out)
