"""The device an op runs on, and CUDA's error if its tensors are on different devices.

The order of the checks matters: the first that fails raises its error. `mismatch_errors` has the checks that many ops
share, `rules` the ops with rules of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.placement.rule_of_op import accepts_cpu_scalar, check

if TYPE_CHECKING:
    from fakegpu_lab.driver.cost.op import Op
    from fakegpu_lab.driver.placement.mismatch_errors import Tensors
    from fakegpu_lab.hardware.device import Device

_RESULT_BESIDE_SELF = {"index_put", "_unsafe_index_put", "index_fill", "fill"}
"""Functional ops in which a CPU `self` may take values or indices from a device."""


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
    if one_card and (hosts == 0 or (hosts == 1 and host.dim() == 0 and accepts_cpu_scalar(op))):
        return device
    check(op, tensors, args)
    return _written_device(op, tensors) or device


def _written_device(op: Op, tensors: Tensors) -> Device | None:
    """The device of the tensor that the op writes: the op runs there."""
    for name, tensor in tensors:
        if op.written and name == op.written[0] and tensor.__class__ is FakeCudaTensor:
            return tensor._device
    return None


def result_on_host(op: Op, tensors: Tensors) -> bool:
    """Whether the op's new tensor is a CPU tensor, although some arguments are device tensors."""
    return op.name in _RESULT_BESIDE_SELF and tensors[0][1].__class__ is not FakeCudaTensor
