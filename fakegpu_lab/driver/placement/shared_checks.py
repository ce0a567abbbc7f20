"""The checks that CUDA's kernels share, and their sentences.

Most kernels are entered through code that torchgen wrote, which wants every tensor on one device; elementwise ops
leave it to TensorIterator, which lets a 0-dim CPU tensor in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import torch

from fakegpu_lab.driver.placement import native_functions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fakegpu_lab.driver.cost.op import Op

    Tensors = list[tuple[str, torch.Tensor]]
    """An op's tensor arguments: the name in the schema, the tensor; a list gives its name to each."""


def generated_check(op: Op, tensors: Tensors) -> bool:
    """Run the check that torchgen wrote for this op's CUDA kernel; False if it wrote none.

    ``out=`` tensors come first, and other keyword-only tensors are not looked at (`gen_device_check` is given
    ``arguments.out`` and ``flat_positional``).
    """
    kernel = native_functions.checked_kernel(native_functions.full_name(op), bool(op.outs))
    if kernel is None:
        return False
    positional = [t for t in tensors if t[0] not in op.tensor_kwargs]
    positional.sort(key=lambda t: op.position[t[0]])
    one_device([*(t for t in tensors if t[0] in op.outs), *positional], kernel)
    return True


def one_device(tensors: Iterable[tuple[str, torch.Tensor]], kernel: str) -> None:
    """Want all on the first one's device (`common_device_check_failure`, aten/src/ATen/core/adaption.cpp)."""
    common: torch.device | None = None
    for name, tensor in tensors:
        where = tensor.device
        if common is None:
            common = where
        elif where != common:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but got {name} is on {where}, different from other "
                f"tensors on {common} (when checking argument in method wrapper_CUDA_{kernel})"
            )


def iterator(
    outputs: list[torch.Tensor], inputs: list[torch.Tensor], *, cpu_scalars: bool, broadcast: bool = False
) -> None:
    """Want what `TensorIteratorBase::compute_types` wants (aten/src/ATen/TensorIterator.cpp).

    The common device is the first that is not the CPU. One 0-dim CPU input is let in, if the op allows it. Shapes
    are looked at before devices, so with `broadcast` a mismatch of shapes is what is told.
    """
    common = next((t.device for t in (*outputs, *inputs) if t.device.type != "cpu"), None)
    if common is None:
        return
    operands = [*((t, False) for t in outputs), *((t, cpu_scalars) for t in inputs)]
    scalars = 0
    for tensor, may_be_scalar in operands:
        if may_be_scalar and tensor.dim() == 0 and tensor.device.type == "cpu":
            scalars += 1
            if scalars > 1:
                raise RuntimeError("Trying to pass too many CPU scalars to non-CPU kernel!")
        elif tensor.device != common:
            if broadcast:
                broadcasting(inputs)
            two_devices(common, tensor.device)


def broadcasting(inputs: list[torch.Tensor]) -> None:
    """Raise torch's error if the shapes do not broadcast."""
    torch.broadcast_tensors(*(torch.empty(()).expand(t.shape) for t in inputs))  # type: ignore[no-untyped-call]


def two_devices(common: torch.device, other: torch.device) -> NoReturn:
    """Raise TensorIterator's sentence."""
    raise RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {common} and {other}!"
    )


def wants_out(expected: torch.device, found: torch.device) -> NoReturn:
    """Raise the sentence of structured kernels about their ``out=`` (`resize_out`, written by torchgen)."""
    raise RuntimeError(f"Expected out tensor to have device {expected}, but got {found} instead")
