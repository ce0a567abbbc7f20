"""``cuda.to_device`` and its kin: arrays in memory that numba takes from the driver itself, next to torch's allocator.

So they count in `torch.cuda.mem_get_info` and nvidia-smi, but not in `torch.cuda.memory_allocated`, as on a card.
Simplified: numba frees memory some time after an array dies, this at once.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, wrap
from fakegpu_lab.hardware.buffer import Buffer
from fakegpu_lab.hardware.errors import FakeGpuError
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
        The same memory as a device tensor.
    """

    __cuda_memory__ = True
    __cuda_ndarray__ = True

    def __init__(self, tensor: FakeCudaTensor) -> None:
        self.tensor = tensor
        self.shape = tuple(tensor.shape)
        self.ndim = tensor.dim()
        self.size = tensor.numel()
        self.dtype: np.dtype[Any] = tensor._inner.new_empty(0, device="cpu").numpy().dtype
        self.strides = tuple(step * self.dtype.itemsize for step in tensor.stride())
        self.nbytes = self.alloc_size = self.size * self.dtype.itemsize

    @property
    def _numba_type_(self) -> Any:
        from fakegpu_lab.kernels.numba_cuda.compiling import array_type

        return array_type(self.tensor)

    @property
    def T(self) -> DeviceArray:  # noqa: N802 - NumPy's name
        """The transposed array: a view, where numba makes a copy."""
        return DeviceArray(_device(self.tensor.permute(*reversed(range(self.ndim)))))

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
        return self.tensor.cpu().numpy()

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        """Copy the values of an array of the host, or of the device, into this one."""
        with on_stream(self.tensor._device, stream):
            self.tensor.copy_(_source(ary))

    def reshape(self, *newshape: Any, order: str = "C") -> DeviceArray:
        """The same values with another shape."""
        shape = newshape[0] if len(newshape) == 1 and isinstance(newshape[0], (tuple, list)) else newshape
        return DeviceArray(_device(self.tensor.view(*shape)))

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
        part = self.tensor[index]
        return part.cpu().numpy()[()] if part.dim() == 0 else DeviceArray(_device(part))

    getitem = __getitem__

    def __setitem__(self, index: Any, value: Any) -> None:
        self.tensor[index] = _source(value) if isinstance(value, (np.ndarray, DeviceArray)) else value

    setitem = __setitem__

    def __repr__(self) -> str:
        return f"<DeviceNDArray {self.shape} {self.dtype} on {self.tensor.device}>"

    @property
    def __cuda_array_interface__(self) -> Any:
        raise AttributeError(
            "The GPU is simulated, so there is no device memory that another library could read. Use copy_to_host()."
        )


def _device(tensor: torch.Tensor) -> FakeCudaTensor:
    assert isinstance(tensor, FakeCudaTensor)
    return tensor


def _source(ary: Any) -> torch.Tensor:
    if isinstance(ary, DeviceArray):
        return ary.tensor
    return ary if isinstance(ary, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(ary))


def _empty(shape: Any, dtype: Any, strides: Any, order: str) -> FakeCudaTensor:
    device = current.device()
    kind = np.dtype(dtype)
    shape = tuple(int(size) for size in shape) if isinstance(shape, (tuple, list)) else (int(shape),)
    try:
        torch_type = torch.from_numpy(np.empty(0, kind)).dtype
    except TypeError:
        raise FakeGpuError(
            f"A device array of {kind} cannot be made: arrays have the types that torch has (float16 to float64, "
            "integers, bool, complex)."
        ) from None
    if strides is not None:
        steps = tuple(step // kind.itemsize for step in (strides if isinstance(strides, tuple) else (strides,)))
    else:
        sizes = shape if order == "C" else shape[::-1]
        steps = tuple(prod(sizes[i + 1 :]) for i in range(len(sizes)))
        steps = steps if order == "C" else steps[::-1]
    count = 1 + sum((size - 1) * step for size, step in zip(shape, steps, strict=True)) if prod(shape) else 0
    memory = _DriversBuffer(device, count * kind.itemsize)  # first: the card may have less than the host
    inner = torch.empty_strided(shape, steps, dtype=torch_type, device="meta" if current.meta() else "cpu")
    return wrap(inner, device, memory)


def device_array(
    shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C", stream: Any = 0
) -> DeviceArray:
    """An array on the device whose values are undefined."""
    return DeviceArray(_empty(shape, dtype, strides, order))


def device_array_like(ary: Any, stream: Any = 0) -> DeviceArray:
    """An array on the device with the shape and type of another."""
    if isinstance(ary, torch.Tensor):
        ary = DeviceArray(_device(ary)) if isinstance(ary, FakeCudaTensor) else ary.numpy()
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
    return DeviceArray(obj)


def is_cuda_array(obj: Any) -> bool:
    """Whether numba can use the object's memory on the device."""
    return isinstance(obj, (DeviceArray, FakeCudaTensor))


def pinned_array(shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C") -> Any:
    """An array of the host in page-locked memory; here, its copies take the time of pageable memory."""
    return np.empty(shape, dtype, order=order)  # type: ignore[call-overload]


def pinned_array_like(ary: Any) -> Any:
    """`pinned_array` with the shape and type of another array."""
    return np.empty_like(ary)
