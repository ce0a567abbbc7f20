"""`FakeCudaTensor`'s methods and properties, as far as C++ cannot provide them: `repr`, `numpy`, `type`, `.grad`."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import _tensor_str
from torch.utils._python_dispatch import _disable_current_modes

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.autograd import backward, gradient_lock
from fakegpu_lab.driver.base import cuda_messages, sync_debug
from fakegpu_lab.driver.base.changes import replaced
from fakegpu_lab.driver.base.device_memory import storage_bytes
from fakegpu_lab.driver.base.tensor import DEVICE_TENSORS, FakeCudaTensor
from fakegpu_lab.driver.copies.transfer import count_copy, no_values, usable
from fakegpu_lab.driver.ops import linear
from fakegpu_lab.driver.tensor_api import conversion, dlpack, serialization, storage

_texts: Any = _tensor_str

_TYPE_NAMES = {
    torch.float32: "FloatTensor", torch.float64: "DoubleTensor", torch.float16: "HalfTensor",
    torch.bfloat16: "BFloat16Tensor", torch.uint8: "ByteTensor", torch.int8: "CharTensor",
    torch.int16: "ShortTensor", torch.int32: "IntTensor", torch.int64: "LongTensor", torch.bool: "BoolTensor",
    torch.complex64: "ComplexFloatTensor", torch.complex128: "ComplexDoubleTensor",
}  # fmt: skip
_DTYPES = {name: dtype for dtype, name in _TYPE_NAMES.items()}


def type_name(tensor: torch.Tensor) -> str:
    """``torch.cuda.FloatTensor``, as `Tensor.type()` returns it."""
    sparse = "sparse." if tensor.layout is torch.sparse_coo else ""
    return f"torch.cuda.{sparse}{_TYPE_NAMES[tensor.dtype]}"


def type_(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    """`Tensor.type`: a type such as ``torch.cuda.HalfTensor`` names a device too."""
    ours = self.__class__ is FakeCudaTensor
    if dtype is None:
        return type_name(self) if ours else _base_type(self)
    if isinstance(dtype, (str, type)):
        name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
        module, _, last = name.rpartition(".")
        module = module.removesuffix(".sparse")  # the layout stays as it is (python_variable_methods.cpp, dispatch_to)
        if last in _DTYPES and (module == "torch.cuda" or (module == "torch" and ours)):
            where = "cpu" if module == "torch" else self.device if ours else "cuda"
            return conversion.to(self, where, _DTYPES[last], non_blocking)
        if module == "torch.cuda":
            raise ValueError(f"invalid type: '{name}'")
    return _base_type(self, dtype, non_blocking, **kwargs)


type_.__name__ = type_.__qualname__ = "type"  # Dynamo looks for a method by its own name
_base_type = torch._C.TensorBase.type


def get_device(self: FakeCudaTensor) -> int:
    """`Tensor.get_device`: the ordinal."""
    return self._device.index


def data_ptr(self: FakeCudaTensor) -> int:
    """`Tensor.data_ptr`: the device address."""
    address = self._buffer.address
    return address + int(self.storage_offset()) * self.element_size() if address and self._buffer.nbytes else 0


def numpy(self: FakeCudaTensor, *, force: bool = False) -> Any:
    """`Tensor.numpy`: refused, unless forced."""
    if force:
        return self.detach().cpu().resolve_conj().resolve_neg().numpy()
    if self.requires_grad:  # checked first, as in torch/csrc/utils/tensor_numpy.cpp
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    return _refuse_numpy(self)


def _refuse_numpy(self: FakeCudaTensor) -> NoReturn:
    raise TypeError(
        f"can't convert {self.device} device type tensor to numpy. "
        "Use Tensor.cpu() to copy the tensor to host memory first."
    )


def array(self: FakeCudaTensor, dtype: Any = None, copy: Any = None) -> Any:
    """`np.asarray(tensor)`: refused."""
    return numpy(self)


def repr_(self: FakeCudaTensor, *, tensor_contents: str | None = None) -> str:
    """The text that torch prints for a CUDA tensor; costs one copy to the host."""
    device_asserts.check(self._device)
    if self._device.retired:
        return f"<tensor of shape {tuple(self.shape)} on a GPU that is gone: {self._device.retired}>"
    inner = self._inner
    if not inner.is_meta and inner.numel():
        if inner.layout is torch.strided:
            with torch.no_grad(), _disable_current_modes(), torch._C._DisableFuncTorch():
                inner = _copied(self)
        else:
            sync_debug.synchronizing()
            count_copy(self._device, None, storage_bytes(inner))
    prefix = "tensor(" if type(self) in DEVICE_TENSORS else f"{type(self).__name__}("
    with torch._C.DisableTorchFunction(), torch.no_grad():
        text = tensor_contents or _contents(inner, len(prefix))
    body: str = _texts._add_suffixes(prefix + text, _suffixes(self), len(prefix), force_newline=self.is_sparse)
    return ("Parameter containing:\n" if isinstance(self, torch.nn.Parameter) else "") + body


def _contents(inner: torch.Tensor, indent: int) -> str:
    if inner.is_meta:
        return "..."
    text: str
    if inner.layout is not torch.strided:  # the texts of its parts, without the suffixes
        text = _texts._str_intern(inner)[len("tensor(") :].rpartition("size=")[0].rstrip(", \n")
        return text
    text = _texts._tensor_str(inner, indent)
    return text


def _suffixes(self: FakeCudaTensor) -> list[str]:
    """What `torch._tensor_str._str_intern` prints after a tensor's values, in its order."""
    suffixes = [f"device='{self.device}'"]
    default = torch.get_default_dtype()
    usual = (default, torch.complex128 if default is torch.float64 else torch.complex64, torch.int64, torch.bool)
    strided, meta, empty = self.layout is torch.strided, self._inner.is_meta, self.numel() == 0
    if not strided or meta or not _texts.PRINT_OPTS.edgeitems or (empty and self.dim() != 1):
        suffixes.append(f"size={tuple(self.shape)}")
    if not strided:
        suffixes.append(f"nnz={self._inner._nnz()}")
    if self.dtype not in usual or ((empty or meta) and strided and self.dtype != default):
        suffixes.append(f"dtype={self.dtype}")
    if not strided:
        suffixes.append(f"layout={self.layout}")
    return [*suffixes, *_autograd_suffix(self)]


def _autograd_suffix(self: FakeCudaTensor) -> list[str]:
    try:
        grad_fn = self.grad_fn
    except RuntimeError:  # a view made in no-grad mode, then written to
        return ["grad_fn=<Invalid>"]
    if grad_fn is not None:
        name = type(grad_fn).__name__
        if name == "CppFunction":
            name = grad_fn.name().rsplit("::", 1)[-1]
        return [f"grad_fn=<{linear.cuda_grad_fn_name(self, name)}>"]
    return ["requires_grad=True"] if self.requires_grad else []


def format_(self: FakeCudaTensor, spec: str) -> str:
    """`Tensor.__format__`."""
    if self.dim() == 0 and not (self._inner.is_meta and not spec) and not isinstance(self, torch.nn.Parameter):
        return format(self.item(), spec)
    return object.__format__(self, spec)


def tolist(self: FakeCudaTensor) -> Any:
    """`Tensor.tolist`: one copy to the host."""
    if usable(self)._inner.is_meta:
        raise no_values("tolist()")
    return _copied(self).tolist()


def _copied(self: FakeCudaTensor) -> torch.Tensor:
    """The tensor on the host, by an op, as in CUDA: recordings have its line, and what still fills it is a race."""
    with torch._C.DisableTorchFunction():
        copied: torch.Tensor = torch._C.TensorBase.cpu(self.detach())
    return copied


def setitem(self: FakeCudaTensor, index: Any, value: Any) -> None:
    """``x[index] = value``; with a mask or indices, a number stays on the host (python_variable_indexing.cpp)."""
    if value.__class__ in (int, float, bool, complex) and _has_tensor(index):
        value = torch.scalar_tensor(value, dtype=self.dtype, device="cpu")
    _base_setitem(self, index, value)


def _has_tensor(index: Any) -> bool:
    if index.__class__ is tuple:
        return any(isinstance(part, torch.Tensor) for part in index)
    return isinstance(index, torch.Tensor)


_base_setitem: Any = torch._C.TensorBase.__setitem__


def is_cuda(self: FakeCudaTensor) -> bool:
    """`Tensor.is_cuda`."""
    return True


_base_grad: Any = torch._C.TensorBase.grad


def set_grad(self: torch.Tensor, grad: torch.Tensor | None) -> None:
    """``t.grad = …``, with CUDA's device names in its errors."""
    try:
        with gradient_lock.lock:
            _base_grad.__set__(self, grad)
    except RuntimeError as error:
        raise cuda_messages.with_cuda_name(error) from None


class _Attribute(property):
    """A property with an `__objclass__`, as C++'s attributes have: torch 2.10's Dynamo reads it at import."""

    __objclass__ = torch.Tensor


grad = _Attribute(_base_grad.__get__, set_grad, _base_grad.__delete__, _base_grad.__doc__)


def _methods() -> dict[str, Any]:
    return {
        "register_hook": backward.register_hook,
        "type": type_,
        "get_device": get_device,
        "data_ptr": data_ptr,
        "numpy": numpy,
        "__array__": array,
        "__repr__": repr_,
        "__str__": repr_,
        "__format__": format_,
        "__cuda_array_interface__": dlpack.cuda_array_interface,
        "__dlpack__": dlpack.dlpack,
        "tolist": tolist,
        "__setitem__": setitem,
        "untyped_storage": storage.untyped_storage,
        "__reduce_ex__": serialization.reduce_ex,
        "__deepcopy__": serialization.deepcopy,
        "is_cuda": property(is_cuda),
        "data": conversion.data,
    }


def attach() -> None:
    """Give FakeCudaTensor its methods."""
    for name, value in _methods().items():
        setattr(FakeCudaTensor, name, value)


attach()


CHANGES = [
    replaced("torch.Tensor.grad", grad, "a gradient is on the tensor's device"),
    replaced("torch.Tensor.type", type_, "the types are CUDA's"),
]
