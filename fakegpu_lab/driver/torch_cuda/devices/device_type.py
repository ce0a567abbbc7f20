"""``torch.device(1)``: an index alone means a CUDA device, where C++ would make one of PrivateUse1.

torch.device is a C class that cannot be subclassed. A stand-in for the class makes the devices, which are objects of
the C class; it equals that class and has its hash, so that tables find either by the other.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.jit.annotations

from fakegpu_lab.driver.base.changes import replaced
from fakegpu_lab.driver.base.privateuse1 import CUDA_DEVICES, MAX_DEVICES

_device = torch.device
_try_ann_to_type: Any = torch.jit.annotations.try_ann_to_type


class _Meta(type):
    """The class of the stand-in."""

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.device:
        if len(args) == 1 and not kwargs and args[0].__class__ is int:
            return by_index(args[0])
        return _device(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _device)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is cls or issubclass(subclass, _device)

    def __getattr__(cls, name: str) -> Any:
        return getattr(_device, name)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is _device

    def __hash__(cls) -> int:
        return hash(_device)


def by_index(index: int) -> torch.device:
    """``torch.device(index)`` (python_arg_parser.h, toDevice); a device that does not exist fails when it is used."""
    if index < 0:
        raise RuntimeError("Device index must not be negative")
    return CUDA_DEVICES[index] if index < MAX_DEVICES else _device("cuda", index)


_FACADE: Any = _Meta("device", (), {"__module__": "torch", "__doc__": _device.__doc__})


def try_ann_to_type(ann: Any, *args: Any, **kwargs: Any) -> Any:
    """`torch.jit.annotations.try_ann_to_type`, for annotations made before the stand-in was installed."""
    return _try_ann_to_type(torch.device if ann is _device else ann, *args, **kwargs)


CHANGES = [
    replaced("torch.device", _FACADE, "torch.device('cuda') is a device of this machine"),
    replaced("torch.jit.annotations.try_ann_to_type", try_ann_to_type, "TorchScript knows the stand-in"),
]
