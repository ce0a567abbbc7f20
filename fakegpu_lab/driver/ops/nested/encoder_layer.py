"""The fast path of `nn.TransformerEncoderLayer` and `nn.MultiheadAttention` in eval mode, by the kernels CUDA launches.

Follows transformer_encoder_layer_forward (aten/src/ATen/native/transformers/transformer.cpp) and
native_multi_head_attention_cuda (transformers/cuda/attention.cu). A batch with padding arrives as a nested tensor; what
treats every token alike computes the tokens of all sequences as one matrix, as CUDA does with the tensor's buffer.
Simplified: the query's storage is not used again for the attention's result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import layer_norm, linear, scaled_dot_product_attention

from fakegpu_lab.driver.ops.attention import choice
from fakegpu_lab.driver.ops.attention.checks import CUDNN, EFFICIENT, FLASH, Params
from fakegpu_lab.driver.ops.nested.computing import by_rows

if TYPE_CHECKING:
    from fakegpu_lab.driver.cost.op import Op

    Tensor = torch.Tensor

_aten: Any = torch.ops.aten


def layer(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``aten::_transformer_encoder_layer_fwd``."""
    a = {**dict(zip(op.arguments, args, strict=False)), **kwargs}
    source: Tensor = a["src"]
    if not source.numel():
        return source.clone()
    width, epsilon, first = a["embed_dim"], a["eps"], a["norm_first"]

    def norm(x: Tensor, which: int) -> Tensor:
        weight, bias = a[f"norm_weight_{which}"], a[f"norm_bias_{which}"]
        return by_rows(x, lambda rows: layer_norm(rows, (width,), weight, bias, epsilon))

    def feed_forward(rows: Tensor) -> Tensor:
        flat = rows.reshape(-1, rows.shape[-1])
        wide = _aten._addmm_activation(a["ffn_bias_1"], flat, a["ffn_weight_1"].t(), use_gelu=a["use_gelu"])
        return _aten.addmm(a["ffn_bias_2"], wide, a["ffn_weight_2"].t()).view(rows.shape)  # type: ignore[no-any-return]

    x = norm(source, 1) if first else source
    names = ("qkv_weight", "qkv_bias", "proj_weight", "proj_bias")
    x = _aten._native_multi_head_attention(
        x, x, x, width, a["num_heads"], *(a[name] for name in names), a.get("mask"), False, True, a.get("mask_type")
    )[0]
    x.add_(source)
    if not first:
        x = norm(x, 1)
    before = x
    x = by_rows(norm(x, 2) if first else x, feed_forward)
    x.add_(before)
    return x if first else norm(x, 2)


def attention(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``aten::_native_multi_head_attention``."""
    a = {**dict(zip(op.arguments, args, strict=False)), **kwargs}
    query, key, value = a["query"], a["key"], a["value"]
    width, heads, mask, weights = a["embed_dim"], a["num_head"], a.get("mask"), a.get("need_weights", True)
    if mask is not None and query.is_nested:
        raise RuntimeError("NestedTensor with mask is not supported yet")
    if query.dim() != 3:
        raise RuntimeError(f"expected 3-D `query`, got {query.dim()}-D tensor")
    if width % heads:
        raise RuntimeError("`embed_dim` must divide evenly by `num_heads`")
    if query is key and key is value and not weights and mask is None and _is_fused(query, heads, width // heads):
        rows = by_rows(query, lambda x: linear(x, a["qkv_weight"], a["qkv_bias"]))
        split = [part.view(query.size(0), -1, heads, width // heads).transpose(1, 2) for part in rows.chunk(3, -1)]
        q, k, v = split
        mixed = scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(query.size(0), -1, width)
        return by_rows(mixed, lambda x: linear(x, a["proj_weight"], a["proj_bias"])), None
    qkv = _projection(query, key, value, a["qkv_weight"])
    q, k, v = _aten._transform_bias_rescale_qkv(qkv, a["qkv_bias"], heads)
    del qkv
    batch, _, length, depth = q.shape
    scores = torch.bmm(q.view(-1, length, depth), k.view(-1, length, depth).transpose(1, 2))
    scores = _softmax(scores.view(batch, heads, length, length), mask, query, a.get("mask_type"))
    mixed = torch.bmm(scores.view(-1, length, length), v.view(-1, length, depth)).view(q.shape)
    if query.is_nested:
        tokens = _aten._nested_from_padded(mixed, query._nested_tensor_size(), True)
    else:
        tokens = mixed.transpose(1, 2).contiguous().view(batch, length, width)
    result = by_rows(tokens, lambda x: linear(x, a["proj_weight"], a["proj_bias"]))
    if not weights:
        return result, None
    return result, scores.sum(1).div_(heads) if a.get("average_attn_weights", True) else scores


def _is_fused(query: Tensor, heads: int, depth: int) -> bool:
    """Whether a fused kernel takes the heads, in the first sequence if they have several lengths."""
    if depth % 8:
        return False
    sequences = query.unbind() if query.is_nested else [query]
    if query.is_nested and any(sequence.shape[0] <= 1 for sequence in sequences):
        return False
    probe = sequences[0].view(1 if query.is_nested else query.shape[0], -1, heads, depth).transpose(1, 2)
    backend = choice.choose(Params(probe, probe, probe, None, 0.0, False, False))
    return backend in ((FLASH, EFFICIENT) if query.is_nested else (FLASH, EFFICIENT, CUDNN))


def _projection(query: Tensor, key: Tensor, value: Tensor, weight: Tensor) -> Tensor:
    """qkv_projection: one product where the inputs are one tensor, else two or three."""
    if key is value and query is key:
        return by_rows(query, lambda x: x @ weight.t())
    width = weight.shape[1]
    parts = (weight[:width], weight[width:]) if key is value else weight.chunk(3)
    inputs = (query, key) if key is value else (query, key, value)
    return torch.cat([x @ part.t() for x, part in zip(inputs, parts, strict=True)], 2)


def _softmax(scores: Tensor, mask: Tensor | None, query: Tensor, mask_type: int | None) -> Tensor:
    if mask is not None:
        return _aten._masked_softmax(scores, mask.to(torch.bool), 3, mask_type)  # type: ignore[no-any-return]
    if query.is_nested:
        return _aten._nested_tensor_softmax_with_shape(scores, query)  # type: ignore[no-any-return]
    return torch.softmax(scores, -1)
