"""The device an op runs on, and CUDA's error if its tensors are on different devices.

The order of the checks matters: the first that fails raises its error. `mismatch_errors` has the checks that many ops
share, `rules` the ops with rules of their own.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.placement import mismatch_errors
from fakegpu_lab.driver.placement.mismatch_errors import generated_check
from fakegpu_lab.driver.placement.rules import elementwise, foreach

if TYPE_CHECKING:
    from fakegpu_lab.driver.cost.op import Op
    from fakegpu_lab.driver.placement.mismatch_errors import Tensors
    from fakegpu_lab.hardware.device import Device


def resolve(op: Op, tensors: Tensors, args: tuple[Any, ...]) -> Device:
    """The device of an op with these tensors in `args`.

    Raises
    ------
    RuntimeError
        CUDA's error, if the tensors are on several devices and the op needs one.
    """
    device: Device | None = None
    hosts = 0
    one_card = True
    for _, tensor in tensors:
        if tensor.__class__ is not FakeCudaTensor:
            hosts += 1
            host = tensor
        elif device is None:
            device = tensor._device
        elif tensor._device is not device:
            one_card = False
    assert device is not None
    if one_card and (hosts == 0 or (hosts == 1 and host.dim() == 0 and _accepts_cpu_scalar(op))):
        return device
    _check(op, tensors, args)
    return _written_device(op, tensors) or device


def _written_device(op: Op, tensors: Tensors) -> Device | None:
    """The device of the tensor that the op writes: the op runs there."""
    for name, tensor in tensors:
        if op.written and name == op.written[0] and tensor.__class__ is FakeCudaTensor:
            return tensor._device
    return None


def result_on_host(op: Op, tensors: Tensors) -> bool:
    """Whether the op's new tensor is a CPU tensor, although some arguments are device tensors."""
    return op.row.result_beside_self and tensors[0][1].__class__ is not FakeCudaTensor


def _check(op: Op, tensors: Tensors, args: tuple[Any, ...]) -> None:
    """Raise CUDA's error if `op` does not take `tensors`, which are on several devices."""
    if op.row.devices is not None:
        op.row.devices(op, tensors, args)
    elif op.name.startswith("_foreach_"):
        foreach(op, tensors)
    elif not generated_check(op, tensors):
        elementwise(op, tensors)


@cache
def _accepts_cpu_scalar(op: Op) -> bool:
    """Whether a 0-dim CPU tensor is allowed, without calling `_check`: plain elementwise ops, out of place."""
    return (
        op.pointwise
        and not op.written
        and op.row.devices is None
        and op.row.cpu_scalars
        and not op.name.startswith("_foreach_")
        and mismatch_errors.checked_kernel(mismatch_errors.full_name(op)) is None
    )
