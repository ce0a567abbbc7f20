"""What Python code asks of a device tensor and C++ cannot answer: `FakeCudaTensor`'s methods and properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import _tensor_str

from fakegpu_lab.driver import conversion
from fakegpu_lab.driver.tensor import FakeCudaTensor
from fakegpu_lab.driver.transfer import count_copy, no_values, usable

if TYPE_CHECKING:
    from fakegpu_lab.driver.patches import Patches

_TYPE_NAMES = {
    torch.float32: "FloatTensor", torch.float64: "DoubleTensor", torch.float16: "HalfTensor",
    torch.bfloat16: "BFloat16Tensor", torch.uint8: "ByteTensor", torch.int8: "CharTensor",
    torch.int16: "ShortTensor", torch.int32: "IntTensor", torch.int64: "LongTensor", torch.bool: "BoolTensor",
    torch.complex64: "ComplexFloatTensor", torch.complex128: "ComplexDoubleTensor",
}  # fmt: skip


def type_name(tensor: torch.Tensor) -> str:
    """``torch.cuda.FloatTensor``, as `Tensor.type()` says it."""
    sparse = "sparse." if tensor.layout is torch.sparse_coo else ""
    return f"torch.cuda.{sparse}{_TYPE_NAMES[tensor.dtype]}"


def type_(self: FakeCudaTensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    if dtype is None:
        return type_name(self)
    return torch._C.TensorBase.type(self, dtype, non_blocking, **kwargs)


def get_device(self: FakeCudaTensor) -> int:
    return self._device.index


def data_ptr(self: FakeCudaTensor) -> int:
    block = self._buffer.block
    if block is None or not self._buffer.nbytes:
        return 0
    return block.address + self.storage_offset() * self.element_size()


def numpy(self: FakeCudaTensor, *, force: bool = False) -> Any:
    if force:
        return self.detach().cpu().resolve_conj().resolve_neg().numpy()
    if self.requires_grad:  # told first, as torch/csrc/utils/tensor_numpy.cpp does
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    return _refuse_numpy(self)


def _refuse_numpy(self: FakeCudaTensor) -> NoReturn:
    raise TypeError(
        f"can't convert {self.device} device type tensor to numpy. "
        "Use Tensor.cpu() to copy the tensor to host memory first."
    )


def array(self: FakeCudaTensor, dtype: Any = None, copy: Any = None) -> Any:
    return numpy(self)


def repr_(self: FakeCudaTensor, *, tensor_contents: str | None = None) -> str:
    """As torch prints a CUDA tensor; costs one copy to the host."""
    if self._device.retired:
        return f"<tensor of shape {tuple(self.shape)} on a GPU that is gone: {self._device.retired}>"
    prefix, suffixes = "tensor(", _suffixes(self)
    inner = self._inner
    if inner.is_meta:
        text = "..."
        suffixes.insert(1, f"size={tuple(self.shape)}")
    elif self.layout is not torch.strided:
        host = repr(inner.detach())
        return host[:-1] + f", device='{self.device}')"
    else:
        if inner.numel():
            count_copy(self._device, None, inner.nbytes)
        with torch.no_grad():
            text = tensor_contents or _contents(inner, len(prefix))
    body = _tensor_str._add_suffixes(prefix + text, suffixes, len(prefix), force_newline=False)
    return ("Parameter containing:\n" if isinstance(self, torch.nn.Parameter) else "") + body


def _contents(inner: torch.Tensor, indent: int) -> str:
    if inner.numel() == 0:
        return "[]"
    return _tensor_str._tensor_str(inner, indent)  # type: ignore[no-any-return]


def _suffixes(self: FakeCudaTensor) -> list[str]:
    """What `torch._tensor_str._str_intern` writes after a tensor's values, in its order."""
    suffixes = [f"device='{self.device}'"]
    if self.numel() == 0 and self.dim() != 1:
        suffixes.append(f"size={tuple(self.shape)}")
    complex_default = torch.complex128 if torch.get_default_dtype() is torch.float64 else torch.complex64
    defaults = (torch.get_default_dtype(), complex_default, torch.int64, torch.bool)
    if self.dtype not in defaults or (self.numel() == 0 and self.dtype != torch.get_default_dtype()):
        suffixes.append(f"dtype={self.dtype}")
    if self.grad_fn is not None:
        name = type(self.grad_fn).__name__
        if name == "CppFunction":
            name = self.grad_fn.name().rsplit("::", 1)[-1]
        suffixes.append(f"grad_fn=<{name}>")
    elif self.requires_grad:
        suffixes.append("requires_grad=True")
    return suffixes


def format_(self: FakeCudaTensor, spec: str) -> str:
    if self.dim() == 0 and not self._inner.is_meta and not isinstance(self, torch.nn.Parameter):
        return format(self.item(), spec)
    return object.__format__(self, spec)


def tolist(self: FakeCudaTensor) -> Any:
    if usable(self)._inner.is_meta:
        raise no_values("tolist()")
    count_copy(self._device, None, self._inner.nbytes)
    return self._inner.tolist()


def cpp_device_type(self: FakeCudaTensor) -> bool:
    return True


def _methods() -> dict[str, Any]:
    return {
        "type": type_,
        "get_device": get_device,
        "data_ptr": data_ptr,
        "numpy": numpy,
        "__array__": array,
        "__repr__": repr_,
        "__str__": repr_,
        "__format__": format_,
        "tolist": tolist,
        "is_cuda": property(cpp_device_type),
        "data": conversion.data,
    }


def attach() -> None:
    """Give FakeCudaTensor its Python face."""
    for name, value in _methods().items():
        setattr(FakeCudaTensor, name, value)


attach()
