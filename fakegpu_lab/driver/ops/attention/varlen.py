"""Fused attention over packed sequences of several lengths, which jagged tensors run on CUDA.

`_flash_attention_forward` and `_efficient_attention_forward` of aten/src/ATen/native/transformers/cuda/attention.cu,
and their backwards, with cumulative sequence lengths or without. Estimate: the workspace of the memory-efficient
backward. Sliding windows, paged keys and ALiBi are refused.
"""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fakegpu_lab.driver.base.device_memory import new, storage_bytes, take_bytes
from fakegpu_lab.driver.base.tensor import wrap
from fakegpu_lab.driver.cost.matrix_products import attention
from fakegpu_lab.driver.ops.attention import values
from fakegpu_lab.driver.ops.attention.backward import efficient_workspace, flash_workspace
from fakegpu_lab.driver.ops.attention.kernels import (
    FLOAT,
    check_debug_mask,
    check_flash,
    forward_settings,
    rounded,
)
from fakegpu_lab.driver.ops.attention.values import BOTTOM_RIGHT, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fakegpu_lab.driver.cost.work import Work
    from fakegpu_lab.hardware.device import Device

    Tensor = torch.Tensor


class _Packed(NamedTuple):
    """Where the sequences lie: the first row of each and the row after its last, for queries and for keys."""

    queries: list[tuple[int, int]]
    keys: list[tuple[int, int]]

    @property
    def pairs(self) -> int:
        """The number of scores in one head."""
        return sum((q[1] - q[0]) * (k[1] - k[0]) for q, k in zip(self.queries, self.keys, strict=True))


def _bounds(tensor: Tensor, cumulative: Tensor | None) -> list[tuple[int, int]]:
    if cumulative is None:  # dense: (batch, length, heads, width)
        length = tensor.shape[1]
        return [(at * length, (at + 1) * length) for at in range(tensor.shape[0])]
    if cumulative.is_meta:  # no values: taken as equally long
        count = cumulative.numel() - 1
        total = tensor.numel() // (tensor.shape[-1] * tensor.shape[-2])
        ends = [total * at // count for at in range(count + 1)]
    else:
        ends = cumulative.tolist()
    return list(pairwise(ends))


def _packed(query: Tensor, key: Tensor, cumulative_q: Tensor | None, cumulative_k: Tensor | None) -> _Packed:
    return _Packed(_bounds(query, cumulative_q), _bounds(key, cumulative_k))


def _rows(tensor: Tensor) -> Tensor:
    """As (all rows, heads, width)."""
    return tensor.reshape(-1, *tensor.shape[-2:])


def _part(rows: Tensor, bounds: tuple[int, int]) -> Tensor:
    """One sequence as (1, heads, length, width)."""
    return rows[bounds[0] : bounds[1]].transpose(0, 1).unsqueeze(0)


def _each(
    packed: _Packed, query: Tensor, key: Tensor, value: Tensor, causal: int, settings: Settings
) -> Iterator[tuple[int, tuple[int, int], tuple[int, int], Tensor, Tensor, Tensor, Settings]]:
    """Each sequence that has queries and keys, with a dropout seed of its own.

    `causal` is a CustomMaskType of mem_eff_attention, which is what `Settings.causal` takes.
    """
    query, key, value = _rows(query), _rows(key), _rows(value)
    for number, (at, of) in enumerate(zip(packed.queries, packed.keys, strict=True)):
        q, k, v = _part(query, at), _part(key, of), _part(value, of)
        if q.shape[2] and k.shape[2]:
            own = settings._replace(causal=causal, seed=settings.seed + number)
            yield number, at, of, q, k, v, own


def _forward(packed: _Packed, query: Tensor, key: Tensor, value: Tensor, causal: int, settings: Settings) -> Any:
    """The output, shaped as the queries, and the logsumexp of rows by sequence."""
    out = query.new_zeros((*query.shape[:-1], value.shape[-1]))
    sums: dict[int, Tensor] = {}
    if not query.is_meta:
        for number, at, _, q, k, v, own in _each(packed, query, key, value, causal, settings):
            part, sums[number] = values.forward(q, k, v, None, own)
            _rows(out)[at[0] : at[1]] = part[0].transpose(0, 1)
    return out, sums


def _signed_weights(packed: _Packed, query: Tensor, key: Tensor, causal: int, settings: Settings) -> Tensor:
    """The debug mask (`values.signed_weights`) of each sequence; 0 where a sequence is shorter than the longest."""
    longest = [rounded(max(end - start for start, end in each), 128) for each in (packed.queries, packed.keys)]
    masks = query.new_zeros((len(packed.queries), query.shape[-2], *longest))
    if not query.is_meta:
        for number, _, _, q, k, _, own in _each(packed, query, key, key, causal, settings):
            mask = values.signed_weights(q, k, own)[0]
            masks[number, :, : mask.shape[1], : mask.shape[2]] = mask
    return masks


def _backward(
    packed: _Packed,
    grad: Tensor,
    qkv: tuple[Tensor, Tensor, Tensor],
    out: Tensor,
    sums: Callable[[int, tuple[int, int]], Tensor],
    causal: int,
    settings: Settings,
) -> list[Tensor]:
    grads = [torch.zeros_like(t, memory_format=torch.contiguous_format) for t in qkv]
    if not grad.is_meta:
        for number, at, of, q, k, v, own in _each(packed, *qkv, causal, settings):
            grad_part, part_out = _part(_rows(grad), at), _part(_rows(out), at)
            parts = values.backward(grad_part, q, k, v, None, part_out, sums(number, at), own)
            for whole, part, where in zip(grads, parts, (at, of, of), strict=False):
                _rows(whole)[where[0] : where[1]] = part[0].transpose(0, 1)  # type: ignore[index]
    return grads


def _refuse(**options: Any) -> None:
    for name, value in options.items():
        if value is not None and value != -1:
            raise NotImplementedError(f"The simulation has no attention kernel with {name}: leave it out.")


def flash(
    device: Device,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    scale: float | None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    seqused_k: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    block_table: Tensor | None = None,
    **rest: Any,
) -> tuple[Any, ...]:
    """``_flash_attention_forward``: logsumexp is (heads, rows) if sequences are packed, else (batch, heads, length)."""
    _refuse(
        window_size_left=window_size_left, window_size_right=window_size_right, seqused_k=seqused_k,
        alibi_slopes=alibi_slopes, block_table=block_table,
    )  # fmt: skip
    check_flash(device, query)
    check_debug_mask(return_debug_mask, dropout_p)
    packed = _packed(query, key, cum_seq_q, cum_seq_k)
    heads = query.shape[-2]
    taken = take_bytes(device, query.nbytes), take_bytes(device, query.numel() // query.shape[-1] * FLOAT)
    settings = forward_settings(device, False, scale, dropout_p, len(packed.queries) * heads)
    out, sums = _forward(packed, query, key, value, BOTTOM_RIGHT * is_causal, settings)
    rows = torch.full((heads, _rows(query).shape[0]), float("inf"), device=query.device)
    for number, part in sums.items():
        rows[:, slice(*packed.queries[number])] = part[0]
    if cum_seq_q is None:
        rows = rows.view(heads, *query.shape[:2]).transpose(0, 1).contiguous()
    state = torch.tensor([settings.seed, 0], dtype=torch.uint64, device=query.device)
    unused = torch.zeros((), dtype=torch.uint64, device=query.device)
    mask = query.new_empty(0)
    if return_debug_mask:
        mask = _signed_weights(packed, query, key, BOTTOM_RIGHT * is_causal, settings)
    small = [new(t, device) for t in (state, unused, mask)]
    return wrap(out, device, taken[0]), wrap(rows, device, taken[1]), *small


def flash_backward(
    device: Device,
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    rng_state: Tensor,
    scale: float | None,
    **rest: Any,
) -> tuple[Any, ...]:
    """``_flash_attention_backward`` (mha_varlen_bwd in flash_api.cpp has the buffers)."""
    packed = _packed(query, key, cum_seq_q, cum_seq_k)
    heads, width = query.shape[-2:]
    buffers = [take_bytes(device, t.nbytes) for t in (query, key, value)]
    padded_rows = (query.numel() // (heads * width) + 128 * len(packed.queries)) * heads
    workspace = flash_workspace(device, padded_rows, heads, width, (key, value), -2)
    seed = 0 if query.is_meta or not dropout_p else int(rng_state[0])
    settings = Settings(False, scale, dropout_p, seed)

    def sums(number: int, at: tuple[int, int]) -> Tensor:
        return logsumexp[None, :, at[0] : at[1]] if cum_seq_q is not None else logsumexp[number : number + 1]

    grads = _backward(packed, grad_out, (query, key, value), out, sums, BOTTOM_RIGHT * is_causal, settings)
    del workspace
    return tuple(wrap(grad, device, buffer) for grad, buffer in zip(grads, buffers, strict=True))


def efficient(
    device: Device,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int | None,
    max_seqlen_k: int | None,
    dropout_p: float,
    custom_mask_type: int,
    compute_log_sumexp: bool,
    scale: float | None,
    seqlen_k: Tensor | None,
    window_size: int | None,
) -> tuple[Any, ...]:
    """``_efficient_attention_forward``: logsumexp is (sequences, heads, longest length padded to 32)."""
    _refuse(bias=bias, seqlen_k=seqlen_k, window_size=window_size)
    packed = _packed(query, key, cu_seqlens_q, cu_seqlens_k)
    heads, longest = query.shape[-2], query.shape[1] if max_seqlen_q is None else max_seqlen_q
    padded = rounded(longest, 32) if compute_log_sumexp else 0
    out_bytes = query.numel() // query.shape[-1] * value.shape[-1] * query.element_size()
    taken = take_bytes(device, out_bytes), take_bytes(device, len(packed.queries) * heads * padded * FLOAT)
    settings = forward_settings(device, False, scale, dropout_p, len(packed.queries) * heads)
    out, sums = _forward(packed, query, key, value, custom_mask_type, settings)
    rows = torch.full((len(packed.queries), heads, padded), float("inf"), device=query.device)
    if padded:
        for number, part in sums.items():
            rows[number, :, : part.shape[2]] = part[0]
    seed = torch.tensor(settings.seed)
    columns = key.shape[1] if max_seqlen_k is None else max_seqlen_k
    return wrap(out, device, taken[0]), wrap(rows, device, taken[1]), seed, torch.zeros_like(seed), longest, columns


def efficient_backward(
    device: Device,
    grad_out_: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    out: Tensor,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    logsumexp: Tensor,
    dropout_p: float,
    philox_seed: Tensor,
    custom_mask_type: int,
    scale: float | None,
    **rest: Any,
) -> tuple[Any, ...]:
    """``_efficient_attention_backward``."""
    _refuse(bias=bias)
    packed = _packed(query, key, cu_seqlens_q, cu_seqlens_k)
    buffers = [take_bytes(device, storage_bytes(torch.empty(t.shape, dtype=t.dtype, device="meta")))
               for t in (query, key, value)]  # fmt: skip
    workspace = efficient_workspace(device, query, rounded(query.numel() // query.shape[-1], 32))
    settings = Settings(False, scale, dropout_p, int(philox_seed))

    def sums(number: int, at: tuple[int, int]) -> Tensor:
        return logsumexp[number : number + 1, :, : at[1] - at[0]]

    grads = _backward(packed, grad_out_, (query, key, value), out, sums, custom_mask_type, settings)
    del workspace
    return *(wrap(grad, device, buffer) for grad, buffer in zip(grads, buffers, strict=True)), None


def cost(device: Device, inner: dict[str, Any], backward: bool, moved: int) -> Work:
    """The cost of one kernel with as many scores."""
    query, key, value = inner["query"], inner["key"], inner["value"]
    flash = "cum_seq_q" in inner
    names = ("cum_seq_q", "cum_seq_k") if flash else ("cu_seqlens_q", "cu_seqlens_k")
    pairs = _packed(query, key, inner[names[0]], inner[names[1]]).pairs
    heads, rows = query.shape[-2], max(1, _rows(query).shape[0])

    def shaped(tensor: Tensor, length: int) -> SimpleNamespace:
        return SimpleNamespace(shape=(1, heads, length, tensor.shape[-1]), dtype=tensor.dtype)

    columns = max(1, round(pairs / rows))
    causal = bool(inner["is_causal"] if flash else inner["custom_mask_type"])
    q, k, v = shaped(query, rows), shaped(key, columns), shaped(value, columns)
    which = "flash" if flash else "efficient"
    return attention(device, q, k, v, causal=causal, backward=backward, nbytes=moved, which=which)
