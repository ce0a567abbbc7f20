"""`aten::linear` as one op.

torch decomposes it, for device types it does not know, into views, a transpose and `addmm`, and backward into six more:
each would come through Python by itself. With a kernel for PrivateUse1, torch's own formula (LinearBackward0) calls
`linear` and `linear_backward` once. What is computed, held and counted is what `addmm`, `mm` and `sum` do on CUDA, in
that order; `methods` prints the grad_fn that CUDA shows.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base.device_memory import new, take_bytes
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, wrap
from fakegpu_lab.driver.cost import products
from fakegpu_lab.driver.cost.launching import kernel
from fakegpu_lab.driver.cost.work import Work
from fakegpu_lab.driver.cost.workspace import ensure_workspace
from fakegpu_lab.driver.placement.preflight import HARMLESS
from fakegpu_lab.hardware.time.clock import here, launch

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.base.patches import Patches
    from fakegpu_lab.driver.cost.op import Op

_ModeKey: Any = torch._C._TorchDispatchModeKey
_linear: Callable[..., torch.Tensor] = torch._C._nn.linear
_fp32_precision: Callable[[str, str], str] = torch._C._get_fp32_precision_getter
_mm: Callable[..., torch.Tensor] = torch._C._VariableFunctions.mm


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
        # by the ops that torch would call: they tell which tensor is on the wrong device
        return op.decomposed(args, kwargs)
    if bias is not None and bias.dim() != 1:
        _Seen.wide_bias = True
    bound = source.nbytes * weight.shape[0]  # of the result, times the features: enough to see whether it is small
    buffer = None
    if bound > HARMLESS and source.dim():
        numel = source.numel() // max(source.shape[-1], 1) * weight.shape[0]
        if numel * source.element_size() > HARMLESS:
            buffer = take_bytes(device, numel * source.element_size())
    inner, matrix = source._inner, weight._inner
    result = _linear(inner, matrix, None if bias is None else bias._inner)
    tensor = new(result, device) if buffer is None else wrap(result, device, buffer)
    host = here.host
    stream = host.streams[device]
    key = (inner.shape, matrix.shape, inner.dtype, _fp32_precision("cuda", "matmul"))
    work = device.roofline.known.get(key)
    if work is None:
        work = device.roofline.remember(key, products.linear(device, (inner, matrix), result, 0))
    launch(host, stream, work.ns, work.share, work.flops, work.nbytes)
    if stream.id not in device.workspaces:
        ensure_workspace(device)
    return tensor


def linear_backward(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The gradients of input, weight and bias, those that the mask asks for."""
    source, grad, weight, (of_source, of_weight, of_bias) = args
    if not all(tensor.__class__ is FakeCudaTensor for tensor in (source, grad, weight)):
        return NotImplemented  # a wrapper subclass around device tensors takes itself apart
    device = grad._device
    if device.retired:
        raise device_asserts.retired_error(device)
    inputs, rows, matrix = source._inner, grad._inner, weight._inner
    shape, kernel_shape = inputs.shape, matrix.shape
    features = shape[-1]
    outputs = kernel_shape[0] if len(kernel_shape) == 2 else 1
    count = prod(shape[:-1])
    dtype, size = inputs.dtype, inputs.element_size()
    bias_shape = _shape_of_bias() if of_bias else None
    # All that the card has to do and hold, then all that the host computes: a large product leaves nothing of this
    # code in the processor's cache.
    buffers = []
    if of_source:
        buffers.append(take_bytes(device, count * features * size))
        kernel(device, products.product(device, dtype, count, features, outputs))
    if of_weight:
        buffers.append(take_bytes(device, outputs * features * size))
        kernel(device, products.product(device, dtype, outputs, features, count))
    if of_bias:
        produced = (prod(bias_shape) if bias_shape else outputs) * size
        buffers.append(take_bytes(device, produced))
        moved = count * outputs * size + produced
        roofline = device.roofline
        elements = max(produced // size, moved // 4)
        kernel(device, Work(roofline.streaming(moved), produced // size, moved, roofline.share(elements)))
    ensure_workspace(device)
    if rows.dim() != 2:
        rows = rows.reshape(count, outputs)
    if matrix.dim() != 2:
        matrix = matrix.reshape(outputs, features)
    results: list[torch.Tensor | None] = [None, None, None]
    if of_source:
        product = _mm(rows, matrix.conj() if matrix.is_complex() else matrix)
        results[0] = product if len(shape) == 2 else product.view(shape)
    if of_weight:
        if len(shape) != 2:
            inputs = inputs.reshape(count, features)
        product = _mm(rows.t(), inputs.conj() if inputs.is_complex() else inputs)
        results[1] = product if len(kernel_shape) == 2 else product.view(kernel_shape)
    if of_bias:
        results[2] = grad._inner.sum_to_size(bias_shape) if bias_shape else rows.sum(0)
    taken = iter(buffers)
    return tuple([None if result is None else wrap(result, device, next(taken)) for result in results])


class _Seen:
    """Whether a bias with other than one dimension has been seen: until then no backward asks for its shape."""

    wide_bias = False


def _shape_of_bias() -> list[int] | None:
    """The shape of the bias whose gradient is wanted, where it is not the usual one: torch's formula does not say."""
    node: Any = torch._C._current_autograd_node() if _Seen.wide_bias else None
    if node is None or node.name() != "LinearBackward0" or len(node.next_functions) < 3:
        return None
    target, slot = node.next_functions[2]
    return None if target is None else list(target._input_metadata[slot].shape)


def unreachable(*args: Any) -> Any:
    """Stands in torch's table so that it does not decompose the op: device tensors go to `dispatch` before it."""
    raise NotImplementedError("aten::linear on a tensor of a simulated GPU that does not know its machine")


def shown_grad_fn(tensor: torch.Tensor, name: str) -> str:
    """The name of a grad_fn as CUDA shows it: there, `linear` ends in `addmm`, `mm` or a view of one."""
    if name != "LinearBackward0":
        return name
    node: Any = tensor.grad_fn
    biased = len(node.next_functions) > 2 and node.next_functions[2][0] is not None
    if tensor.dim() == 2:
        return "AddmmBackward0" if biased else "MmBackward0"
    return "ViewBackward0" if biased else "UnsafeViewBackward0"


HANDLERS: dict[str, Callable[[Op, tuple[Any, ...], dict[str, Any]], Any]] = {
    "linear": linear,
    "linear_backward": linear_backward,
}


def _fakes(mode: TorchDispatchMode) -> bool:
    """Whether a mode works on fake or functional tensors, which are not ours; tracing enters them for every op."""
    return getattr(mode, "_mode_key", None) in (_ModeKey.FAKE, _ModeKey.FUNCTIONAL)


class Registration:
    """The kernel in torch's table, taken out where others look.

    Forward-mode AD has no formula for `linear`; and a user's TorchDispatchMode (FlopCounterMode) sees the ops of CUDA.
    """

    def __init__(self) -> None:
        self._library: Any = None
        self._levels = 0

    def enable(self) -> None:
        """Put the kernel in."""
        if self._library is None:
            library: Any = torch.library.Library
            self._library = library("aten", "IMPL")
            self._library.impl("linear", unreachable, "PrivateUse1")

    def disable(self) -> None:
        """Take it out: torch decomposes the op again."""
        if self._library is not None:
            self._library._destroy()
            self._library = None

    def install(self, patches: Patches) -> None:
        """Put the kernel in, and watch forward-mode AD."""
        self.enable()
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
            if not _fakes(mode):
                self.disable()
                self._levels += 1
            return enter_dispatch(mode)

        def leave_mode(mode: Any, *error: Any) -> Any:
            try:
                return leave_dispatch(mode, *error)
            finally:
                if not _fakes(mode):
                    self._levels -= 1
                    if not self._levels:
                        self.enable()

        enter_dispatch: Any = TorchDispatchMode.__enter__
        leave_dispatch: Any = TorchDispatchMode.__exit__
        patches.set(TorchDispatchMode, "__enter__", enter_mode)
        patches.set(TorchDispatchMode, "__exit__", leave_mode)
        patches.set(forward_ad, "enter_dual_level", enter_dual_level)
        patches.set(forward_ad, "exit_dual_level", exit_dual_level)


registration = Registration()
