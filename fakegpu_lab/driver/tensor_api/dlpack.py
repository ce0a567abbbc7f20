"""DLPack and the CUDA array interface: torch gets its own tensor back, other libraries get an error.

A capsule gives a library the address of the data. A simulated GPU has no such address, so the capsule of a device
tensor is an object that only torch's `from_dlpack` takes. All checks are torch's own (`Tensor.__dlpack__`).
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import torch
import torch.utils.dlpack

from fakegpu_lab.driver.base.changes import replaced
from fakegpu_lab.driver.base.privateuse1 import NAME
from fakegpu_lab.driver.base.tensor import FakeCudaTensor

_C: Any = torch._C  # its stubs have few of these
_to = {name: getattr(_C, name) for name in ("_to_dlpack", "_to_dlpack_versioned")}
_from: Any = _C._from_dlpack
_export: Any = torch.Tensor.__dlpack__
_interface: Any = torch.Tensor.__dict__["__cuda_array_interface__"]

_HOST = torch.utils.dlpack.DLDeviceType.kDLCPU
_NO_MEMORY = (
    "the GPU is simulated, so there is no device memory that another library could read. Use Tensor.cpu() to copy the "
    "tensor to host memory first."
)


class Capsule:
    """The result of `to_dlpack` for a device tensor; `from_dlpack` takes it once."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor: torch.Tensor | None = tensor

    def __repr__(self) -> str:
        return f'<capsule object "{"dltensor" if self._tensor is not None else "used_dltensor"}" of a simulated GPU>'

    def take(self) -> torch.Tensor:
        """The tensor, once (torch/csrc/utils/tensor_new.cpp, tensor_fromDLPack)."""
        tensor, self._tensor = self._tensor, None
        if tensor is None:
            raise RuntimeError(
                "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only once, so "
                "you might have already constructed a tensor from it once."
            )
        return tensor


def _exported(name: str) -> Any:
    """`torch._C._to_dlpack` or its versioned twin, which convert like `maybeCopyTensor` in ATen/DLConvertor.cpp."""

    def to_dlpack(data: torch.Tensor, *, dl_device: Any = None, copy: bool | None = None) -> Any:
        if data.__class__ is not FakeCudaTensor:
            return _to[name](data, dl_device=dl_device, copy=copy)
        if dl_device is not None and tuple(dl_device) != tuple(data.__dlpack_device__()):
            where = torch.device("cpu" if dl_device[0] == _HOST else f"cuda:{dl_device[1]}")
            if copy is False:
                raise ValueError(f"cannot move (i.e. copy=False) tensor from {data.device} to {where} without copying.")
            return _exporters[name](data.to(where))
        return Capsule(data.clone() if copy else data.data)

    return to_dlpack


_exporters = {name: _exported(name) for name in _to}


def from_capsule(capsule: Any) -> torch.Tensor:
    """`torch._C._from_dlpack`."""
    if isinstance(capsule, Capsule):
        return capsule.take()
    tensor: torch.Tensor = _from(capsule)
    if tensor.device.type == NAME:  # from C++'s own function, imported before the machine was enabled
        raise BufferError(
            "A capsule of a tensor on a simulated GPU holds no data: call torch.from_dlpack on the tensor itself, or "
            "import to_dlpack after fakegpu_lab is enabled."
        )
    return tensor


def dlpack(self: FakeCudaTensor, **kwargs: Any) -> Any:
    """`Tensor.__dlpack__`, for torch's `from_dlpack`; other libraries may only ask for a host copy."""
    capsule = _export(self, **kwargs)
    if not isinstance(capsule, Capsule) or sys._getframe(1).f_globals is vars(torch.utils.dlpack):
        return capsule
    raise BufferError(f"Can't export a tensor on {self.device} through DLPack: {_NO_MEMORY}")


def exported_interface(self: FakeCudaTensor) -> Any:
    """What the property gives on a real card: the device's address. Raises torch's errors."""
    return _interface.__get__(self)


def _cuda_array_interface(self: FakeCudaTensor) -> NoReturn:
    """`Tensor.__cuda_array_interface__`: missing, also for `hasattr`."""
    exported_interface(self)
    raise AttributeError(f"Can't get __cuda_array_interface__ of a tensor on {self.device}: {_NO_MEMORY}")


cuda_array_interface = property(_cuda_array_interface)


_WHY = "a device tensor's values are the host's"
CHANGES = [
    *(replaced(f"torch._C.{name}", exporter, _WHY) for name, exporter in _exporters.items()),
    replaced("torch._C._from_dlpack", from_capsule, _WHY),
    replaced("torch.to_dlpack", _exporters["_to_dlpack"], _WHY),
    replaced("torch.utils.dlpack.to_dlpack", _exporters["_to_dlpack"], _WHY),
]
