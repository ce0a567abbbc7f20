"""LSTM, GRU and RNN layers as cuDNN runs them: one op, one buffer of weights, a reserve space kept for backward.

Follows aten/src/ATen/native/cudnn/RNN.cpp. With cuDNN switched off, or for dtypes that it does not take, a layer runs
cell by cell. torch's CPU layers compute the values; backward runs the forward again. The sizes of
cuDNN's spaces are not documented, so these are estimates: the reserve space has every gate, the cell and the output of
every step of every layer; the workspace has the gates of every step of one layer in forward, and twice that in
backward.
"""

from __future__ import annotations

import warnings
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base.device_memory import new, take, take_bytes
from fakegpu_lab.driver.base.metadata import sync_metadata
from fakegpu_lab.driver.base.privateuse1 import NAME
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, share, wrap, wrap_view
from fakegpu_lab.driver.cost.launching import kernel
from fakegpu_lab.driver.cost.matrix_products import product
from fakegpu_lab.driver.cost.work import Work
from fakegpu_lab.driver.ops.recurrent import values
from fakegpu_lab.driver.ops.recurrent.values import GRU, LSTM, RELU, TANH, Call
from fakegpu_lab.driver.placement import device_check, dtypes
from fakegpu_lab.driver.random.generators import draw_seed
from fakegpu_lab.hardware.first_use import CUDNN

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op
    from fakegpu_lab.hardware.buffer import Buffer
    from fakegpu_lab.hardware.device import Device

    Tensor = torch.Tensor
    from collections.abc import Sequence


_aten: Any = torch.ops.aten
_DTYPES = (torch.float16, torch.float32, torch.float64)
_DROPOUT_STATE = 2 * 1024 * 1024 + 64 * 1024
"""Bytes of cuDNN's dropout state, "slightly over 2MB" according to RNN.cpp."""
_DROPOUT_KEY = -1
"""Its key in `Device.workspaces`."""


def acceptable(tensor: Tensor) -> bool:
    """``at::cudnn_is_acceptable``."""
    return (
        tensor.__class__ is FakeCudaTensor
        and torch._C._get_cudnn_enabled()
        and tensor.dtype in _DTYPES
        and tensor.numel() > 0
    )


def layer(mode: int, args: tuple[Any, ...]) -> Any:
    """``aten::lstm``, ``gru``, ``rnn_tanh`` and ``rnn_relu`` by cuDNN; `args` in the order of their schemas."""
    source, hidden, weights, biased, layers, dropout, train, both, batch_first, batch_sizes = _layer_arguments(args)
    h, c = hidden if mode == LSTM else (hidden, None)
    per_layer = len(weights) // (layers * (2 if both else 1))
    if train and dropout:
        _dropout_state(source._device)
    if torch.is_autocast_enabled(NAME) and source.dtype is not torch.float64:
        # autocast/rnn.cpp: cast to half, and flattened in `forward`
        source, h = source.half(), h.half()
        c = None if c is None else c.half()
        weights = [w.half() for w in weights]
        flat = None
    else:
        flat = flat_weights(source, weights, (h, c), per_layer, biased)
    width = (c if c is not None else h).shape[2]
    proj = h.shape[2] if h.shape[2] != width else 0
    out, hy, cy, _, _ = _aten._cudnn_rnn(
        source, list(weights), per_layer, flat, h, c, mode, width, proj, layers,
        batch_first, dropout, train, both, [] if batch_sizes is None else batch_sizes.tolist(), None,
    )  # fmt: skip
    return (out, hy, cy) if mode == LSTM else (out, hy)


def _layer_arguments(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of either schema: of packed sequences, which have batch sizes, or of others."""
    if isinstance(args[1], torch.Tensor) and isinstance(args[3], (list, tuple)):
        source, batch_sizes, *rest = args
        return source, *rest, False, batch_sizes
    return *args, None


def _dropout_state(device: Device) -> None:
    if _DROPOUT_KEY not in device.workspaces:
        device.workspaces[_DROPOUT_KEY] = taken = take_bytes(device, _DROPOUT_STATE)
        taken.kind = "workspace"


def _device_and_arguments(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Device, dict[str, Any]]:
    named = dict(zip(op.arguments, args, strict=False)) | kwargs
    tensors = [(name, value) for name, value in named.items() if isinstance(value, torch.Tensor)]
    tensors += [("weight", weight) for weight in named["weight"]]
    check_attributes(named["input"], named["weight"], (named["hx"], named.get("cx")))
    device = device_check.resolve(op, tensors, args)
    assert device is not None
    if device.retired:
        raise device_asserts.retired_error(device)
    return device, named


def _spaces(call: Call) -> tuple[int, int]:
    """The reserve space and the forward workspace, in bytes."""
    step = call.steps * call.gates * call.width * call.source.element_size()
    units = call.steps * call.width * call.source.element_size()
    return call.layers * call.directions * (step + 2 * units), call.directions * step


def _work(device: Device, call: Call) -> Work:
    """One product for the inputs of all steps of a layer, then one small product for each step."""
    dtype, columns = call.source.dtype, call.gates * call.width
    sequence = len(call.batch_sizes) or call.source.shape[0]
    batch = call.batch_sizes[0] if call.batch_sizes else call.source.shape[1]
    inner = call.projected or call.width
    widths = [call.source.shape[-1], *[inner * call.directions] * (call.layers - 1)]
    inputs = [product(device, dtype, call.steps, columns, width) for width in widths]
    step = product(device, dtype, batch, columns, inner)
    steps = call.layers * sequence
    ns, flops, nbytes = (
        call.directions * (sum(one[i] for one in inputs) + steps * step[i]) for i in range(3)
    )  # fmt: skip
    return Work(int(ns), int(flops), int(nbytes), step.share)


def forward(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``_cudnn_rnn``."""
    device, named = _device_and_arguments(op, args, kwargs)
    device.first_uses.library(CUDNN)
    call = Call.of(named)
    flat = named.get("weight_buf")
    if flat is None:
        _, length = weight_offsets(named["weight"], named["weight_stride0"], call.biased)
        inner = torch.empty(length, dtype=call.source.dtype, device=call.source.device)
        flat = new(inner, device)
        for _ in named["weight"]:  # each is copied
            kernel(device)
    copied = None if call.source.is_contiguous() else take_bytes(device, call.source.nbytes)
    shapes = call.shapes()
    buffers = [take_bytes(device, prod(shape) * call.source.element_size()) for shape in shapes]
    reserve_bytes, workspace_bytes = _spaces(call)
    workspace = take_bytes(device, workspace_bytes)
    inner_reserve = torch.empty(reserve_bytes if call.train else 0, dtype=torch.uint8, device=call.source.device)
    reserve = new(inner_reserve, device)
    seed = draw_seed(device, 4) if call.drops else 0
    if call.drops and not inner_reserve.is_meta:
        inner_reserve[:8].view(torch.int64).fill_(seed)
    results = values.forward(call, seed)
    kernel(device, _work(device, call))
    del workspace, copied
    results = [result.contiguous() for result in results]
    results[0] = call.as_given(results[0])
    out, hy, cy = (wrap(result, device, buffer) for result, buffer in zip(results, buffers, strict=True))
    return out, hy, cy, reserve, wrap_view(flat._inner, device, flat._buffer)


def backward(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``_cudnn_rnn_backward``: the gradients of the weights are views of one buffer, as the weights are."""
    device, named = _device_and_arguments(op, args, kwargs)
    call = Call.of(named)
    weights, mask = named["weight"], named["output_mask"]
    grads = [named.get(name) for name in ("grad_output", "grad_hy", "grad_cy")]
    if all(grad is None for grad in grads):
        # On a card the weights get no gradients either, but a list that goes to C++ cannot hold None.
        return None, None, None, [torch.zeros_like(weight) for weight in weights] if mask[3] else []
    if not call.train:
        raise RuntimeError("cudnn RNN backward can only be called in training mode")
    missing = _missing_gradients(device, call, grads)
    copied = None if call.source.is_contiguous() else take_bytes(device, call.source.nbytes)
    outer: list[Tensor | None] = [call.source, call.hidden, call.cell]
    buffers = [take_bytes(device, t.nbytes) if t is not None else None for t in outer]
    workspace = take_bytes(device, 2 * _spaces(call)[1])
    seed = _saved_seed(call, named["reserve"]._inner)
    inner = [None if grad is None else grad._inner for grad in grads]
    if inner[0] is not None:
        inner[0] = call.as_given(inner[0])
    grad_inputs, grad_weights = values.backward(call, seed, inner)
    for _ in range(1 + bool(mask[3])):  # gradients of the input, and of the weights: each costs as much as forward
        kernel(device, _work(device, call))
    grad_inputs = [None if grad is None else grad.contiguous() for grad in grad_inputs]
    if grad_inputs[0] is not None:
        grad_inputs[0] = call.as_given(grad_inputs[0])
    wrapped: list[Any] = [
        wrap(grad, device, buffer) if wanted and grad is not None and buffer is not None else None
        for grad, buffer, wanted in zip(grad_inputs, buffers, mask, strict=False)
    ]
    del missing, copied, buffers
    wrapped_weights: list[Any] = []  # empty if all weights are frozen, as in RNN.cpp
    if mask[3]:
        wrapped_weights = weight_gradients(device, named, call, grad_weights)
    del workspace
    return (*wrapped, wrapped_weights)


def _missing_gradients(device: Device, call: Call, grads: list[Any]) -> list[Buffer]:
    """Memory for zeros in place of the gradients that autograd did not pass."""
    element = call.source.element_size()
    return [
        take_bytes(device, count * element)
        for grad, count in zip(grads, map(prod, call.shapes()), strict=True)
        if grad is None and count
    ]


def _saved_seed(call: Call, reserve: Tensor) -> int:
    """Dropout's seed, which forward kept in the reserve space."""
    return int(reserve[:8].view(torch.int64)) if call.drops and not reserve.is_meta else 0


def by_name(mode: int) -> Callable[[Op, tuple[Any, ...], dict[str, Any]], Any]:
    """For `Row.runs`: a layer that is called below autograd."""

    def run(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if acceptable(args[0]):
            return layer(mode, args)
        return op.decomposed(args, kwargs)

    return run


MODES = {"lstm": LSTM, "gru": GRU, "rnn_tanh": TANH, "rnn_relu": RELU}
"""Kinds of layers by the op's name."""


def register(library: Any) -> None:
    """Register the layers above autograd, where C++ would decompose them into cells."""

    def layer_kernel(mode: int, composite: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            if acceptable(args[0]):
                return layer(mode, args)
            return composite._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args)

        return run

    for name, mode in MODES.items():
        for form in ("input", "data"):
            library.impl(
                f"{name}.{form}", layer_kernel(mode, getattr(getattr(_aten, name), form)), "AutogradPrivateUse1"
            )


_SCATTERED = (
    "RNN module weights are not part of single contiguous chunk of memory. This means they need to be compacted at "
    "every call, possibly greatly increasing memory usage. To compact weights again call flatten_parameters()."
)


def weight_offsets(weights: Sequence[Tensor], per_layer: int, biased: bool) -> tuple[list[int], int]:
    """Where each weight begins in the buffer, in elements, and the buffer's length: matrices first, then biases.

    cuDNN's layers always have two biases; for a layer without biases they are zeros at the end.
    """
    bias = {i for i in range(len(weights)) if biased and i % per_layer in (2, 3)}
    offsets, end = [0] * len(weights), 0
    for i in [*(i for i in range(len(weights)) if i not in bias), *sorted(bias)]:
        offsets[i] = end
        end += weights[i].numel()
    if not biased:
        end += sum(2 * w.shape[0] for w in weights[::per_layer])
    return offsets, end


def _common_buffer(weights: Sequence[Any], per_layer: int, biased: bool) -> FakeCudaTensor | None:
    """The buffer, flat, of which all weights are views, or None (try_get_weight_buf)."""
    first = weights[0]
    offsets, length = weight_offsets(weights, per_layer, biased)
    if first.__class__ is not FakeCudaTensor:
        return None
    whole = first._buffer
    if any(
        w.__class__ is not FakeCudaTensor
        or w._buffer is not whole
        or w.dtype is not first.dtype
        or w.storage_offset() != at
        or not w.is_contiguous()
        for w, at in zip(weights, offsets, strict=True)
    ):
        return None
    if whole.nbytes < length * first.element_size():
        return None
    return wrap_view(first._inner.detach().as_strided((length,), (1,), 0), first._device, whole, first)


def check_attributes(source: Tensor, weights: Sequence[Tensor], hidden: Sequence[Tensor | None]) -> None:
    """``check_attributes`` of aten/src/ATen/native/RNN.h, with `check_dtype`: hidden states first, then weights.

    Raises
    ------
    RuntimeError
        A tensor is on another device than the input, or has another dtype.
    """
    named = [("hidden", tensor) for tensor in hidden if tensor is not None]
    named += [("parameter", weight) for weight in weights]
    for name, tensor in named:
        if tensor.device != source.device:
            raise RuntimeError(
                f"Input and {name} tensors are not at the same device, found input tensor at {source.device} and "
                f"{name} tensor at {tensor.device}"
            )
        if tensor.dtype is not source.dtype:
            raise RuntimeError(
                f"Input and {name} tensors are not the same dtype, found input tensor with "
                f"{dtypes.scalar_type(source.dtype)} and {name} tensor with {dtypes.scalar_type(tensor.dtype)}"
            )


def flatten(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``_cudnn_rnn_flatten_weight``: turn the weights into views of one new buffer."""
    weights, per_layer = args[0], args[1]
    proj = args[5] if len(args) > 5 else kwargs.get("proj_size", 0)
    biased = per_layer - bool(proj) == 4
    offsets, length = weight_offsets(weights, per_layer, biased)
    first = weights[0]
    device = first._device
    if device.retired:
        raise device_asserts.retired_error(device)
    buffer = take_bytes(device, length * first.element_size())
    whole = torch.zeros(length, dtype=first.dtype, device=first._inner.device)
    flat = wrap(whole, device, buffer)
    for _ in (None, *weights):  # one kernel fills the buffer with zeros, the others copy
        kernel(device)
    for weight, at in zip(weights, offsets, strict=True):
        view = whole[at : at + weight.numel()].view(weight.shape)
        view.copy_(weight._inner)
        weight._inner = view
        weight._buffer = buffer
        sync_metadata(weight)
        share(weight, flat)
    return flat


def flat_weights(
    source: Tensor, weights: Sequence[Tensor], hidden: Sequence[Tensor | None], per_layer: int, biased: bool
) -> FakeCudaTensor | None:
    """The buffer of the weights, or None after a warning if they do not share one."""
    flat = _common_buffer(weights, per_layer, biased)
    if flat is None:
        check_attributes(source, weights, hidden)
        warnings.warn(_SCATTERED, UserWarning, stacklevel=3)  # the caller of `layer`
    return flat


def weight_gradients(
    device: Device, named: dict[str, Any], call: Call, grads: Sequence[Tensor]
) -> list[FakeCudaTensor]:
    """The gradients as device tensors: views of one buffer, like the weights."""
    offsets, length = weight_offsets(named["weight"], named["weight_stride0"], call.biased)
    buffer = take_bytes(device, length * call.source.element_size())
    if not call.biased:  # cuDNN's layer has biases, torch's has none: each gradient is copied out
        return [wrap(grad.contiguous(), device, take(device, grad)) for grad in grads]
    whole = torch.empty(length, dtype=call.source.dtype, device=call.source.device)
    views = []
    for grad, at in zip(grads, offsets, strict=True):
        view = whole[at : at + grad.numel()].view(grad.shape)
        view.copy_(grad)
        views.append(wrap_view(view, device, buffer))
    return views
