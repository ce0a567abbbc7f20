"""Which kernel computes scaled dot-product attention, as a card chooses: cuDNN, flash, memory-efficient or math.

`choose` is `select_sdp_backend` of aten/src/ATen/native/transformers/cuda/sdp_utils.cpp. `CONDITIONS` has those of
each fused kernel, in the order and with the sentences of sdp_utils.cpp and sdp_utils_cpp.h. Left out: strided nested
tensors, FlashAttention-3 and -4, tracing with symbolic sizes; a warning does not name its line of C++.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import begun, in_cuda_builds
from fakegpu_lab.driver.base.half_precision import HALVES
from fakegpu_lab.driver.placement.dtypes import cpp_name, scalar_type

if TYPE_CHECKING:
    from collections.abc import Callable

MATH, FLASH, EFFICIENT, CUDNN, OVERRIDEABLE = range(5)
"""``torch.nn.attention.SDPBackend``."""

_SM80, _SM121 = (8, 0), (12, 1)
_CUDNN_MOST = 65535  # batch size, and number of heads
_USUAL_ORDER = (FLASH, EFFICIENT, MATH, CUDNN, OVERRIDEABLE)
_state: dict[str, list[int] | None] = {"order": None}


class Params(NamedTuple):
    """The arguments that the choice depends on, under the names of ``torch.backends.cuda.SDPAParams``."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    attn_mask: torch.Tensor | None
    dropout: float
    is_causal: bool
    enable_gqa: bool


class Condition(NamedTuple):
    """A condition of a kernel.

    Attributes
    ----------
    holds
        Whether the arguments meet it.
    reason
        The warning if they do not, with the names of `_facts`, or what makes it; "" if C++ gives none.
    packed
        Whether jagged tensors have to meet it, too: torch/nested/_internal/sdpa.py has the others.
    """

    holds: Callable[[Any], bool]
    reason: str | Callable[[Any], str] = ""
    packed: bool = True


def _capability() -> tuple[int, int]:
    """The compute capability of the current device, as getCurrentDeviceProperties gives it."""
    return current.device().profile.compute_capability


def _cudnn_version() -> int:
    """The version of cuDNN that the simulated torch has: 91501 is 9.15.1."""
    return int(torch.backends.cudnn.version() or 0)  # type: ignore[no-untyped-call]


def _trains(p: Any) -> bool:
    return torch.is_grad_enabled() and (p.query.requires_grad or p.key.requires_grad or p.value.requires_grad)


def _operands(p: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return p.query, p.key, p.value


def _widths(p: Any) -> list[int]:
    return [t.shape[-1] for t in _operands(p)]


def _facts(p: Any) -> dict[str, Any]:
    """What the sentences name: q, k and v are the operands' sizes, w their widths."""
    mask = "" if p.attn_mask is None else f", Attn_mask.stride(-1): {p.attn_mask.stride(-1)}"
    hint = " (GPU backends require attn_mask's last dimension to have stride 1 while the CPU does not)." if mask else ""
    operands = _operands(p)
    return {
        "p": p, "q": list(p.query.shape), "k": list(p.key.shape), "v": list(p.value.shape), "w": _widths(p),
        "dims": [t.dim() for t in operands], "types": [cpp_name(t.dtype) for t in operands], "mask": mask, "hint": hint,
        "strides": [t.stride(-1) for t in operands], "by": _alignment(p) * p.query.element_size(),
        "elements": _alignment(p), "over": _unaligned(p), "card": "{}.{}".format(*_capability()),
        "cudnn": _cudnn_version(), "widest": _cudnn_widest(p),
    }  # fmt: skip


def _switch(enabled: Callable[[], bool], what: str) -> Condition:
    return Condition(lambda p: enabled(), f"{what} has been runtime disabled.")


def _card(what: str, least: tuple[int, int], oldest: str) -> Condition:
    reason = f"{what} only supports gpu architectures in the range [{oldest}, sm121]. Attempting to run on a sm "
    return Condition(lambda p: least <= _capability() <= _SM121, reason + "{card} gpu.")


def _dtypes(*before_ampere: torch.dtype) -> Condition:
    def allowed() -> tuple[torch.dtype, ...]:
        return (*before_ampere, torch.bfloat16) if _capability() >= _SM80 else before_ampere

    return Condition(
        lambda p: p.query.dtype == p.key.dtype == p.value.dtype and p.query.dtype in allowed(),
        lambda p: (
            f"Expected query, key and value to all be of dtype: {{{{{', '.join(map(scalar_type, allowed()))}}}}}. "
            "Got Query dtype: {types[0]}, Key dtype: {types[1]}, and Value dtype: {types[2]} instead."
        ),
    )


_ON_DEVICE = Condition(
    lambda p: p.query.is_cuda,
    "All tensors need to be on cuda device. Got query on device: {p.query.device}, key on device: {p.key.device}, "
    "value on device: {p.value.device}",
)
_DIMENSIONS = Condition(
    lambda p: p.query.dim() == p.key.dim() == p.value.dim() == 4,
    "All fused kernels requires query, key and value to be 4 dimensional, but got Query dim: {dims[0]}, Key dim: "
    "{dims[1]}, Value dim: {dims[2]} instead.",
)
_BROADCAST = "To broadcast dense inputs, try using unsqueeze and expand_to before passing them into the kernel."
_BATCHES = Condition(
    lambda p: p.query.shape[0] == p.key.shape[0] == p.value.shape[0],
    "For dense inputs, both fused kernels require query, key and value to have the same batch_size. Query.sizes(): "
    f"{{q}}, Key.sizes(): {{k}}, Value.sizes(): {{v}} instead. {_BROADCAST}",
    packed=False,
)
_HEADS = Condition(
    lambda p: p.query.shape[1] == p.key.shape[1] == p.value.shape[1],
    "For dense input, both fused kernels require query, key and value to have the same num_heads. Query.sizes(): "
    f"{{q}}, Key sizes(): {{k}}, Value sizes(): {{v}} instead. {_BROADCAST}",
    packed=False,
)
_HEADS_UNLESS_GROUPED = _HEADS._replace(holds=lambda p: p.enable_gqa or _HEADS.holds(p))
_GROUPS = Condition(
    lambda p: not p.enable_gqa or all(n > 0 and p.query.shape[1] % n == 0 for n in (p.key.shape[1], p.value.shape[1])),
    "FlashAttentionV2 only supports grouped query attention, where the number of heads in key/value must divide "
    "number of heads in query.Got input Key sizes(): {k[1]}, Value sizes(): {v[1]}, Query sizes(): {q[1]} instead.",
    packed=False,
)
_KEYS_LIKE_VALUES = Condition(
    lambda p: not p.enable_gqa or p.key.shape[1] == p.value.shape[1],
    "Both fused kernels require key and value to have the same num_heads and batch_size but got: Key sizes: {k}, "
    "Value sizes: {v}, Query sizes: {q} instead.",
    packed=False,
)
_LENGTHS = Condition(
    lambda p: p.query.shape[-2] != 0 and p.key.shape[-2] != 0,
    "All fused kernels do not support zero seq_len_q or seq_len_kv.",
    packed=False,
)


def _stride_one(p: Any) -> bool:
    mask = p.attn_mask is None or p.attn_mask.stride(-1) == 1
    return bool(mask and p.query.stride(-1) == p.key.stride(-1) == p.value.stride(-1) == 1)


_STRIDES = Condition(
    _stride_one,
    "All fused kernels require the last dimension of the input to have stride 1. Got Query.stride(-1): {strides[0]}, "
    "Key.stride(-1): {strides[1]}, Value.stride(-1): {strides[2]}{mask} instead.{hint}",
    packed=False,
)
_STRIDES_UNLESS_ONE_WIDE = _STRIDES._replace(
    holds=lambda p: _stride_one(p) or (p.query.shape[-1] == 1 and (p.attn_mask is None or p.attn_mask.stride(-1) == 1))
)


def _flash_trains(p: Any) -> bool:
    """Flash's backward for wide heads needs more shared memory than consumer cards have."""
    card, width = _capability(), p.query.shape[-1]
    small = (8, 6) <= card <= (8, 9) or (12, 0) <= card <= _SM121
    return not (_trains(p) and small) or width <= 192 or (not p.dropout and width > 224)


_FLASH = (
    _switch(torch._C._get_flash_sdp_enabled, "Flash attention"),
    _ON_DEVICE,
    _DIMENSIONS,
    Condition(lambda p: p.attn_mask is None, "Flash Attention does not support non-null attn_mask."),
    Condition(
        lambda p: all(w == p.query.shape[-1] for w in _widths(p)) and p.query.shape[-1] <= 256,
        "Flash attention requires q,k,v to have the same last dimension and to be less than or equal to 256. Got "
        "Query.size(-1): {w[0]}, Key.size(-1): {w[1]}, Value.size(-1): {w[2]} instead.",
    ),
    _card("Flash attention", _SM80, "sm80"),
    Condition(
        _flash_trains,
        "Flash attention currently doesn't support training with head_dim ∈ (192, 224] or (head_dim ∈ (224, 256] "
        "and dropout > 0.0) on gpu architectures in the range[sm86, sm89].Attempting to run with dropout set to: "
        "{p.dropout:g}and head_dim: {q[3]} on a sm {card} gpu.",
    ),
    Condition(
        lambda p: not p.is_causal or p.query.shape[-2] == p.key.shape[-2],
        "Flash attention does not support the is_causal flag when seqlen_q != seqlen_k. Got seqlen_q: {q[2]} "
        "seqlen_k: {k[2]}. If you would like to use causal attention with non-square masks, please see "
        "CausalAttnMask.",
        packed=False,
    ),
    _dtypes(torch.float16),
    _BATCHES,
    _KEYS_LIKE_VALUES,
    _GROUPS,
    _HEADS_UNLESS_GROUPED,
    _LENGTHS,
    _STRIDES_UNLESS_ONE_WIDE,
)


def _alignment(p: Any) -> int:
    """minimum_gemm_alignment, in elements."""
    major, half = _capability()[0], p.query.dtype in HALVES
    least = 4 if major >= 8 else 1
    tensor_cores = major >= 8 or (major == 7 and half)
    return max(least, 128 // (16 if half else 32)) if tensor_cores else least


def _unaligned(p: Any) -> list[int]:
    by = _alignment(p) * p.query.element_size()
    return [int(t.storage_offset()) * t.element_size() % by for t in _operands(p)]


def _efficient_width(p: Any) -> bool:
    (q, k, v), by = _widths(p), _alignment(p)
    return bool(q == k and q > 0 and v > 0 and q % by == 0 and v % by == 0)


_EFFICIENT = (
    _switch(torch._C._get_mem_efficient_sdp_enabled, "Memory Efficient attention"),
    _ON_DEVICE,
    _card("Mem Efficient Attention", (5, 0), "sm50"),
    _DIMENSIONS,
    Condition(
        _efficient_width,
        "Mem efficient attention requires last dimension of inputs to be divisible by {elements}. Got Query.size(-1): "
        "{w[0]}, Key.size(-1): {w[1]}, Value.size(-1): {w[2]} instead.",
    ),
    Condition(
        lambda p: (
            _capability() < _SM80
            or not any(rest and t.numel() for rest, t in zip(_unaligned(p), _operands(p), strict=True))
        ),
        "Mem efficient attention on sm80 or newer requires q, k, and v storage offsets * element_size to be "
        "aligned to {by} bytes. Got query.storage_offset() * element_size % alignment_bytes: {over[0]}, "
        "key.storage_offset() * element_size % alignment_bytes: {over[1]}, value.storage_offset() * element_size % "
        "alignment_bytes: {over[2]}.",
    ),
    _LENGTHS,
    _STRIDES,
    _BATCHES,
    _HEADS,
    _dtypes(torch.float16, torch.float32),
)


def _mask_suits(p: Any) -> bool:
    (_, _, rows, _), columns, mask = p.query.shape, p.key.shape[2], p.attn_mask
    return not (mask.requires_grad or mask.shape[-2] not in (rows, 1) or mask.shape[-1] not in (columns, 1))


def _mask_broadcasts(p: Any) -> bool:
    (batch, heads, *_), mask = p.query.shape, p.attn_mask
    return mask.dim() == 2 or (mask.dim() == 4 and mask.shape[0] in (1, batch) and mask.shape[1] in (1, heads))


def _cudnn_widest(p: Any) -> int:
    """The largest width of a head on this card with this cuDNN."""
    card, version = _capability(), _cudnn_version()
    if card == (9, 0) or card[0] == 10:
        if version > 92200:
            return 256
        if version >= 91100 and (p.query.shape[3], p.value.shape[3]) == (192, 128):
            return 192
    return 128


def _cudnn_trains(p: Any) -> bool:
    widths = p.query.shape[3], p.value.shape[3]
    return _cudnn_widest(p) < 256 or not _trains(p) or max(widths) <= 128 or widths in ((192, 128), (256, 256))


_CUDNN = (
    Condition(lambda p: not p.query.is_nested, "The simulation has no cuDNN attention for nested tensors."),
    _switch(torch._C._get_cudnn_sdp_enabled, "cuDNN attention"),
    _ON_DEVICE,
    _DIMENSIONS,
    Condition(
        lambda p: (
            not torch.are_deterministic_algorithms_enabled() or torch.is_deterministic_algorithms_warn_only_enabled()
        ),
        "cuDNN SDPA is not deterministic.",
    ),
    _dtypes(torch.float16),
    Condition(lambda p: p.attn_mask is None or _mask_suits(p)),
    Condition(
        lambda p: p.attn_mask is None or _mask_broadcasts(p),
        "Please use the following attn mask shapes: 2d - ({{Q_seq_len, 1}}  x {{KV_seq_len, 1}}); 4d - ({{Batch, 1}} x "
        "{{Num_heads, 1}} x {{Q_seq_len, 1}}  x {{KV_seq_len, 1}})",
    ),
    _card("cuDNN MHA", _SM80, "sm80"),
    Condition(
        lambda p: not (p.dropout > 0 and 91100 < _cudnn_version() < 91400),
        "{cudnn} cuDNN version does not support droppout in SDPA (9.11 - 9.13).",
    ),
    Condition(
        lambda p: (p.dropout * 16.0).is_integer(),
        "cuDNN dropout probability resolution is limited to 1/16.Use a dropout probability that is a multiple of 1/16 "
        "to select the cuDNN backend",
    ),
    _LENGTHS,
    _STRIDES_UNLESS_ONE_WIDE,
    _BATCHES,
    _GROUPS,
    _HEADS_UNLESS_GROUPED,
    Condition(
        lambda p: max(p.query.shape[:2]) <= _CUDNN_MOST,
        f"cuDNN SDPA does not support batch size or num_heads greater than {_CUDNN_MOST}. Got batch size: {{q[0]}}, "
        "num_heads: {q[1]}",
    ),
    Condition(
        lambda p: max(p.query.shape[3], p.value.shape[3]) <= _cudnn_widest(p),
        "head_dim should be no more than {widest}",
    ),
    Condition(lambda p: p.query.shape[3] % 8 == 0 and p.value.shape[3] % 8 == 0, "head_dim should be a multiple of 8"),
    Condition(lambda p: p.key.shape[2] != 1, "cudnn SDPA does not support key/value sequence length 1."),
    Condition(
        lambda p: not p.dropout or p.query.shape[2] != 1,
        "cudnn SDPA does not support query sequence length 1 with dropout.",
    ),
    Condition(
        _cudnn_trains,
        "cuDNN SDPA on SM 9.0/10.x does not support backward with these head dimensions. Got d_qk: {q[3]}, d_v: {v[3]}",
    ),
)

CONDITIONS = {FLASH: _FLASH, EFFICIENT: _EFFICIENT, CUDNN: _CUDNN}


def can_use(backend: int, params: Any, debug: bool = False) -> bool:
    """Whether that fused kernel takes these arguments; with `debug`, warn with the first reason against it."""
    jagged = params.query.is_nested
    for holds, reason, packed in CONDITIONS[backend]:
        if (packed or not jagged) and not holds(params):
            if debug and reason:
                sentence = reason(params) if callable(reason) else reason
                warnings.warn(sentence.format_map(_facts(params)), UserWarning, stacklevel=2)
            return False
    return True


def choose(params: Any) -> int:
    """Choose the kernel (``select_sdp_backend``).

    Raises
    ------
    RuntimeError
        No kernel that is switched on takes these arguments; warnings give the reason for each.
    """
    cpp: Any = torch._C
    enabled = {MATH: cpp._get_math_sdp_enabled(), OVERRIDEABLE: cpp._get_overrideable_sdp_enabled()}
    fused = (cpp._get_flash_sdp_enabled(), cpp._get_mem_efficient_sdp_enabled(), cpp._get_cudnn_sdp_enabled())
    if not (enabled[MATH] or any(fused)):
        raise RuntimeError(
            "No viable backend for scaled_dot_product_attention was found. This is likely due to turning off both the "
            "math kernel and the fused kernels."
        )
    for backend in _order():
        if backend in CONDITIONS:
            if can_use(backend, params):
                return backend
        elif enabled[backend]:
            if backend == OVERRIDEABLE:
                raise RuntimeError("Invalid backend")
            return backend
    for backend, name in ((EFFICIENT, "Memory efficient"), (FLASH, "Flash attention"), (CUDNN, "cuDNN attention")):
        warnings.warn(f"{name} kernel not used because:", UserWarning, stacklevel=2)
        can_use(backend, params, debug=True)
    raise RuntimeError("No available kernel. Aborting execution.")


def _set_order(order: list[int]) -> None:
    """``_set_sdp_priority_order``: kernels not named follow in their old order (Context::setSDPPriorityOrder)."""
    _state["order"] = [*order, *(backend for backend in _order() if backend not in order)]


def _order() -> list[int]:
    """The order of the kernels: the card's own, until a program sets another."""
    order = _state["order"]
    if order is None:
        order = [CUDNN, FLASH, EFFICIENT, MATH, OVERRIDEABLE] if _prefers_cudnn() else list(_USUAL_ORDER)
        _state["order"] = order
    return order


def _prefers_cudnn() -> bool:
    """check_prefer_cudnn_attention, for the first card; wheels for CUDA 12 leave out some minor versions."""
    devices = current.devices()
    if not devices or os.environ.get("TORCH_CUDNN_SDPA_DEPRIORITIZED") == "1" or _cudnn_version() <= 91500:
        return False
    return devices[0].profile.compute_capability[0] in (9, 10)


def _begin() -> None:
    _state["order"] = None


def _can_use(backend: int) -> Callable[..., bool]:
    def can_use_attention(params: Any, debug: bool = False) -> bool:
        return can_use(backend, params, debug)

    return can_use_attention


CHANGES = [
    begun(_begin, "the card's own order of kernels"),
    *in_cuda_builds({
        "_get_sdp_priority_order": lambda: list(_order()),
        "_set_sdp_priority_order": _set_order,
        "_can_use_flash_attention": _can_use(FLASH),
        "_can_use_mem_efficient_attention": _can_use(EFFICIENT),
        "_can_use_cudnn_attention": _can_use(CUDNN),
    }),
]  # fmt: skip
