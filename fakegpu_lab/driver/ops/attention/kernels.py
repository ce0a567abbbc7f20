"""The forward of CUDA's fused attention kernels: flash, memory-efficient and cuDNN's.

Results, their memory layout, what is kept for backward, and the memory taken while a kernel runs follow
aten/src/ATen/native/transformers/cuda/attention.cu and flash_attn/flash_api.cpp. Estimate: cuDNN's workspace, which is
not public, is taken as zero. `backward` has the backward kernels.
"""

from __future__ import annotations

from functools import lru_cache, partial
from math import ceil
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base import graph_capture
from fakegpu_lab.driver.base.device_memory import new, storage_bytes, take_bytes
from fakegpu_lab.driver.base.half_precision import HALVES
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, wrap
from fakegpu_lab.driver.cost.launching import kernel, launched
from fakegpu_lab.driver.cost.matrix_products import attention
from fakegpu_lab.driver.cost.work import Work, nbytes_of
from fakegpu_lab.driver.ops.attention import values
from fakegpu_lab.driver.ops.attention.values import BOTTOM_RIGHT, Settings
from fakegpu_lab.driver.placement import device_check
from fakegpu_lab.driver.random.generators import draw_position, draw_seed

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op
    from fakegpu_lab.hardware.buffer import Buffer
    from fakegpu_lab.hardware.device import Device

    Tensor = torch.Tensor
    Kernel = Callable[..., tuple[Any, ...]]

FLOAT = 4
"""Bytes of a float32."""
_scalar: Callable[..., Any] = torch._C._VariableFunctions.scalar_tensor  # faster than `torch.tensor`


def cost(device: Device, inner: dict[str, Any], backward: bool, moved: int, which: str = "flash") -> Work:
    """What an attention kernel costs; `which` is the name that `cost.products.attention` has for it."""
    qkv = inner["query"], inner["key"], inner["value"]
    return attention(device, *qkv, causal=bool(inner["is_causal"]), backward=backward, nbytes=moved, which=which)


CUDNN, EFFICIENT = (partial(cost, which=which) for which in ("cudnn", "efficient"))


def one_kernel(
    compute: Kernel, cost: Callable[..., Work] = cost
) -> Callable[[Op, tuple[Any, ...], dict[str, Any]], Any]:
    """A handler that runs `compute`, on the device and inner tensors under the schema's names, as one kernel."""

    def run(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        named = {a.name: a.default_value for a in op.schema.arguments if a.has_default_value()}
        named.update(zip(op.arguments, args, strict=False))
        named.update(kwargs)
        tensors = [(name, value) for name, value in named.items() if isinstance(value, torch.Tensor)]
        device = device_check.resolve(op, [pair for pair in tensors if not pair[0].startswith("philox_")], args)
        if device.retired:
            raise device_asserts.retired_error(device)
        inner = {name: v._inner if v.__class__ is FakeCudaTensor else v for name, v in named.items()}
        results = compute(device, **inner)
        moved = nbytes_of([v for v in (*inner.values(), *results) if isinstance(v, torch.Tensor)])
        kernel(device, cost(device, inner, op.name.endswith("backward"), moved))
        return results

    return run


def laid_out(like: Tensor, value: Tensor) -> Tensor:
    """`value` in the memory layout of `like`."""
    if value.stride() == like.stride() and not value.storage_offset():
        return value
    return torch.empty_strided(like.shape, like.stride(), dtype=value.dtype, device=value.device).copy_(value)


def empty_alike(tensor: Tensor) -> Tensor:
    """``empty_like``, without memory."""
    return torch.empty_like(tensor, device="meta")


@lru_cache
def heads_last(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """An empty (batch, heads, length, width) laid out as (batch, length, heads, width), without memory."""
    batch, heads, length, width = shape
    return torch.empty((batch, length, heads, width), dtype=dtype, device="meta").transpose(1, 2)


def rounded(value: int, by: int) -> int:
    """`value`, rounded up to a multiple of `by`."""
    return -(-value // by) * by


def forward_settings(device: Device, causal: bool | int, scale: float | None, dropout: float, heads: int) -> Settings:
    """Settings of a forward, which for dropout draws a seed for `heads` heads, of all sequences together."""
    return Settings(causal, scale, dropout, draw_seed(device, 32 * heads) if dropout else 0)


def check_flash(device: Device, query: Tensor) -> None:
    """Raise unless card and dtype suit flash attention (flash_attn/flash_api.cpp)."""
    if device.profile.compute_capability < (8, 0):
        raise RuntimeError("FlashAttention only supports Ampere GPUs or newer.")
    if query.dtype not in HALVES:
        raise RuntimeError("FlashAttention only support fp16 and bf16 data type")


def check_debug_mask(wanted: bool, dropout: float) -> None:
    """Raise if flash attention is to return its dropout mask, but there is no dropout."""
    if wanted and not dropout:
        raise RuntimeError("return_softmax is only supported when p_dropout > 0.0")


def _splits(blocks: int, multiprocessors: int, key_blocks: int) -> int:
    """num_splits_heuristic: over how many blocks to split the keys so that the card is busy."""
    if blocks >= 0.8 * multiprocessors:
        return 1
    most = min(128, multiprocessors, key_blocks)
    efficiency = [0.0] * (most + 1)
    for splits in range(1, most + 1):
        if splits == 1 or ceil(key_blocks / splits) != ceil(key_blocks / (splits - 1)):
            waves = blocks * splits / multiprocessors
            efficiency[splits] = waves / ceil(waves)
    best = max(efficiency, default=0.0)
    return next((s for s in range(1, most + 1) if efficiency[s] and efficiency[s] >= 0.85 * best), 1)


def flash_width(width: int) -> int:
    """The width of a head in flash's accumulators."""
    return rounded(width, 32 if width <= 128 else 64)


def flash(
    device: Device,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    scale: float | None,
) -> tuple[Any, ...]:
    """``_scaled_dot_product_flash_attention``."""
    check_flash(device, query)
    for name, other in (("key", key), ("value", value)):
        if other.dtype is not query.dtype:
            raise RuntimeError(f"query and {name} must have the same dtype")
    batch, heads, rows, width = query.shape
    if width % 8:
        raise RuntimeError("head_size must be a multiple of 8, this is ensured by padding!")
    if width > 256:
        raise RuntimeError("FlashAttention forward only supports head dimension at most 256")
    if heads % key.shape[1]:
        raise RuntimeError("Number of heads in key/value must divide number of heads in query")
    check_debug_mask(return_debug_mask, dropout_p)
    settings = forward_settings(device, BOTTOM_RIGHT * is_causal, scale, dropout_p, batch * heads)
    like = empty_alike(query.transpose(1, 2)).transpose(1, 2)
    taken = [take_bytes(device, storage_bytes(like)), take_bytes(device, batch * heads * rows * FLOAT)]
    block = 256 if width <= 64 else 128 if width <= 128 else 64
    splits = 1
    if not dropout_p:
        blocks = batch * heads * ceil(rows / 64)
        splits = _splits(blocks, device.profile.sm_count * 2, ceil(key.shape[2] / block))
    accumulators: list[Buffer] = []
    if splits > 1:
        partial = splits * batch * heads * rows * FLOAT
        accumulators = [take_bytes(device, partial), take_bytes(device, partial * flash_width(width))]
    out, sums = values.forward(query, key, value, None, settings)
    host = "meta" if query.is_meta else "cpu"
    state = torch.tensor([settings.seed, 0], dtype=torch.uint64, device=host)
    unused = torch.zeros((), dtype=torch.uint64, device=host)
    mask = values.signed_weights(query, key, settings) if return_debug_mask else query.new_empty(0)
    results = (
        wrap(laid_out(like, out), device, taken[0]), wrap(sums.contiguous(), device, taken[1]), None, None,
        rows, key.shape[2], new(state, device), new(unused, device), new(mask, device),
    )  # fmt: skip
    del accumulators
    return results


# The next two share a part of their schemas, and so of their parameters.
def efficient(
    device: Device,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> tuple[Any, ...]:
    """``_scaled_dot_product_efficient_attention``: logsumexp is padded to 32 rows.

    Seed and offset are on the host, or on the device while a graph is captured.
    """
    batch, heads, rows, _ = query.shape
    settings = Settings(is_causal, scale, dropout_p)
    if dropout_p:
        position = draw_position(device, batch * heads * rows * key.shape[2])
        settings = settings._replace(seed=position[0], offset=position[1])
    like = heads_last((batch, heads, rows, value.shape[3]), query.dtype)
    padded = rounded(rows, 32) if compute_log_sumexp else 0
    taken = take_bytes(device, storage_bytes(like))
    sums_taken = take_bytes(device, batch * heads * padded * FLOAT)
    wide = value.shape[3] > 128 and query.dtype in HALVES  # the output does not fit into registers
    accumulator = take_bytes(device, like.numel() * FLOAT) if wide else None
    out, sums = values.forward(query, key, value, attn_bias, settings)
    if padded == rows:
        saved = sums.contiguous()
    else:
        saved = sums.new_full((batch, heads, padded), float("inf"))
        if padded:
            saved[:, :, :rows] = sums
    signed = settings.seed - 2**64 if settings.seed >= 2**63 else settings.seed
    seed, offset = _scalar(signed, dtype=torch.int64), _scalar(settings.offset or 0, dtype=torch.int64)
    if graph_capture.underway and graph_capture.current_capture() is not None:
        seed, offset = new(seed, device), new(offset, device)
    results = (wrap(laid_out(like, out), device, taken), wrap(saved, device, sums_taken), seed, offset)
    del accumulator
    return results


def cudnn(
    device: Device,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    **rest: Any,
) -> tuple[Any, ...]:
    """``_scaled_dot_product_cudnn_attention``: the output has the memory layout of the queries."""
    if query.dtype not in HALVES:
        raise RuntimeError("cuDNN SDPA only supports fp16 and bf16 data types")
    batch, heads, rows, _ = query.shape
    settings = forward_settings(device, is_causal, scale, dropout_p, batch * heads)
    order = sorted(range(4), key=query.stride, reverse=True)
    shape = (batch, heads, rows, value.shape[3])
    like = (
        empty_alike(query)
        if shape == query.shape
        else torch.empty_permuted(shape, order, device="meta", dtype=query.dtype)
    )
    taken = take_bytes(device, storage_bytes(like))
    bias = None if attn_bias is None else attn_bias.expand(batch, heads, rows, key.shape[2])
    out, sums = values.forward(query, key, value, bias, settings)
    seed = torch.tensor(settings.seed, device="meta" if query.is_meta else "cpu")
    saved = new(sums.contiguous().unsqueeze(-1), device) if compute_log_sumexp else new(sums.new_empty(0), device)
    return (
        wrap(laid_out(like, out), device, taken), saved, None, None, rows, key.shape[2],
        new(seed, device), new(torch.zeros_like(seed), device), None,
    )  # fmt: skip


def fill_mask(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``_fill_mem_eff_dropout_mask_``: the numbers that the efficient kernel compares with the dropout, for tests."""
    mask, _, seed, offset = args
    settings = Settings(False, None, seed=seed, offset=offset)
    if not mask._inner.is_meta:
        mask._inner.copy_(values.uniform_numbers(settings, tuple(mask.shape), slice(0, mask.shape[2])))
    launched(op, mask._device, (), mask._inner, 0)
    return mask
