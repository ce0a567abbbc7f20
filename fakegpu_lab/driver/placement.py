"""Which device an op runs on, and CUDA's sentence when its tensors disagree.

CUDA has three kinds of ops. Most kernels are entered through generated code that wants every tensor on one device
(`native_functions`). Elementwise ops leave it to TensorIterator, which lets a 0-dim CPU tensor in. Some have rules and
sentences of their own (`placement_rules`). The order of the checks is CUDA's, because the first one that fails speaks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import torch

from fakegpu_lab.driver import native_functions
from fakegpu_lab.driver.tensor import FakeCudaTensor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fakegpu_lab.driver.op import Op
    from fakegpu_lab.hardware.device import Device

    Tensors = list[tuple[str, torch.Tensor]]


def resolve(op: Op, tensors: Tensors) -> Device:
    """The device of an op, given its tensor arguments as (name in the schema, tensor); raises if they may not mix."""
    device: Device | None = None
    mixed = False
    for _, tensor in tensors:
        if tensor.__class__ is not FakeCudaTensor:
            mixed = True
        elif device is None:
            device = tensor._device
        elif tensor._device is not device:
            mixed = True
    assert device is not None
    if mixed:
        from fakegpu_lab.driver import placement_rules

        placement_rules.check(op, tensors)
        if op.written:  # the op runs where it writes, if that is a device
            for name, tensor in tensors:
                if name == op.written[0] and tensor.__class__ is FakeCudaTensor:
                    return tensor._device
    return device


def same_device(op: Op, tensors: Tensors, kernel: str) -> None:
    """The check of torchgen's wrappers: the first tensor sets the device, ``out=`` tensors come first.

    Keyword-only tensors are not looked at (torchgen passes ``flat_positional``).
    """
    order = [*(t for t in tensors if t[0] in op.outs)]
    order += (t for t in sorted(tensors, key=lambda t: op.position[t[0]]) if t[0] not in op.outs and t[0] not in op.tensor_kwargs)
    one_device(order, kernel)


def one_device(tensors: Iterable[tuple[str, torch.Tensor]], kernel: str) -> None:
    """`common_device_check_failure` (aten/src/ATen/core/adaption.cpp) for `tensors` in this order."""
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


def iterator(outputs: list[torch.Tensor], inputs: list[torch.Tensor], cpu_scalars: bool) -> None:
    """`TensorIteratorBase::build`: shapes first, then devices (aten/src/ATen/TensorIterator.cpp, `compute_types`).

    The common device is the first that is not the CPU; one 0-dim CPU input is let in, if the op allows it.
    """
    common = next((t.device for t in (*outputs, *inputs) if t.device.type != "cpu"), None)
    if common is None:
        return
    for tensor in outputs:
        if tensor.device != common:
            two_devices(common, tensor.device, inputs)
    scalars = 0
    for tensor in inputs:
        if cpu_scalars and tensor.dim() == 0 and tensor.device.type == "cpu":
            scalars += 1
            if scalars > 1:
                raise RuntimeError("Trying to pass too many CPU scalars to non-CPU kernel!")
        elif tensor.device != common:
            two_devices(common, tensor.device, inputs)


def two_devices(common: torch.device, other: torch.device, inputs: list[torch.Tensor]) -> NoReturn:
    """TensorIterator's sentence, unless the shapes do not broadcast: that it says first."""
    shape: tuple[int, ...] = ()
    for tensor in inputs:
        left, right = torch.empty(shape, device="meta"), torch.empty(tensor.shape, device="meta")
        shape = torch.add(left, right).shape
    raise RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {common} and {other}!"
    )


def wants_out(expected: torch.device, found: torch.device) -> NoReturn:
    """`resize_out` and `check_inplace` of structured kernels that are neither checked nor elementwise."""
    raise RuntimeError(f"Expected out tensor to have device {expected}, but got {found} instead")


def generated_check(op: Op, tensors: Tensors) -> bool:
    """Run the check that torchgen wrote for this op's CUDA kernel, if there is one; whether there is."""
    kernel = native_functions.checked_kernel(native_functions.full_name(op), bool(op.outs))
    if kernel is None:
        return False
    same_device(op, tensors, kernel)
    return True
