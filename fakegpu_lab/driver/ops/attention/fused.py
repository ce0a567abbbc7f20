"""CUDA's fused attention kernels: flash, memory-efficient and cuDNN's. A `Kernel` is what differs between them.

Results, their memory layout, what is kept for backward, and the memory taken while a kernel runs follow attention.cu
and attention_backward.cu in aten/src/ATen/native/transformers/cuda, and flash_attn/flash_api.cpp. Estimates: cuDNN's
workspace, which is not public, is taken as zero forward and as flash's backward; the efficient kernel's backward takes
one float32 accumulator for the queries where the operands are half precision.

Whatever the op's layout, tensors are (batch, heads, length, width) here. The ops of
``scaled_dot_product_attention`` have this layout; the kernels' own ops, which jagged tensors and
``torch.nn.attention.varlen`` call, have (batch, length, heads, width), or all sequences in one, with the rows at which
each begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from math import ceil, prod
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base import graph_capture, not_simulated
from fakegpu_lab.driver.base.device_memory import new, storage_bytes, take_bytes
from fakegpu_lab.driver.base.half_precision import HALVES
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, wrap, wrap_view
from fakegpu_lab.driver.cost.launching import kernel as queue
from fakegpu_lab.driver.cost.matrix_products import attention
from fakegpu_lab.driver.cost.work import nbytes_of
from fakegpu_lab.driver.ops.attention import values
from fakegpu_lab.driver.ops.attention.values import BOTTOM_RIGHT, Settings
from fakegpu_lab.driver.placement import device_check
from fakegpu_lab.driver.random.generators import draw_position, draw_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fakegpu_lab.driver.cost.op import Op

    Tensor = torch.Tensor

_FLOAT = 4  # bytes
_UNSHARED = "Number of heads in key/value must divide number of heads in query"
_scalar: Callable[..., Any] = torch._C._VariableFunctions.scalar_tensor  # faster than `torch.tensor`
_OPTIONS = (
    "window_size_left", "window_size_right", "window_size", "seqused_k", "seqlen_k", "alibi_slopes", "block_table",
    "q_descale", "k_descale", "v_descale", "return_debug_mask",
)  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """A fused kernel.

    Attributes
    ----------
    name
        As `matrix_products.attention` calls it.
    check
        Raises what the kernel raises for a call that it does not take.
    layout
        An empty tensor of a shape in the layout in which the kernel writes for an operand, without memory.
    causal
        Which mask ``is_causal`` stands for (`Settings.causal`).
    forward_takes, backward_takes
        The bytes that it takes while it runs, in pieces.
    contiguous
        Which of backward's ``grad`` and ``out`` it copies if their rows are not contiguous.
    pads_sums
        To a multiple of how many rows it pads the logsumexp of each sequence; 0 if it does not.
    column
        Whether the logsumexp has one more dimension.
    random_state
        The results for backward's dropout, by the schema's names.
    """

    name: str
    check: Callable[[Call], None]
    layout: Callable[[Tensor, tuple[int, ...]], Tensor]
    causal: int
    forward_takes: Callable[[Call], list[int]]
    backward_takes: Callable[[Call], list[int]]
    random_state: Callable[[Call, Settings], dict[str, Any]]
    contiguous: tuple[str, ...] = ()
    pads_sums: int = 0
    column: bool = False


class _Signature(NamedTuple):
    """What is read of an op's schema once."""

    defaults: dict[str, Any]
    results: tuple[str, ...]
    lengths_first: bool
    backward: bool
    options: tuple[str, ...]


@cache
def _signature(op: Op) -> _Signature:
    """Of one of a kernel's ops."""
    return _Signature(
        {a.name: a.default_value for a in op.schema.arguments if a.has_default_value()},
        tuple(result.name for result in op.schema.returns),
        not op.name.startswith("_scaled_dot_product"),
        op.name.endswith("backward"),
        tuple(name for name in _OPTIONS if name in op.position),
    )


class Call:
    """A call of one of the ops of a kernel: the arguments have one set of names and one layout."""

    def __init__(self, kernel: Kernel, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.kernel, self.signature = kernel, _signature(op)
        named = self.signature.defaults | dict(zip(op.arguments, args, strict=False)) | kwargs
        tensors = [(name, value) for name, value in named.items() if isinstance(value, torch.Tensor)]
        self.device = device_check.resolve(op, [pair for pair in tensors if not pair[0].startswith("philox_")], args)
        if self.device.retired:
            raise device_asserts.retired_error(self.device)
        self.inner: dict[str, Any] = {
            name: v._inner if v.__class__ is FakeCudaTensor else v for name, v in named.items()
        }
        self.query, self.key, self.value = (self.heads_first(self.inner[name]) for name in ("query", "key", "value"))
        self.batch, self.heads, self.rows, self.width = self.query.shape
        self.columns, self.sequences = self.key.shape[2], self.batch
        get = self.inner.get
        starts: Any = get("cum_seq_q", get("cu_seqlens_q")), get("cum_seq_k", get("cu_seqlens_k"))
        self.parts = None
        if starts[0] is not None:
            self.parts = _parts(starts, (self.rows, self.columns))
            self.sequences = len(self.parts)
        bias = get("attn_bias", get("bias"))
        self.bias = None
        if bias is not None and bias.numel():
            self.bias = bias.expand(self.batch, self.heads, self.rows, self.columns)
        self.causal = int(get("custom_mask_type", kernel.causal * get("is_causal", False)))
        options = [name for name in self.signature.options if get(name) not in (None, -1, False)]
        if options or (self.parts and self.bias is not None):
            raise not_simulated.error("attention options")

    def heads_first(self, tensor: Tensor) -> Tensor:
        """A tensor of the call as (batch, heads, length, width)."""
        if not self.signature.lengths_first:
            return tensor
        return (tensor if tensor.dim() == 4 else tensor.unsqueeze(0)).transpose(1, 2)

    def as_called(self, tensor: Tensor) -> Tensor:
        """The reverse."""
        if not self.signature.lengths_first:
            return tensor
        back = tensor.transpose(1, 2)
        return back if self.inner["query"].dim() == 4 else back.squeeze(0)

    def settings(self, **dropout: Any) -> Settings:
        """What `values` needs to know."""
        return Settings(self.causal, self.inner["scale"], self.inner["dropout_p"], **dropout)

    def sequence_parts(self, settings: Settings) -> Iterator[tuple[slice, slice, Settings]]:
        """The rows and columns of each sequence that has some, which has dropout of its own."""
        if self.parts is None:
            yield slice(None), slice(None), settings
        elif not self.query.is_meta:
            for number, (rows, columns) in enumerate(self.parts):
                if rows.start < rows.stop and columns.start < columns.stop:
                    yield rows, columns, settings._replace(seed=settings.seed + number)

    def launched(self, results: tuple[Any, ...]) -> tuple[Any, ...]:
        """The results, after the kernel was queued."""
        moved = nbytes_of([v for v in (*self.inner.values(), *results) if isinstance(v, torch.Tensor)])
        columns = self.columns
        if self.parts is not None:  # one of as many scores
            scores = sum((q.stop - q.start) * (k.stop - k.start) for q, k in self.parts)
            columns = max(1, round(scores / max(1, self.rows)))
        backward, which = self.signature.backward, self.kernel.name
        key = self.key[:, :, :1].expand(-1, -1, columns, -1) if columns != self.columns else self.key
        work = attention(
            self.device,
            self.query,
            key,
            self.value,
            causal=self.causal > 0,
            backward=backward,
            nbytes=moved,
            which=which,
        )
        queue(self.device, work)
        return results


def _parts(starts: tuple[Tensor, Tensor], totals: tuple[int, int]) -> list[tuple[slice, slice]]:
    """The rows and the columns of each sequence; without numbers, they are taken to have the same length."""
    ends = [
        [total * at // (start.numel() - 1) for at in range(start.numel())] if start.is_meta else start.tolist()
        for start, total in zip(starts, totals, strict=True)
    ]
    return [(slice(*q), slice(*k)) for q, k in zip(*map(pairwise, ends), strict=True)]


def forward(kernel: Kernel) -> Callable[[Op, tuple[Any, ...], dict[str, Any]], tuple[Any, ...]]:
    """A handler of a kernel's forward ops."""

    def run(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        call = Call(kernel, op, args, kwargs)
        kernel.check(call)
        if call.heads and not call.key.shape[1]:
            raise RuntimeError(_UNSHARED)
        device, settings = call.device, _drawn(call)
        like = kernel.layout(call.query, (*call.query.shape[:3], call.value.shape[3]))
        sums_shape = _sums_shape(call)
        taken = [take_bytes(device, storage_bytes(like)), take_bytes(device, prod(sums_shape) * _FLOAT)]
        workspace = [take_bytes(device, nbytes) for nbytes in kernel.forward_takes(call)]
        out, sums = _computed(call, settings)
        results = {
            "max_q": call.rows, "max_k": call.columns, "max_seqlen_batch_q": _longest(call),
            "max_seqlen_batch_k": call.inner.get("max_seqlen_k") or call.columns,
        } | kernel.random_state(call, settings)  # fmt: skip
        wrapped = wrap(call.as_called(laid_out(like, out)), device, taken[0])
        kept = wrap(_kept(call, sums, sums_shape), device, taken[1])
        del workspace
        return call.launched((wrapped, kept, *map(results.get, call.signature.results[2:])))

    return run


def _drawn(call: Call) -> Settings:
    """Settings of a forward. The efficient kernel draws a card's mask, with a number for each score."""
    if not call.inner["dropout_p"]:
        return call.settings()
    if call.kernel.pads_sums and not call.signature.lengths_first:
        seed, offset = draw_position(call.device, call.batch * call.heads * call.rows * call.columns)[:2]
        return call.settings(seed=seed, offset=offset)
    return call.settings(seed=draw_seed(call.device, 32 * call.sequences * call.heads))


def _computed(call: Call, settings: Settings) -> tuple[Tensor, Tensor]:
    query, key, value = call.query, call.key, call.value
    if call.parts is None:
        return values.forward(query, key, value, call.bias, settings)
    out = query.new_zeros((*query.shape[:3], value.shape[3]))
    sums = query.new_full(query.shape[:3], float("inf"), dtype=torch.float32)
    for rows, columns, own in call.sequence_parts(settings):
        part = query[:, :, rows], key[:, :, columns], value[:, :, columns]
        out[:, :, rows], sums[:, :, rows] = values.forward(*part, None, own)
    return out, sums


def _sums_shape(call: Call) -> tuple[int, ...]:
    kernel = call.kernel
    if not call.inner.get("compute_log_sumexp", True):
        return (call.sequences, call.heads, 0) if kernel.pads_sums else (0,)
    if kernel.pads_sums:
        return call.sequences, call.heads, rounded(_longest(call), kernel.pads_sums)
    if call.parts is not None:
        return call.heads, call.rows
    return (call.batch, call.heads, call.rows, 1) if kernel.column else (call.batch, call.heads, call.rows)


def _longest(call: Call) -> int:
    """The rows of the longest sequence."""
    return int(call.inner.get("max_seqlen_q") or call.rows)


def _kept(call: Call, sums: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The logsumexp as the kernel returns it, from (batch, heads, rows)."""
    if sums.shape == shape:
        return sums.contiguous()
    if not call.kernel.pads_sums:
        return sums.contiguous().view(shape) if 0 not in shape else sums.new_empty(shape)
    kept = sums.new_full(shape, float("inf"))
    if shape[2] and call.parts is None:
        kept[:, :, : call.rows] = sums
    elif shape[2]:
        for number, (rows, _) in enumerate(call.parts or ()):
            kept[number, :, : rows.stop - rows.start] = sums[0, :, rows]
    return kept


def _sums(call: Call, settings: Settings) -> Tensor:
    """The reverse."""
    kept: Tensor = call.inner["logsumexp"]
    if not kept.numel():  # only the mask is trained: forward kept no sums, and a card would read past them
        return _computed(call, settings)[1]
    if not call.kernel.pads_sums:
        return kept.reshape(call.query.shape[:3])
    if call.parts is None:
        return kept[:, :, : call.rows]
    sums = kept.new_full(call.query.shape[:3], float("inf"))
    for number, (rows, _) in enumerate(call.parts):
        sums[0, :, rows] = kept[number, :, : rows.stop - rows.start]
    return sums


def backward(kernel: Kernel) -> Callable[[Op, tuple[Any, ...], dict[str, Any]], tuple[Any, ...]]:
    """A handler of a kernel's backward ops."""

    def run(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        call = Call(kernel, op, args, kwargs)
        device, inner, bias = call.device, call.inner, call.bias
        operands = call.query, call.key, call.value
        grad = call.heads_first(inner["grad_out_" if "grad_out_" in inner else "grad_out"])
        out = call.heads_first(inner["out"])
        wanted = inner.get("grad_input_mask", (True, True, True, inner.get("bias_requires_grad", False)))
        copied = [
            take_bytes(device, t.nbytes)
            for name, t in (("grad", grad), ("out", out))
            if name in kernel.contiguous and not t.transpose(1, 2).is_contiguous()
        ]
        likes = [kernel.layout(t, tuple(t.shape)) for t in operands]
        taken = [take_bytes(device, storage_bytes(like)) for like in likes]
        needs_bias = bool(wanted[3]) and bias is not None
        if bias is not None and needs_bias:
            padded = bias.numel() // bias.shape[-1] * rounded(bias.shape[-1], 16) * bias.element_size()
            bias_taken = take_bytes(device, padded)
        workspace = [take_bytes(device, nbytes) for nbytes in kernel.backward_takes(call)]
        settings = _saved(call)
        *grads, grad_bias = _gradients(call, grad, out, _sums(call, settings), settings, needs_bias)
        laid = [call.as_called(laid_out(like, grad)) for like, grad in zip(likes, grads, strict=True)]
        wrapped = [wrap(grad, device, buffer) for grad, buffer in zip(laid, taken, strict=True)]
        del copied, workspace
        results: list[Any] = [grad if needed else None for grad, needed in zip(wrapped, wanted, strict=False)]
        if len(call.signature.results) > 3:
            results.append(None if grad_bias is None else wrap_view(grad_bias, device, bias_taken))
        return call.launched(tuple(results))

    return run


def _saved(call: Call) -> Settings:
    """Settings of a backward: those of its forward."""
    seed, offset = call.inner.get("philox_seed"), call.inner.get("philox_offset")
    seed = call.inner.get("rng_state") if seed is None else seed
    if not call.inner["dropout_p"] or seed is None or seed.is_meta:
        return call.settings()
    card = call.kernel.pads_sums and not call.signature.lengths_first
    return call.settings(seed=int(seed.flatten()[0]), offset=int(offset) if card and offset is not None else None)


def _gradients(
    call: Call, grad: Tensor, out: Tensor, sums: Tensor, settings: Settings, needs_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    operands = call.query, call.key, call.value
    if call.parts is None:
        return values.backward(grad, *operands, call.bias, out, sums, settings, needs_bias)
    grads = [torch.zeros(t.shape, dtype=t.dtype, device=t.device) for t in operands]
    for rows, columns, own in call.sequence_parts(settings):
        places = rows, columns, columns
        query, key, value = (t[:, :, at] for t, at in zip(operands, places, strict=True))
        found = values.backward(grad[:, :, rows], query, key, value, None, out[:, :, rows], sums[:, :, rows], own)
        for whole, at, gradient in zip(grads, places, found[:3], strict=True):
            whole[:, :, at] = gradient
    return grads[0], grads[1], grads[2], None


def laid_out(like: Tensor, value: Tensor) -> Tensor:
    """`value` in the memory layout of `like`."""
    if value.stride() == like.stride() and not value.storage_offset():
        return value
    return torch.empty_strided(like.shape, like.stride(), dtype=value.dtype, device=value.device).copy_(value)


def rounded(value: int, by: int) -> int:
    """`value`, rounded up to a multiple of `by`."""
    return -(-value // by) * by


def _like_lengths_first(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    return torch.empty_like(tensor.transpose(1, 2), device="meta").transpose(1, 2)


def _like(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    if shape == tensor.shape:
        return torch.empty_like(tensor, device="meta")
    order = sorted(range(4), key=tensor.stride, reverse=True)
    return torch.empty_permuted(shape, order, device="meta", dtype=tensor.dtype)


def _heads_last(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    return _empty_heads_last(shape, tensor.dtype)


@lru_cache
def _empty_heads_last(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    batch, heads, length, width = shape
    return torch.empty((batch, length, heads, width), dtype=dtype, device="meta").transpose(1, 2)


def _flash_check(call: Call) -> None:
    if call.device.profile.compute_capability < (8, 0):
        raise RuntimeError("FlashAttention only supports Ampere GPUs or newer.")
    if call.query.dtype not in HALVES:
        raise RuntimeError("FlashAttention only support fp16 and bf16 data type")
    for name, other in (("key", call.key), ("value", call.value)):
        if other.dtype is not call.query.dtype:
            raise RuntimeError(f"query and {name} must have the same dtype")
    if not all(one.stride(-1) == 1 for one in (call.query, call.key, call.value)):
        raise RuntimeError("Input tensor must have contiguous last dimension")
    if call.width % 8:
        raise RuntimeError("head_size must be a multiple of 8, this is ensured by padding!")
    if call.width > 256:
        raise RuntimeError("FlashAttention forward only supports head dimension at most 256")
    if call.heads % max(call.key.shape[1], 1):
        raise RuntimeError(_UNSHARED)


def _flash_width(width: int) -> int:
    """The width of a head in flash's accumulators."""
    return rounded(width, 32 if width <= 128 else 64)


def _flash_forward_takes(call: Call) -> list[int]:
    """Sums and outputs of the parts over which the keys of a small call are split."""
    if call.inner["dropout_p"] or call.parts is not None:
        return []
    block = 256 if call.width <= 64 else 128 if call.width <= 128 else 64
    blocks = call.batch * call.heads * ceil(call.rows / 64)
    splits = _splits(blocks, call.device.profile.sm_count * 2, ceil(call.columns / block))
    sums = splits * call.batch * call.heads * call.rows * _FLOAT
    return [sums, sums * _flash_width(call.width)] if splits > 1 else []


def _splits(blocks: int, multiprocessors: int, key_blocks: int) -> int:
    """num_splits_heuristic: over how many blocks to split the keys so that the card is busy."""
    if not blocks or blocks >= 0.8 * multiprocessors:
        return 1
    most = min(128, multiprocessors, key_blocks)
    efficiency = [0.0] * (most + 1)
    for splits in range(1, most + 1):
        if splits == 1 or ceil(key_blocks / splits) != ceil(key_blocks / (splits - 1)):
            waves = blocks * splits / multiprocessors
            efficiency[splits] = waves / ceil(waves)
    best = max(efficiency, default=0.0)
    return next((s for s in range(1, most + 1) if efficiency[s] and efficiency[s] >= 0.85 * best), 1)


def _flash_backward_takes(call: Call) -> list[int]:
    """Sums and an accumulator for the queries' rows, of all heads, in float32.

    Where several heads share keys, it makes a gradient for each head of the queries, and sums them afterwards.
    """
    if call.parts is None:
        rows = call.batch * call.heads * rounded(call.rows, 128)
    else:
        rows = (call.rows + 128 * call.sequences) * call.heads
    takes = [rows * _FLOAT, rows * _flash_width(call.width) * _FLOAT]
    shared = call.heads // max(call.key.shape[1], 1)
    return takes + [t.nbytes * shared for t in (call.key, call.value)] if shared > 1 else takes


def _flash_state(call: Call, settings: Settings) -> dict[str, Any]:
    host = "meta" if call.query.is_meta else "cpu"
    state = torch.tensor([settings.seed, 0], dtype=torch.uint64, device=host)
    unused = torch.zeros((), dtype=torch.uint64, device=host)
    inner = {"rng_state": state, "unused": unused, "debug_attn_mask": call.query.new_empty(0)}
    return {name: new(tensor, call.device) for name, tensor in inner.items()}


def _efficient_check(call: Call) -> None:
    """mem_eff_attention/pytorch_utils.h, CHECK_NOSPARSE_LASTCONTIGUOUS_CUDA."""
    tensors = {"query": call.query, "key": call.key, "value": call.value, "(*bias)": call.bias}
    for name, one in tensors.items():
        if one is not None and one.stride(-1) != 1:
            raise RuntimeError(f"{name}: last dimension must be contiguous")


def _efficient_forward_takes(call: Call) -> list[int]:
    """A float32 output where the output of half precision does not fit into registers."""
    width = call.value.shape[3]
    wide = width > 128 and call.query.dtype in HALVES
    return [call.batch * call.heads * call.rows * width * _FLOAT] if wide else []


def _efficient_backward_takes(call: Call) -> list[int]:
    rows = call.batch * call.heads * rounded(call.rows, 32)
    accumulator = [rows * rounded(call.width, 32) * _FLOAT] if call.query.dtype in HALVES else []
    return [rows * _FLOAT, *accumulator]


def _efficient_state(call: Call, settings: Settings) -> dict[str, Any]:
    """Seed and offset are on the host, or on the device while a graph is captured."""
    signed = settings.seed - 2**64 if settings.seed >= 2**63 else settings.seed
    seed, offset = _scalar(signed, dtype=torch.int64), _scalar(settings.offset or 0, dtype=torch.int64)
    if graph_capture.underway and graph_capture.current_capture() is not None:
        seed, offset = new(seed, call.device), new(offset, call.device)
    return {"philox_seed": seed, "philox_offset": offset}


def _cudnn_check(call: Call) -> None:
    if call.query.dtype not in HALVES:
        raise RuntimeError("cuDNN SDPA only supports fp16 and bf16 data types")


def _cudnn_state(call: Call, settings: Settings) -> dict[str, Any]:
    seed = torch.tensor(settings.seed, device="meta" if call.query.is_meta else "cpu")
    return {"philox_seed": new(seed, call.device), "philox_offset": new(torch.zeros_like(seed), call.device)}


FLASH = Kernel(
    name="flash",
    check=_flash_check,
    layout=_like_lengths_first,
    causal=BOTTOM_RIGHT,
    forward_takes=_flash_forward_takes,
    backward_takes=_flash_backward_takes,
    random_state=_flash_state,
    contiguous=("grad", "out"),
)
EFFICIENT = Kernel(
    name="efficient",
    check=_efficient_check,
    layout=_heads_last,
    causal=1,
    forward_takes=_efficient_forward_takes,
    backward_takes=_efficient_backward_takes,
    random_state=_efficient_state,
    contiguous=("grad",),
    pads_sums=32,
)
CUDNN = Kernel(
    name="cudnn",
    check=_cudnn_check,
    layout=_like,
    causal=1,
    forward_takes=lambda call: [],
    backward_takes=_flash_backward_takes,
    random_state=_cudnn_state,
    column=True,
)
