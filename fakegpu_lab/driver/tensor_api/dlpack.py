"""DLPack and the CUDA array interface, by which libraries share device memory: a simulated GPU has none to share."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NoReturn

import torch
import torch.utils.dlpack

from fakegpu_lab.driver.base import not_simulated
from fakegpu_lab.driver.base.changes import wrapped
from fakegpu_lab.driver.base.tensor import FakeCudaTensor

if TYPE_CHECKING:
    from collections.abc import Callable

_interface: Any = torch.Tensor.__dict__["__cuda_array_interface__"]


def _refusing(export: Callable[..., Any]) -> Callable[..., Any]:
    """`to_dlpack`, which takes no device tensor."""

    @functools.wraps(export)
    def to_dlpack(data: torch.Tensor, **options: Any) -> Any:
        if data.__class__ is FakeCudaTensor:
            raise not_simulated.error("shared device memory")
        return export(data, **options)

    return to_dlpack


def dlpack(self: FakeCudaTensor, *, dl_device: Any = None, **options: Any) -> Any:
    """`Tensor.__dlpack__`: of a copy on the host, if that is asked for."""
    if dl_device is None or dl_device[0] != torch.utils.dlpack.DLDeviceType.kDLCPU:
        raise not_simulated.error("shared device memory")
    return self.cpu().__dlpack__(max_version=options.get("max_version"))


def exported_interface(self: FakeCudaTensor) -> Any:
    """What the property gives on a real card: the device's address. Raises torch's errors."""
    return _interface.__get__(self)


def _cuda_array_interface(self: FakeCudaTensor) -> NoReturn:
    """`Tensor.__cuda_array_interface__`: missing, also for `hasattr`."""
    exported_interface(self)
    raise AttributeError(str(not_simulated.error("shared device memory")))


cuda_array_interface = property(_cuda_array_interface)


_WHY = "a device tensor's values are the host's"
CHANGES = [
    wrapped(f"{path}.{name}", _refusing, _WHY)
    for path, name in (
        ("torch._C", "_to_dlpack"),
        ("torch._C", "_to_dlpack_versioned"),
        ("torch", "to_dlpack"),
        ("torch.utils.dlpack", "to_dlpack"),
    )
]
