"""The conditions of each fused kernel of scaled dot-product attention, on its arguments and on the card.

The conditions, their order and their sentences are those of aten/src/ATen/native/transformers/cuda/sdp_utils.cpp and
sdp_utils_cpp.h. With `debug`, a condition that fails warns with the reason. Left out: strided nested tensors,
FlashAttention-3 and -4, tracing with symbolic sizes; a warning does not name the line of C++ that it comes from.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.half_precision import HALVES
from fakegpu_lab.driver.placement.dtypes import cpp_name

if TYPE_CHECKING:
    from collections.abc import Callable

MATH, FLASH, EFFICIENT, CUDNN, OVERRIDEABLE = range(5)
"""``torch.nn.attention.SDPBackend``."""

_SM80, _SM121 = (8, 0), (12, 1)
_CUDNN_MOST = 65535  # batch size, and number of heads


class Params(NamedTuple):
    """The arguments that the choice depends on, under the names of ``torch.backends.cuda.SDPAParams``."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    attn_mask: torch.Tensor | None
    dropout: float
    is_causal: bool
    enable_gqa: bool


def _capability() -> tuple[int, int]:
    """The compute capability of the current device, as getCurrentDeviceProperties gives it."""
    return current.device().profile.compute_capability


def cudnn_version() -> int:
    """The version of cuDNN that the simulated torch has: 91501 is 9.15.1."""
    return int(torch.backends.cudnn.version() or 0)  # type: ignore[no-untyped-call]


def _trains(p: Any) -> bool:
    return torch.is_grad_enabled() and (p.query.requires_grad or p.key.requires_grad or p.value.requires_grad)


def _fails(debug: bool, reason: str) -> bool:
    if debug:
        warnings.warn(reason, UserWarning, stacklevel=2)
    return False


def _runtime(enabled: Callable[[], bool], what: str) -> Callable[[Any, bool], bool]:
    return lambda p, debug: enabled() or _fails(debug, f"{what} has been runtime disabled.")


def _on_device(p: Any, debug: bool) -> bool:
    return p.query.is_cuda or _fails(
        debug,
        f"All tensors need to be on cuda device. Got query on device: {p.query.device}, key on device: "
        f"{p.key.device}, value on device: {p.value.device}",
    )


def _shapes(p: Any, debug: bool) -> bool:
    q, k, v = p.query.dim(), p.key.dim(), p.value.dim()
    return q == k == v == 4 or _fails(
        debug,
        "All fused kernels requires query, key and value to be 4 dimensional, but got Query dim: "
        f"{q}, Key dim: {k}, Value dim: {v} instead.",
    )


def _no_mask(p: Any, debug: bool) -> bool:
    return p.attn_mask is None or _fails(debug, "Flash Attention does not support non-null attn_mask.")


def _widths(p: Any) -> tuple[int, int, int]:
    return p.query.shape[-1], p.key.shape[-1], p.value.shape[-1]


def _flash_head_dim(p: Any, debug: bool) -> bool:
    q, k, v = _widths(p)
    return (q == k == v and q <= 256) or _fails(
        debug,
        "Flash attention requires q,k,v to have the same last dimension and to be less than or equal to 256. Got "
        f"Query.size(-1): {q}, Key.size(-1): {k}, Value.size(-1): {v} instead.",
    )


def _hardware(what: str, least: tuple[int, int], oldest: str) -> Callable[[Any, bool], bool]:
    def check(p: Any, debug: bool) -> bool:
        major, minor = _capability()
        return least <= (major, minor) <= _SM121 or _fails(
            debug,
            f"{what} only supports gpu architectures in the range [{oldest}, sm121]. Attempting to run on a sm "
            f"{major}.{minor} gpu.",
        )

    return check


def _flash_training(p: Any, debug: bool) -> bool:
    """Flash's backward for wide heads needs more shared memory than consumer cards have."""
    major, minor = card = _capability()
    width = p.query.shape[-1]
    if not (_trains(p) and ((8, 6) <= card <= (8, 9) or (12, 0) <= card <= _SM121)):
        return True
    return width <= 192 or (not p.dropout and width > 224) or _fails(
        debug,
        "Flash attention currently doesn't support training with head_dim ∈ (192, 224] or (head_dim ∈ (224, 256] and "
        "dropout > 0.0) on gpu architectures in the range[sm86, sm89].Attempting to run with dropout set to: "
        f"{p.dropout:g}and head_dim: {width} on a sm {major}.{minor} gpu.",
    )  # fmt: skip


def _flash_square(p: Any, debug: bool) -> bool:
    q, k = p.query.shape[-2], p.key.shape[-2]
    return not p.is_causal or q == k or _fails(
        debug,
        "Flash attention does not support the is_causal flag when seqlen_q != seqlen_k. "
        f"Got seqlen_q: {q} seqlen_k: {k}. If you would like to use causal attention with non-square masks, please "
        "see CausalAttnMask.",
    )  # fmt: skip


def _dtypes(p: Any, debug: bool, allowed: tuple[torch.dtype, ...]) -> bool:
    q, k, v = p.query.dtype, p.key.dtype, p.value.dtype
    names = ", ".join({torch.float16: "Half", torch.bfloat16: "BFloat16", torch.float32: "Float"}[d] for d in allowed)
    return (q == k == v and q in allowed) or _fails(
        debug,
        f"Expected query, key and value to all be of dtype: {{{names}}}. Got Query dtype: {cpp_name(q)}, Key dtype: "
        f"{cpp_name(k)}, and Value dtype: {cpp_name(v)} instead.",
    )


def _low_precision(p: Any, debug: bool) -> bool:
    return _dtypes(p, debug, HALVES if _capability() >= _SM80 else (torch.float16,))


def _efficient_dtypes(p: Any, debug: bool) -> bool:
    new = (torch.float16, torch.float32, torch.bfloat16)
    return _dtypes(p, debug, new if _capability() >= _SM80 else new[:2])


def _heads(p: Any, debug: bool, same_kv: bool = True, grouped: bool = True) -> bool:
    sizes = [list(t.shape) for t in (p.query, p.key, p.value)]
    if not sizes[0][0] == sizes[1][0] == sizes[2][0]:
        return _fails(
            debug,
            "For dense inputs, both fused kernels require query, key and value to have the same batch_size. "
            f"Query.sizes(): {sizes[0]}, Key.sizes(): {sizes[1]}, Value.sizes(): {sizes[2]} instead. To broadcast "
            "dense inputs, try using unsqueeze and expand_to before passing them into the kernel.",
        )
    q, k, v = (size[1] for size in sizes)
    if p.enable_gqa and grouped:
        if same_kv and k != v:
            return _fails(
                debug,
                "Both fused kernels require key and value to have the same num_heads and batch_size but got: "
                f"Key sizes: {sizes[1]}, Value sizes: {sizes[2]}, Query sizes: {sizes[0]} instead.",
            )
        return (k > 0 and v > 0 and q % k == 0 and q % v == 0) or _fails(
            debug,
            "FlashAttentionV2 only supports grouped query attention, where the number of heads in key/value must "
            f"divide number of heads in query.Got input Key sizes(): {k}, Value sizes(): {v}, Query sizes(): {q} "
            "instead.",
        )
    return q == k == v or _fails(
        debug,
        "For dense input, both fused kernels require query, key and value to have the same num_heads. "
        f"Query.sizes(): {sizes[0]}, Key sizes(): {sizes[1]}, Value sizes(): {sizes[2]} instead. To broadcast dense "
        "inputs, try using unsqueeze and expand_to before passing them into the kernel.",
    )


def _lengths(p: Any, debug: bool) -> bool:
    return (p.query.shape[-2] != 0 and p.key.shape[-2] != 0) or _fails(
        debug, "All fused kernels do not support zero seq_len_q or seq_len_kv."
    )


def _dense(p: Any, debug: bool, singleton: bool = True) -> bool:
    strides = [t.stride(-1) for t in (p.query, p.key, p.value)]
    mask = p.attn_mask is None or p.attn_mask.stride(-1) == 1
    if mask and (strides == [1, 1, 1] or (singleton and p.query.shape[-1] == 1)):
        return True
    more = f", Attn_mask.stride(-1): {p.attn_mask.stride(-1)}" if p.attn_mask is not None else ""
    return _fails(
        debug,
        "All fused kernels require the last dimension of the input to have stride 1. Got Query.stride(-1): "
        f"{strides[0]}, Key.stride(-1): {strides[1]}, Value.stride(-1): {strides[2]}{more} instead."
        + (" (GPU backends require attn_mask's last dimension to have stride 1 while the CPU does not)." * bool(more)),
    )


def _strict(p: Any, debug: bool) -> bool:
    return _dense(p, debug, singleton=False)


def _alignment(p: Any) -> int:
    """minimum_gemm_alignment, in elements."""
    major, half = _capability()[0], p.query.dtype in HALVES
    least = 4 if major >= 8 else 1
    tensor_cores = major >= 8 or (major == 7 and half)
    return max(least, 128 // (16 if half else 32)) if tensor_cores else least


def _efficient_head_dim(p: Any, debug: bool) -> bool:
    (q, k, v), by = _widths(p), _alignment(p)
    return (q == k and q > 0 and v > 0 and q % by == 0 and v % by == 0) or _fails(
        debug,
        f"Mem efficient attention requires last dimension of inputs to be divisible by {by}. Got Query.size(-1): {q}, "
        f"Key.size(-1): {k}, Value.size(-1): {v} instead.",
    )


def _efficient_aligned(p: Any, debug: bool) -> bool:
    if _capability() < _SM80:
        return True
    tensors = (p.query, p.key, p.value)
    by = _alignment(p) * p.query.element_size()
    over = [int(t.storage_offset()) * t.element_size() % by for t in tensors]
    if not any(rest and t.numel() for rest, t in zip(over, tensors, strict=True)):
        return True
    offsets = ", ".join(
        f"{name}.storage_offset() * element_size % alignment_bytes: {rest}"
        for name, rest in zip(("query", "key", "value"), over, strict=True)
    )
    return _fails(
        debug,
        "Mem efficient attention on sm80 or newer requires q, k, and v storage offsets * element_size to be aligned "
        f"to {by} bytes. Got {offsets}.",
    )


def _mask_shape(p: Any, debug: bool) -> bool:
    mask = p.attn_mask
    if mask is None:
        return True
    (batch, heads, rows, _), columns = p.query.shape, p.key.shape[2]
    if mask.requires_grad or mask.shape[-2] not in (rows, 1) or mask.shape[-1] not in (columns, 1):
        return False
    if mask.dim() == 2 or (mask.dim() == 4 and mask.shape[0] in (1, batch) and mask.shape[1] in (1, heads)):
        return True
    return _fails(
        debug,
        "Please use the following attn mask shapes: 2d - ({Q_seq_len, 1}  x {KV_seq_len, 1}); 4d - ({Batch, 1} x "
        "{Num_heads, 1} x {Q_seq_len, 1}  x {KV_seq_len, 1})",
    )


def _cudnn_dropout(p: Any, debug: bool) -> bool:
    if p.dropout > 0 and 91100 < cudnn_version() < 91400:
        return _fails(debug, f"{cudnn_version()} cuDNN version does not support droppout in SDPA (9.11 - 9.13).")
    return (p.dropout * 16.0).is_integer() or _fails(
        debug,
        "cuDNN dropout probability resolution is limited to 1/16.Use a dropout probability that is a multiple of 1/16 "
        "to select the cuDNN backend",
    )


def _cudnn_deterministic(p: Any, debug: bool) -> bool:
    strict = torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled()
    return not strict or _fails(debug, "cuDNN SDPA is not deterministic.")


def _cudnn_shapes(p: Any, debug: bool) -> bool:
    batch, heads, rows, width = p.query.shape
    columns, value_width = p.key.shape[2], p.value.shape[3]
    if batch > _CUDNN_MOST or heads > _CUDNN_MOST:
        return _fails(
            debug,
            f"cuDNN SDPA does not support batch size or num_heads greater than {_CUDNN_MOST}. Got batch size: {batch}, "
            f"num_heads: {heads}",
        )
    limit = _cudnn_widest(width, value_width)
    if width > limit or value_width > limit:
        return _fails(debug, f"head_dim should be no more than {limit}")
    if width % 8 or value_width % 8:
        return _fails(debug, "head_dim should be a multiple of 8")
    if columns == 1:
        return _fails(debug, "cudnn SDPA does not support key/value sequence length 1.")
    if p.dropout and rows == 1:
        return _fails(debug, "cudnn SDPA does not support query sequence length 1 with dropout.")
    return not (limit == 256 and _trains(p)) or _cudnn_backward(width, value_width, debug)


def _cudnn_widest(width: int, value_width: int) -> int:
    """The largest width of a head on this card with this cuDNN."""
    card = _capability()
    if card == (9, 0) or card[0] == 10:
        if cudnn_version() > 92200:
            return 256
        if cudnn_version() >= 91100 and (width, value_width) == (192, 128):
            return 192
    return 128


def _cudnn_backward(width: int, value_width: int, debug: bool) -> bool:
    narrow = width <= 128 and value_width <= 128
    return narrow or (width, value_width) in ((192, 128), (256, 256)) or _fails(
        debug,
        "cuDNN SDPA on SM 9.0/10.x does not support backward with these head dimensions. Got d_qk: "
        f"{width}, d_v: {value_width}",
    )  # fmt: skip


_heads_kv_differ, _heads_alike = partial(_heads, same_kv=False), partial(_heads, grouped=False)

CHECKS: dict[int, tuple[Callable[[Any, bool], bool], ...]] = {
    FLASH: (
        _runtime(torch._C._get_flash_sdp_enabled, "Flash attention"), _on_device, _shapes, _no_mask,
        _flash_head_dim, _hardware("Flash attention", _SM80, "sm80"), _flash_training, _flash_square, _low_precision,
        _heads, _lengths, _dense,
    ),
    EFFICIENT: (
        _runtime(torch._C._get_mem_efficient_sdp_enabled, "Memory Efficient attention"), _on_device,
        _hardware("Mem Efficient Attention", (5, 0), "sm50"), _shapes, _efficient_head_dim, _efficient_aligned,
        _lengths, _strict, _heads_alike, _efficient_dtypes,
    ),
    CUDNN: (
        _runtime(torch._C._get_cudnn_sdp_enabled, "cuDNN attention"), _on_device, _shapes,
        _cudnn_deterministic, _low_precision, _mask_shape, _hardware("cuDNN MHA", _SM80, "sm80"), _cudnn_dropout,
        _lengths, _dense, _heads_kv_differ, _cudnn_shapes,
    ),
}  # fmt: skip

_DENSE_ONLY = (_flash_square, _heads, _heads_alike, _heads_kv_differ, _lengths, _dense, _strict)
"""Conditions that sdp_utils.cpp checks for dense arguments only."""


def can_use(backend: int, params: Any, debug: bool = False) -> bool:
    """Whether that fused kernel takes these arguments; with `debug`, warn with the first reason against it."""
    checks = CHECKS[backend]
    if params.query.is_nested:  # jagged: torch/nested/_internal/sdpa.py has the rest
        if backend == CUDNN:
            return _fails(debug, "The simulation has no cuDNN attention for nested tensors.")
        checks = tuple(check for check in checks if check not in _DENSE_ONLY)
    return all(check(params, debug) for check in checks)
