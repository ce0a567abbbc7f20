"""The legacy tensor types: ``torch.cuda.FloatTensor(2, 3)``, ``isinstance(x, torch.cuda.HalfTensor)``.

torch/csrc/tensor/python_tensor.cpp makes one object for each pair of backend and dtype; CUDA's do not work in a CPU
build, so these replace them. They are not a default type: `torch.set_default_device` is what programs use today.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.cuda.sparse

from fakegpu_lab.driver.base import current, not_simulated
from fakegpu_lab.driver.base.changes import begun, in_cuda_builds, replaced, wrapped
from fakegpu_lab.driver.base.privateuse1 import CUDA_DEVICES
from fakegpu_lab.driver.base.tensor import FakeCudaTensor

DTYPES = {
    "FloatTensor": torch.float32, "DoubleTensor": torch.float64, "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16, "ByteTensor": torch.uint8, "CharTensor": torch.int8,
    "ShortTensor": torch.int16, "IntTensor": torch.int32, "LongTensor": torch.int64, "BoolTensor": torch.bool,
}  # fmt: skip


class tensortype(type):  # noqa: N801 (torch's name)
    """``torch.tensortype``, the class of these types."""

    dtype: torch.dtype
    layout: torch.layout
    is_cuda = True

    @property
    def is_sparse(cls) -> bool:
        """Whether the layout is COO."""
        return cls.layout is torch.sparse_coo

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Make a tensor of this type, from sizes, values, a storage or a tensor."""
        _warn()
        if cls.is_sparse:
            raise not_simulated.error("sparse tensor types")
        return make(cls.dtype, *args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return instance.__class__ is FakeCudaTensor and instance.dtype is cls.dtype and instance.layout is cls.layout


tensortype.__module__ = "torch"


_warned: list[bool] = []


def _warn() -> None:
    """The warning of Tensor_new (torch/csrc/tensor/python_tensor.cpp), once in a process."""
    if _warned and not torch.is_warn_always_enabled():
        return
    _warned.append(True)
    warnings.warn(
        "The torch.cuda.*DtypeTensor constructors are no longer recommended. It's best to use methods such as "
        "torch.tensor(data, dtype=*, device='cuda') to create tensors.",
        UserWarning,
        stacklevel=3,
    )


def make(dtype: torch.dtype, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Make a tensor as the legacy constructor of a dense CUDA type does (legacy_tensor_ctor in utils/tensor_new.cpp).

    Raises
    ------
    TypeError
        The argument is a tensor of another type.
    """
    return torch.empty(0, dtype=dtype, device=CUDA_DEVICES[current.device().index]).new(*args, **kwargs)


def _types(module: Any, layout: torch.layout) -> dict[str, tensortype]:
    made = {}
    for name, dtype in DTYPES.items():
        if hasattr(module, name):
            names = {"__module__": module.__name__, "dtype": dtype, "layout": layout}
            made[name] = tensortype(name, (), names)
    return made


_DENSE = _types(torch.cuda, torch.strided)
_SPARSE = _types(torch.cuda.sparse, torch.sparse_coo)


def set_default_tensor_type(kind: Any) -> None:
    """``torch._C._set_default_tensor_type``, which takes no type of CUDA's."""
    if isinstance(kind, tensortype):
        raise not_simulated.error("default tensor types")
    _set_default(kind)


_set_default: Any = torch._C._set_default_tensor_type
FUNCTIONS = {"_set_default_tensor_type": set_default_tensor_type}


def _forget_default_device() -> None:
    """Undo a default of CUDA by `torch.set_default_device`: without a machine no factory would work."""
    default = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    if default is not None and current.is_ours(default.device):
        torch.set_default_device(None)


def _with_ours(classes: Any) -> Any:
    ours = {f"{made.__module__}.{name}": made for types in (_DENSE, _SPARSE) for name, made in types.items()}
    return {ours.get(torch.typename(cls), cls) for cls in classes}


CHANGES = [
    *in_cuda_builds(FUNCTIONS),
    begun(lambda: _forget_default_device, "the default device is the CPU again"),
    *(
        replaced(f"{module}.{name}", made, "legacy types of device tensors")
        for module, types in (("torch.cuda", _DENSE), ("torch.cuda.sparse", _SPARSE))
        for name, made in types.items()
    ),
    wrapped("torch._tensor_classes", _with_ours, "legacy types of device tensors"),
]
