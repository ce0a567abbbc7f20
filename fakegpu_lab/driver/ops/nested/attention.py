"""`scaled_dot_product_attention` of strided nested tensors: the fused kernels over packed sequences, or the math path.

Follows sdpa_nested_preprocessing (aten/src/ATen/native/nested/cuda/NestedTensorTransformerUtils.cpp), except that the
heads are copied to be packed; on CUDA they usually are. In the choice of a kernel, the first sequence stands for all.
"""

from __future__ import annotations

import warnings
from functools import partial
from itertools import accumulate
from typing import Any

import torch

from fakegpu_lab.driver.base.tensor import NestedCudaTensor
from fakegpu_lab.driver.ops.attention import choice
from fakegpu_lab.driver.ops.attention.checks import EFFICIENT, FLASH, MATH, Params

Tensor = torch.Tensor

_aten: Any = torch.ops.aten


def scaled_dot_product_attention(
    torchs: Any,
    keys: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Tensor:
    """``aten::scaled_dot_product_attention``; `torchs` is torch's own kernel, for other tensors and the math path."""
    inputs = (query, key, value)
    ours = [type(tensor) is NestedCudaTensor for tensor in inputs]
    if any(ours) and attn_mask is None:
        split = [list(tensor.unbind()) for tensor in inputs]
        trains = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
        first = (sequences[0][None] for sequences in split)
        heads = max(sequences[0].shape[0] for sequences in split)
        q, k, v = (tensor.expand(-1, heads, -1, -1) if tensor.shape[1] == 1 else tensor for tensor in first)
        backend = choice.choose(Params(q, k, v, None, dropout_p, is_causal, False), partial(_takes, split, trains))
        if backend != MATH:
            return _fused(backend, split, dropout_p, is_causal, options.get("scale"))
    return torchs(keys, query, key, value, attn_mask, dropout_p, is_causal, **options)  # type: ignore[no-any-return]


def _takes(split: list[list[Tensor]], trains: bool, backend: int, debug: bool) -> bool:
    """The conditions for nested tensors of cuda/sdp_utils.cpp and sdp_utils_cpp.h."""
    reason = _refusal(split, trains, backend)
    if reason and debug:
        warnings.warn(reason, UserWarning, stacklevel=2)
    return not reason


def _refusal(split: list[list[Tensor]], trains: bool, backend: int) -> str:
    batches, heads = {len(sequences) for sequences in split}, {one.shape[0] for sequences in split for one in sequences}
    widths = [sequences[0].shape[-1] for sequences in split]
    if backend not in (FLASH, EFFICIENT):
        return "cuDNN attention does not support nested tensors of the strided layout."
    if trains and backend == EFFICIENT:
        return "Memory efficient attention currently doesn't support training with NT inputs."
    if trains and (len(batches) > 1 or len(heads) > 1):
        return "Both fused kernels do not support training with broadcasted NT inputs."
    if len(batches - {1}) > 1 or len(heads - {1}) > 1:
        return "Both fused kernels require query, key and value to have broadcastable batch sizes and num_heads."
    for one, other in (split[1:], split[:0:-1]):
        if len(one) == 1 < len(other) and len({sequence.shape[1] for sequence in other}) > 1:
            return (
                "For both fused kernels, if one of key/value batch_size requires broadcasting and the other does not, "
                "then the other must have a consistent seq_len dim."
            )
    if not all(one.shape[1] for sequences in split for one in sequences):
        return "Both fused kernels do not support seq_len == 0."
    if backend == FLASH and (len(set(widths)) > 1 or widths[0] % 8 or widths[0] > 256):
        return (
            "For NestedTensor inputs, Flash attention requires q,k,v to have the same last dimension and to be a "
            f"multiple of 8 and less than or equal to 256. Got Query.size(-1): {widths[0]}, Key.size(-1): {widths[1]}, "
            f"Value.size(-1): {widths[2]} instead."
        )
    return ""


def _fused(backend: int, split: list[list[Tensor]], dropout: float, causal: bool, scale: float | None) -> Tensor:
    if backend == FLASH:
        return _flash(split, dropout, causal, False, scale)[0]  # type: ignore[no-any-return]
    packed, ends, longest, lengths = _packed(split)
    batches = [tensor[None] for tensor in packed]  # never for training: see `_refusal`
    kernel = _aten._efficient_attention_forward
    mixed = kernel(*batches, None, *ends, *longest, dropout, int(causal), False, scale=scale)[0][0]
    return _unpacked(mixed, lengths)


def scaled_dot_product_flash_attention(
    torchs: Any,
    keys: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    """``aten::_scaled_dot_product_flash_attention`` (_scaled_dot_product_flash_attention_nestedtensor_cuda)."""
    inputs = (query, key, value)
    if not all(type(tensor) is NestedCudaTensor for tensor in inputs):
        return torchs(keys, query, key, value, dropout_p, is_causal, return_debug_mask, scale=scale)
    return _flash([list(tensor.unbind()) for tensor in inputs], dropout_p, is_causal, return_debug_mask, scale)


def _flash(split: list[list[Tensor]], dropout: float, causal: bool, debug: bool, scale: float | None) -> Any:
    """The op's results: attention, logsumexp, where sequences end, the longest, the generator's state, a mask."""
    packed, ends, longest, lengths = _packed(split)
    mixed, sums, *state_and_mask = _aten._flash_attention_forward(
        *packed, *ends, *longest, dropout, causal, debug, scale=scale
    )
    return _unpacked(mixed, lengths), sums, *ends, *longest, *state_and_mask


def _packed(split: list[list[Tensor]]) -> tuple[list[Tensor], list[Tensor], list[int], list[int]]:
    """sdpa_nested_preprocessing: the packed operands, where queries and keys end, the longest, the queries' lengths."""
    batch = max(map(len, split))
    split = [sequences * batch if len(sequences) == 1 else sequences for sequences in split]
    heads = max(sequences[0].shape[0] for sequences in split)
    lengths = [[sequence.shape[1] for sequence in sequences] for sequences in split[:2]]
    packed = [torch.cat([part.expand(heads, -1, -1).transpose(0, 1) for part in sequences]) for sequences in split]
    ends = [torch.tensor([0, *accumulate(each)], dtype=torch.int32).to(packed[0].device) for each in lengths]
    return packed, ends, [max(each) for each in lengths], lengths[0]


def _unpacked(mixed: Tensor, lengths: list[int]) -> Tensor:
    return torch._nested_tensor_from_tensor_list(list(torch.split_with_sizes(mixed, lengths))).transpose(1, 2)
