"""`aten::linear` as one op, forward and backward.

For device types that it does not know, torch decomposes it into views, a transpose and `addmm`, and its backward into
six more ops, each of which would come through Python by itself. With a kernel for PrivateUse1, torch's own formula
(LinearBackward0) calls `linear` and `linear_backward` once. They compute, allocate and count what `addmm`, `mm` and
`sum` do on CUDA, in that order; `tensor_api.methods` prints the grad_fn that CUDA shows.

`linear` and `linear_backward` run for every layer of a model, so what depends on the shapes alone is worked out once.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base.changes import begun, computed, replaced
from fakegpu_lab.driver.base.device_memory import new, take_bytes
from fakegpu_lab.driver.base.half_precision import SLOW_PRODUCTS, in_float32
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, wrap
from fakegpu_lab.driver.cost import matrix_products
from fakegpu_lab.driver.cost.launching import queue
from fakegpu_lab.driver.cost.workspace import ensure_workspace, product
from fakegpu_lab.driver.placement import dtypes
from fakegpu_lab.driver.placement.memory_preflight import HARMLESS

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.base.changes import Change
    from fakegpu_lab.driver.cost.op import Op
    from fakegpu_lab.driver.cost.work import Launch
    from fakegpu_lab.hardware.device import Device

_ModeKey: Any = torch._C._TorchDispatchModeKey
_float32 = torch.float32
_linear: Callable[..., torch.Tensor] = torch._C._nn.linear
_rounded_linear = in_float32(_linear, SLOW_PRODUCTS)
_fp32_precision: Callable[[str, str], str] = torch._C._get_fp32_precision_getter
_mm: Callable[..., torch.Tensor] = torch._C._VariableFunctions.mm
_rounded_mm = in_float32(_mm, SLOW_PRODUCTS)


def _shape_of_linear(inner: torch.Tensor, matrix: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """`_linear` of meta tensors. torch's shape function decomposes it, and imports Dynamo for that: 36 MiB."""
    fits = inner.dim() > 1 and matrix.dim() == 2 and inner.shape[-1] == matrix.shape[1] and inner.dtype is matrix.dtype
    if not fits or (bias is not None and (bias.shape != matrix.shape[:1] or bias.dtype is not inner.dtype)):
        return _linear(inner, matrix, bias)
    return inner.new_empty((*inner.shape[:-1], matrix.shape[0]))


def linear(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``input @ weight.T + bias``."""
    source, weight = args[0], args[1]
    bias = args[2] if len(args) > 2 else kwargs.get("bias")
    if not (
        source.__class__ is FakeCudaTensor
        and weight.__class__ is FakeCudaTensor
        and (device := source._device) is weight._device
        and not device.retired
        and (bias is None or (bias.__class__ is FakeCudaTensor and bias._device is device))
        and not (source._unusual or weight._unusual)
    ):
        # by the ops that torch would call: their errors name the tensor on the wrong device
        return op.decomposed(args, kwargs)
    inner, matrix, added = source._inner, weight._inner, None
    if bias is not None:
        added = bias._inner
        if added.dim() != 1:
            _Seen.wide_bias = True
    dtype = inner.dtype
    key = (inner.shape, matrix.shape, dtype, _fp32_precision("cuda", "matmul") if dtype is _float32 else "")
    known = device.roofline.known.get(key)
    if known is None:
        return _first(op, key, device, inner, matrix, added)
    compute, kernel, large = known
    if not large:
        return product(compute(inner, matrix, added), device, kernel)
    buffer = take_bytes(device, large)
    tensor = wrap(compute(inner, matrix, added), device, buffer)
    queue(device, kernel)
    ensure_workspace(device)
    return tensor


def _first(
    op: Op, key: Any, device: Device, inner: torch.Tensor, matrix: torch.Tensor, bias: torch.Tensor | None
) -> Any:
    """`linear` for operands of these shapes for the first time: what depends on the shapes alone is kept."""
    dtype, size = inner.dtype, inner.element_size()
    features = max(inner.shape[-1], 1) if inner.dim() else 1
    produced = inner.numel() // features * matrix.numel() // features * size
    buffer = take_bytes(device, produced) if produced > HARMLESS else None
    compute = _shape_of_linear if inner.is_meta else _rounded_linear if dtype in SLOW_PRODUCTS else _linear
    result = compute(inner, matrix, bias)
    dtypes.refuse_integers(op, dtype)
    tensor = new(result, device) if buffer is None else wrap(result, device, buffer)
    work = matrix_products.linear(device, (inner, matrix), result, 0)
    kernel = (work.ns, work.share, work.flops, work.nbytes)
    device.roofline.remember(key, (compute, kernel, produced if produced > HARMLESS else 0))
    queue(device, kernel)
    ensure_workspace(device)
    return tensor


def linear_backward(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The gradients of input, weight and bias that the mask selects."""
    source, grad, weight, mask = args
    if not (
        source.__class__ is FakeCudaTensor and grad.__class__ is FakeCudaTensor and weight.__class__ is FakeCudaTensor
    ):
        return NotImplemented  # a wrapper subclass around device tensors unwraps itself
    device = grad._device
    if device.retired:
        raise device_asserts.retired_error(device)
    inputs, rows, matrix = source._inner, grad._inner, weight._inner
    shape, kernel_shape, dtype = inputs.shape, matrix.shape, inputs.dtype
    needs_source, needs_weight, needs_bias = mask
    bias_shape = _shape_of_bias() if needs_bias and _Seen.wide_bias else None
    precision = _fp32_precision("cuda", "matmul") if dtype is _float32 else ""
    key = (shape, kernel_shape, dtype, precision, needs_source, needs_weight, needs_bias)
    kernels = device.roofline.known.get(key) if bias_shape is None else None
    if kernels is None:
        kernels = _backward_kernels(device, inputs, matrix, mask, bias_shape)
        if bias_shape is None:
            device.roofline.remember(key, kernels)
    # First the card's kernels and memory, then the host's products: a large product would evict this code from the
    # processor's cache.
    buffers = []
    for nbytes, kernel in kernels:
        buffers.append(take_bytes(device, nbytes))
        queue(device, kernel)
    ensure_workspace(device)
    outputs = kernel_shape[0] if len(kernel_shape) == 2 else 1
    features = shape[-1]
    if rows.dim() != 2:
        rows = rows.reshape(prod(shape[:-1]), outputs)
    if matrix.dim() != 2:
        matrix = matrix.reshape(outputs, features)
    multiply = _rounded_mm if dtype in SLOW_PRODUCTS else _mm
    results: list[torch.Tensor | None] = [None, None, None]
    if needs_source:
        result = multiply(rows, matrix.conj() if dtype.is_complex else matrix)
        results[0] = result if len(shape) == 2 else result.view(shape)
    if needs_weight:
        if len(shape) != 2:
            inputs = inputs.reshape(prod(shape[:-1]), features)
        result = multiply(rows.t(), inputs.conj() if dtype.is_complex else inputs)
        results[1] = result if len(kernel_shape) == 2 else result.view(kernel_shape)
    if needs_bias:
        results[2] = grad._inner.sum_to_size(bias_shape) if bias_shape else rows.sum(0)
    taken = iter(buffers)
    return tuple([None if result is None else wrap(result, device, next(taken)) for result in results])


def _backward_kernels(
    device: Device, inputs: torch.Tensor, matrix: torch.Tensor, mask: Any, bias_shape: list[int] | None
) -> list[tuple[int, Launch]]:
    """The kernels of `linear_backward`, in order, each with the bytes of its result."""
    shape, dtype, size, roofline = inputs.shape, inputs.dtype, inputs.element_size(), device.roofline
    features, count = shape[-1], prod(shape[:-1])
    outputs = matrix.shape[0] if matrix.dim() == 2 else 1
    kernels = []
    if mask[0]:
        work = matrix_products.product(device, dtype, count, features, outputs)
        kernels.append((count * features * size, (work.ns, work.share, work.flops, work.nbytes)))
    if mask[1]:
        work = matrix_products.product(device, dtype, outputs, features, count, row=outputs)
        kernels.append((outputs * features * size, (work.ns, work.share, work.flops, work.nbytes)))
    if mask[2]:
        produced = (prod(bias_shape) if bias_shape else outputs) * size
        moved = count * outputs * size + produced
        elements = max(produced // size, moved // 4)
        kernels.append((produced, (roofline.streaming(moved), roofline.share(elements), produced // size, moved)))
    return kernels


class _Seen:
    """Whether a bias has occurred that does not have one dimension; until then backward need not look up its shape."""

    wide_bias = False


def _shape_of_bias() -> list[int] | None:
    """The shape of the bias whose gradient is computed, if it is unusual; torch's formula does not pass it."""
    node: Any = torch._C._current_autograd_node()
    if node is None or node.name() != "LinearBackward0" or len(node.next_functions) < 3:
        return None
    target, slot = node.next_functions[2]
    return None if target is None else list(target._input_metadata[slot].shape)


def unreachable(*args: Any, **kwargs: Any) -> Any:
    """Keeps torch from decomposing the op by its place in torch's table; device tensors reach `dispatcher` first."""
    raise NotImplementedError("an op of a simulated GPU on a tensor that does not know its machine")


def cuda_grad_fn_name(tensor: torch.Tensor, name: str) -> str:
    """The name of a grad_fn as CUDA shows it, where the last op of `linear` is `addmm`, `mm` or a view of one."""
    if name != "LinearBackward0":
        return name
    node: Any = tensor.grad_fn
    biased = len(node.next_functions) > 2 and node.next_functions[2][0] is not None
    if tensor.dim() == 2:
        return "AddmmBackward0" if biased else "MmBackward0"
    return "ViewBackward0" if biased else "UnsafeViewBackward0"


def _is_tracing(mode: TorchDispatchMode) -> bool:
    """Whether a mode works on fake or functional tensors, which are not ours; tracing enters it for every op."""
    return getattr(mode, "_mode_key", None) in (_ModeKey.FAKE, _ModeKey.FUNCTIONAL)


_op: Any = torch.ops.aten.linear.default


class Registration:
    """The kernel in torch's table, removed where the decomposed ops are needed.

    Forward-mode AD has no formula for `linear`, and a user's TorchDispatchMode (FlopCounterMode) must see CUDA's ops.
    """

    def __init__(self) -> None:
        self._library: Any = None
        self._levels = 0

    def enable(self) -> None:
        """Register the kernel."""
        if self._library is None:
            library: Any = torch.library.Library
            self._library = library("aten", "IMPL")
            self._library.impl("linear", unreachable, "PrivateUse1")
            _op._dispatch_cache.clear()  # the Python dispatcher, with which graphs are traced, keeps what it found

    def disable(self) -> None:
        """Remove the kernel, so that torch decomposes the op again."""
        if self._library is not None:
            self._library._destroy()
            self._library = None
            _op._dispatch_cache.clear()

    def changes(self) -> list[Change]:
        """The kernel, which follows forward-mode AD and dispatch modes."""
        enter: Any = forward_ad.enter_dual_level
        leave: Any = forward_ad.exit_dual_level

        def enter_dual_level() -> Any:
            self.disable()
            self._levels += 1
            return enter()

        def exit_dual_level(*, level: Any = None) -> None:
            leave(level=level)
            self._levels -= 1
            if not self._levels:
                self.enable()

        def enter_mode(mode: Any) -> Any:
            if not _is_tracing(mode):
                self.disable()
                self._levels += 1
            return enter_dispatch(mode)

        def leave_mode(mode: Any, *error: Any) -> Any:
            try:
                return leave_dispatch(mode, *error)
            finally:
                if not _is_tracing(mode):
                    self._levels -= 1
                    if not self._levels:
                        self.enable()

        enter_dispatch: Any = TorchDispatchMode.__enter__
        leave_dispatch: Any = TorchDispatchMode.__exit__
        mode, ad = "torch.utils._python_dispatch.TorchDispatchMode", "torch.autograd.forward_ad"
        return [
            begun(self._begin, "linear is one op on CUDA"),
            replaced(f"{mode}.__enter__", enter_mode, "a mode sees CUDA's ops"),
            replaced(f"{mode}.__exit__", leave_mode, "a mode sees CUDA's ops"),
            replaced(f"{ad}.enter_dual_level", enter_dual_level, "forward-mode AD has no formula for linear"),
            replaced(f"{ad}.exit_dual_level", exit_dual_level, "forward-mode AD has no formula for linear"),
        ]

    def _begin(self) -> Callable[[], None]:
        self.enable()
        return self.disable


registration = Registration()
CHANGES = [computed(registration.changes, "linear is one op on CUDA, not several")]
