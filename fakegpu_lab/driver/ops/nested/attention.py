"""`scaled_dot_product_attention` of strided nested tensors: the fused kernels over packed sequences, or the math path.

Follows sdpa_nested_preprocessing (aten/src/ATen/native/nested/cuda/NestedTensorTransformerUtils.cpp), except that the
heads are copied to be packed; on CUDA they usually are. Which kernel can be used is asked for the first sequence.
"""

from __future__ import annotations

import warnings
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
        batch = next(tensor.size(0) for tensor, is_ours in zip(inputs, ours, strict=True) if is_ours)
        split = [_sequences(tensor, batch) for tensor in inputs]
        backend = _choose(split, dropout_p, is_causal)
        if backend != MATH:
            return _fused(backend, split, dropout_p, is_causal, options.get("scale"))
    return torchs(keys, query, key, value, attn_mask, dropout_p, is_causal, **options)  # type: ignore[no-any-return]


def _sequences(tensor: Tensor, batch: int) -> list[Tensor]:
    """The sequences of a batch, each (heads, length, width); one stands for all."""
    sequences = list(tensor.unbind())
    return sequences * batch if len(sequences) == 1 else sequences


def _choose(split: list[list[Tensor]], dropout: float, causal: bool) -> int:
    first = [sequences[0][None] for sequences in split]
    lengths = [[sequence.shape[1] for sequence in sequences] for sequences in split]
    if len(set(map(len, lengths))) > 1 or not all(map(all, lengths)):
        return MATH  # check_batch_size_nested, check_for_seq_len_0_nested_tensor
    heads = max(tensor.shape[1] for tensor in first)
    query, key, value = (tensor.expand(-1, heads, -1, -1) for tensor in first)
    backend = choice.choose(Params(query, key, value, None, dropout, causal, False))
    if backend == FLASH and query.shape[-1] % 8:
        warnings.warn("For NestedTensor inputs, Flash attention requires", UserWarning, stacklevel=2)
        backend = MATH
    return backend if backend in (FLASH, EFFICIENT) else MATH


def _fused(backend: int, split: list[list[Tensor]], dropout: float, causal: bool, scale: float | None) -> Tensor:
    heads = max(sequences[0].shape[0] for sequences in split)
    lengths = [[sequence.shape[1] for sequence in sequences] for sequences in split[:2]]
    packed = [torch.cat([part.expand(heads, -1, -1).transpose(0, 1) for part in sequences]) for sequences in split]
    device = packed[0].device
    ends = [torch.tensor([0, *accumulate(each)], dtype=torch.int32).to(device) for each in lengths]
    longest = [max(each) for each in lengths]
    if backend == FLASH:
        mixed = _aten._flash_attention_forward(*packed, *ends, *longest, dropout, causal, False, scale=scale)[0]
    else:
        trains = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in packed)
        batch = [tensor[None] for tensor in packed]
        kernel = _aten._efficient_attention_forward
        mixed = kernel(*batch, None, *ends, *longest, dropout, int(causal), trains, scale=scale)[0][0]
    return torch._nested_tensor_from_tensor_list(list(mixed.split(lengths[0]))).transpose(1, 2)
