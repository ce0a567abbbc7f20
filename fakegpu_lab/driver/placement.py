"""Which device an op runs on, and CUDA's sentence when its tensors disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.tensor import FakeCudaTensor

if TYPE_CHECKING:
    from fakegpu_lab.driver.op import Op
    from fakegpu_lab.hardware.device import Device


def resolve(op: Op, tensors: list[tuple[str, torch.Tensor]]) -> Device:
    """The device of an op given its tensor arguments (name, tensor) in order; raises CUDA's error if they differ."""
    device: Device | None = None
    for _, tensor in tensors:
        if tensor.__class__ is FakeCudaTensor:
            device = tensor._device
            break
    assert device is not None
    for name, tensor in tensors:
        if tensor.__class__ is FakeCudaTensor:
            if tensor._device is device:
                continue
        elif tensor.dim() == 0 or (op.index and name == "indices"):
            continue
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{device_name(tensors[0][1])} and {device_name(tensor)}!"
        )
    return device


def device_name(tensor: torch.Tensor) -> Any:
    """As CUDA prints a tensor's device: ``cuda:0``, ``cpu``."""
    return tensor.device
