"""``cuda.to_device`` and its kin: arrays in memory that numba takes from the driver itself, next to torch's allocator.

So they count in `torch.cuda.mem_get_info` and nvidia-smi, but not in `torch.cuda.memory_allocated`, as on a card.
Simplified: numba frees memory some time after an array dies, this at once.
"""

from __future__ import annotations

from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, wrap
from fakegpu_lab.driver.tensor_api import dlpack
from fakegpu_lab.hardware.buffer import Buffer
from fakegpu_lab.kernels.numba_cuda import messages
from fakegpu_lab.kernels.numba_cuda.streams import check, on_stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fakegpu_lab.hardware.device import Device


class _DriversBuffer(Buffer):
    """Device memory that cuMemAlloc has given."""

    __slots__ = ("_address",)

    def __init__(self, device: Device, nbytes: int) -> None:
        self.block = None
        self.device = device
        self.allocator = device.allocator
        self.nbytes = nbytes
        address = device.allocator.device_memory.malloc(nbytes) if nbytes else 0
        self._address = address or 0
        if address is None:
            free = device.allocator.device_memory.free_bytes
            raise messages.driver_error(
                2,
                "cuMemAlloc",
                "CUDA_ERROR_OUT_OF_MEMORY",
                f"{nbytes:,} bytes were requested, and {free:,} are free. torch.cuda.empty_cache() gives back what "
                "torch keeps for later.",
            )

    def __del__(self) -> None:
        if getattr(self, "_address", 0):
            self.allocator.device_memory.free(self._address, self.nbytes)

    @property
    def address(self) -> int:
        """Where the bytes are on the device."""
        return self._address

    def resize(self, nbytes: int) -> None:
        """Refused, as for memory that torch has from another library."""
        raise RuntimeError("Trying to resize storage that is not resizable")


class DeviceArray:
    """What numba calls `DeviceNDArray`: an array on the device, whose values a host function can only copy.

    Attributes
    ----------
    tensor
        The same memory as a device tensor. If torch has no type for the elements (`raw`), its last dimension are the
        bytes of one.
    """

    __cuda_memory__ = True
    __cuda_ndarray__ = True

    def __init__(self, tensor: FakeCudaTensor, raw: np.dtype[Any] | None = None) -> None:
        self.tensor = tensor
        self.raw = raw
        self.dtype: np.dtype[Any] = raw or _numpy_type(tensor)
        dims = tensor.dim() if raw is None else tensor.dim() - 1
        self.shape = tuple(tensor.shape[:dims])
        self.ndim = dims
        self.size = prod(self.shape)
        self.strides = tuple(step * tensor.element_size() for step in tensor.stride()[:dims])
        self.nbytes = self.alloc_size = self.size * self.dtype.itemsize

    @property
    def _numba_type_(self) -> Any:
        from numba.core import types
        from numba.np import numpy_support

        broadcast = 0 in self.strides and self.size > 0
        if self.tensor.is_contiguous() and not broadcast:
            layout = "C"
        else:
            layout = "F" if self.ndim > 1 and self.T.tensor.is_contiguous() and not broadcast else "A"
        return types.Array(numpy_support.from_dtype(self.dtype), self.ndim, layout)

    @property
    def flags(self) -> dict[str, bool]:
        """Whether the elements lie one after the other, in C's order and in Fortran's."""
        return {"C_CONTIGUOUS": self.tensor.is_contiguous(), "F_CONTIGUOUS": self.T.tensor.is_contiguous()}

    @property
    def _tensor_on_device(self) -> FakeCudaTensor:
        """What torch gets (`driver.tensor_api.constructors`)."""
        if self.raw is not None:
            raise TypeError(f"can't convert a device array of {self.dtype} to a tensor: torch has no such type")
        return self.tensor

    def _like(self, tensor: torch.Tensor) -> DeviceArray:
        return DeviceArray(_device(tensor), self.raw)

    @property
    def T(self) -> DeviceArray:  # noqa: N802 - NumPy's name
        """The transposed array: a view, where numba makes a copy."""
        bytes_last = () if self.raw is None else (self.ndim,)
        return self._like(self.tensor.permute(*reversed(range(self.ndim)), *bytes_last))

    def copy_to_host(self, ary: Any = None, stream: Any = 0) -> Any:
        """Copy the values into `ary`, or into a new array."""
        with on_stream(self.tensor._device, stream):
            values = self._host()
        if ary is None:
            return values
        if ary.dtype != self.dtype:
            raise TypeError(f"incompatible dtype: {self.dtype} vs. {ary.dtype}")
        if ary.shape != self.shape:
            raise ValueError(f"incompatible shape: {self.shape} vs. {ary.shape}")
        ary[...] = values
        return ary

    def _host(self) -> Any:
        check(self.tensor._device, "cuMemcpyDtoH")
        values = self.tensor.cpu().numpy()
        return values if self.raw is None else np.ascontiguousarray(values).view(self.raw)[..., 0]

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        """Copy the values of an array of the host, or of the device, into this one."""
        with on_stream(self.tensor._device, stream):
            self.tensor.copy_(_source(ary, self.raw))

    def reshape(self, *newshape: Any, order: str = "C") -> DeviceArray:
        """The same values with another shape."""
        shape = newshape[0] if len(newshape) == 1 and isinstance(newshape[0], (tuple, list)) else newshape
        bytes_last = () if self.raw is None else (self.raw.itemsize,)
        return self._like(self.tensor.view(*shape, *bytes_last))

    def ravel(self, order: str = "C", stream: Any = 0) -> DeviceArray:
        """The values in one dimension."""
        return self.reshape(-1)

    def view(self, dtype: Any) -> DeviceArray:
        """The same bytes as elements of another type."""
        return DeviceArray(_device(self.tensor.view(torch.from_numpy(np.empty(0, dtype)).dtype)))

    def split(self, section: int, stream: Any = 0) -> Iterator[DeviceArray]:
        """Parts of `section` elements."""
        for start in range(0, self.size, section):
            yield self[start : start + section]

    def is_c_contiguous(self) -> bool:
        """Whether the elements lie one after the other, rows first."""
        return self.tensor.is_contiguous()

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        part = self._like(self.tensor[index])
        return part.copy_to_host()[()] if part.ndim == 0 else part

    getitem = __getitem__

    def __setitem__(self, index: Any, value: Any) -> None:
        raw = self.raw is not None or isinstance(value, (np.ndarray, DeviceArray))
        self.tensor[index] = _source(value, self.raw) if raw else value

    setitem = __setitem__

    def __repr__(self) -> str:
        return f"<DeviceNDArray {self.shape} {self.dtype} on {self.tensor.device}>"

    @property
    def __cuda_array_interface__(self) -> Any:
        raise AttributeError(
            "The GPU is simulated, so there is no device memory that another library could read. Use copy_to_host()."
        )


def _numpy_type(tensor: FakeCudaTensor) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = tensor._inner.new_empty(0, device="cpu").numpy().dtype
    except TypeError:
        raise TypeError(
            f"numba has no type for the elements of a tensor of {tensor.dtype}: use float32 or float16."
        ) from None
    return found


def _device(tensor: torch.Tensor) -> FakeCudaTensor:
    assert isinstance(tensor, FakeCudaTensor)
    return tensor


def _source(ary: Any, raw: np.dtype[Any] | None) -> torch.Tensor:
    if isinstance(ary, DeviceArray):
        return ary.tensor
    if raw is not None:
        values = np.asarray(ary, raw)
        return torch.from_numpy(np.ascontiguousarray(values[..., None]).view(np.uint8))
    return ary if isinstance(ary, torch.Tensor) else torch.from_numpy(np.asarray(ary, order="C"))


def _empty(shape: Any, dtype: Any, strides: Any, order: str) -> DeviceArray:
    device = current.device()
    kind = np.dtype(dtype)
    shape = tuple(int(size) for size in shape) if isinstance(shape, (tuple, list)) else (int(shape),)
    if strides is not None:
        steps = strides if isinstance(strides, tuple) else (strides,)
    else:
        steps = tuple(kind.itemsize * prod(shape[i + 1 :] if order == "C" else shape[:i]) for i in range(len(shape)))
    last = sum((size - 1) * step for size, step in zip(shape, steps, strict=True))
    memory = _DriversBuffer(
        device, last + kind.itemsize if prod(shape) else 0
    )  # first: the card may have less than the host
    try:
        torch_type, raw = torch.from_numpy(np.empty(0, kind)).dtype, None
    except TypeError:
        torch_type, raw = torch.uint8, kind
    steps = tuple(step // torch_type.itemsize for step in steps)
    if raw is not None:
        shape, steps = (*shape, kind.itemsize), (*steps, 1)
    inner = torch.empty_strided(shape, steps, dtype=torch_type, device="meta" if current.meta() else "cpu")
    return DeviceArray(wrap(inner, device, memory), raw)


def device_array(
    shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C", stream: Any = 0
) -> DeviceArray:
    """An array on the device whose values are undefined."""
    return _empty(shape, dtype, strides, order)


def device_array_like(ary: Any, stream: Any = 0) -> DeviceArray:
    """An array on the device with the shape and type of another."""
    if isinstance(ary, torch.Tensor):
        ary = as_cuda_array(ary) if isinstance(ary, FakeCudaTensor) else ary.numpy()
    fortran = ary.ndim > 1 and ary.strides == np.empty(ary.shape, ary.dtype, order="F").strides
    return device_array(ary.shape, ary.dtype, order="F" if fortran else "C")


def to_device(obj: Any, stream: Any = 0, copy: bool = True, to: Any = None) -> DeviceArray:
    """Copy an array to the device, into a new array or into `to`."""
    target: DeviceArray | None = to
    if isinstance(obj, DeviceArray) and target is None:
        return obj
    if isinstance(obj, FakeCudaTensor):
        return as_cuda_array(obj)
    values = obj if isinstance(obj, DeviceArray) else np.asarray(obj)
    if target is None:
        target = device_array_like(values)
        if not copy:
            return target
    target.copy_to_device(values, stream=stream)
    return target


def as_cuda_array(obj: Any, sync: bool = True) -> DeviceArray:
    """A device array over the memory of a device tensor: nothing is copied."""
    if isinstance(obj, DeviceArray):
        return obj
    if not isinstance(obj, FakeCudaTensor):
        raise TypeError("*obj* doesn't implement the cuda array interface.")  # numba/cuda/api.py
    array = over(obj)
    if obj.nbytes and obj._device is not current.device():
        raise messages.driver_error(
            1,
            "cuPointerGetAttribute",
            "CUDA_ERROR_INVALID_VALUE",
            f"The tensor is on {obj.device}, and another device is current: use torch.cuda.set_device, or "
            f"'with cuda.gpus[{obj.device.index}]:'.",
        )
    return array


def over(tensor: FakeCudaTensor) -> DeviceArray:
    """A device array over the memory of a tensor, on any device."""
    dlpack.exported_interface(tensor)  # or what torch raises for a tensor whose memory it does not give away
    return DeviceArray(tensor)


def is_cuda_array(obj: Any) -> bool:
    """Whether numba can use the object's memory on the device."""
    if isinstance(obj, FakeCudaTensor):
        with suppress(AttributeError):  # a sparse tensor has none
            return bool(dlpack.exported_interface(obj))  # or torch's error, for one that requires gradients
    return isinstance(obj, DeviceArray)


def pinned_array(shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C") -> Any:
    """An array of the host in page-locked memory; here, its copies take the time of pageable memory."""
    return np.empty(shape, dtype, order=order)  # type: ignore[call-overload]


def pinned_array_like(ary: Any) -> Any:
    """`pinned_array` with the shape and type of another array."""
    return np.empty_like(ary)


class MappedArray(np.ndarray[Any, Any]):
    """An array that host and device share. Simplified: a launch takes the time of copying it there and back."""


def mapped_array(shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C", **options: Any) -> Any:
    """An array of the host in memory that the device can use, too; also `managed_array`."""
    return np.empty(shape, dtype, order=order).view(MappedArray)  # type: ignore[call-overload]


def mapped_array_like(ary: Any, **options: Any) -> Any:
    """`mapped_array` with the shape and type of another array."""
    return np.empty_like(ary).view(MappedArray)
