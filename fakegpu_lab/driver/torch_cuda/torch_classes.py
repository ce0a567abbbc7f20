"""torch.Generator, torch.Stream and torch.Event for CUDA devices.

They are C classes that look for the device's backend in C++. Each gets a stand-in, which makes our objects for ``cuda``
and leaves other devices to the C class; `isinstance` makes no difference between the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import begun, replaced
from fakegpu_lab.driver.random.generators import CudaGenerator
from fakegpu_lab.driver.torch_cuda import streams

if TYPE_CHECKING:
    from collections.abc import Callable


def _cuda_index(device: Any) -> int | None:
    """The index if it is a CUDA device, else None."""
    if isinstance(device, (str, int)):
        device = torch.device(device)
    if device is None or device.type != "cuda":
        return None
    return current.device(device.index).index


def make_generator(device: Any = "cpu") -> torch._C.Generator:
    """``torch.Generator(device)``."""
    if _cuda_index(device) is None:  # this also checks the ordinal
        return _generator(device)
    return CudaGenerator(device if isinstance(device, int) else torch.device(device).index)


def make_stream(device: Any = None, *args: Any, **kwargs: Any) -> torch._C.Stream:
    """``torch.Stream(device, priority=)`` or ``torch.Stream(stream_id=, device_index=, device_type=)``."""
    if device is None and kwargs.get("device_type") == streams._CUDA:
        return torch.cuda.Stream(**kwargs)  # type: ignore[no-untyped-call]
    if device is None and "device_type" in kwargs:
        return _stream(**kwargs)
    index = _cuda_index("cuda" if device is None else device)
    if index is None:
        return _stream(device, *args, **kwargs)
    return torch.cuda.Stream(torch.device("cuda", index), *args, **kwargs)  # type: ignore[no-untyped-call]


def make_event(
    device: Any = None, *, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
) -> torch._C.Event:
    """``torch.Event(device)``; without a device, for the accelerator."""
    if _cuda_index("cuda" if device is None else device) is None:
        return _event(device, enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)
    return torch.cuda.Event(enable_timing, blocking, interprocess)  # type: ignore[no-untyped-call]


_generator, _stream, _event = torch._C.Generator, torch._C.Stream, torch._C.Event
_STAND_INS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "Generator": (streams.GENERATOR, make_generator),
    "Stream": (streams.STREAM, make_stream),
    "Event": (streams.EVENT, make_event),
}


def _begin() -> None:
    for cls, make in _STAND_INS.values():
        cls.make = staticmethod(make)


CHANGES = [
    begun(_begin, "a stand-in makes objects of this machine"),
    *(replaced(f"torch.{name}", cls, "its objects can be on a device") for name, (cls, _) in _STAND_INS.items()),
]
