"""The arrays that a kernel declares: in shared memory, of a thread's own, and in constant memory."""

from __future__ import annotations

import dis
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fakegpu_lab.kernels.numba_cuda import scalars
from fakegpu_lab.kernels.numba_cuda.arrays import KernelArray, Memory

if TYPE_CHECKING:
    from fakegpu_lab.kernels.numba_cuda.arrays import AccessNotes

_ALIGNMENT = 16


class Arrays:
    """The shared and local arrays of a launch.

    Shared memory is undefined before it is written: here floats are NaN, and integers have all bits set.
    """

    def __init__(self, notes: AccessNotes, dynamic_bytes: int) -> None:
        self._notes = notes
        self._shared: dict[Any, Memory] = {}
        self._dynamic = np.zeros(dynamic_bytes, np.uint8)
        self.static_bytes = 0

    def new_block(self) -> None:
        """Shared memory is undefined again."""
        self._dynamic.fill(0xFF)
        for memory in self._shared.values():
            memory.elements.view(np.uint8).fill(0xFF)

    def shared(self, shape: Any, dtype: Any, call: Any) -> KernelArray:
        """The block's array that the instruction `call` declares; of shape 0, the dynamic shared memory."""
        kind = np_dtype(dtype)
        if shape in (0, (0,)):
            count = len(self._dynamic) // kind.itemsize
            key: Any = ("dynamic", kind.char)
            shape = (count,)
        else:
            shape = _shape(shape)
            key = (id(call.f_code), call.f_lasti)
        memory = self._shared.get(key)
        if memory is None:
            if key[0] == "dynamic":  # begins behind the static arrays
                elements = self._dynamic[: shape[0] * kind.itemsize].view(kind)
                memory = Memory(_name_at(call), "shared", 1 << 20, elements, self._notes)
            else:
                elements = np.empty(prod(shape), kind)
                elements.view(np.uint8).fill(0xFF)
                memory = Memory(_name_at(call), "shared", self.static_bytes, elements, self._notes)
                self.static_bytes += -(-elements.nbytes // _ALIGNMENT) * _ALIGNMENT
            self._shared[key] = memory
        return KernelArray(memory, shape, _steps(shape))

    def local(self, shape: Any, dtype: Any, call: Any) -> KernelArray:
        """An array of the thread's own."""
        shape = _shape(shape)
        memory = Memory(_name_at(call), "local", 0, np.zeros(prod(shape), np_dtype(dtype)), self._notes)
        return KernelArray(memory, shape, _steps(shape))

    def constant(self, values: Any, call: Any) -> KernelArray:
        """Values that the compiler puts into constant memory."""
        values = np.ascontiguousarray(values)
        memory = Memory(_name_at(call), "local", 0, values.reshape(-1).copy(), self._notes)
        return KernelArray(memory, values.shape, _steps(values.shape))


running: Arrays = cast("Arrays", None)
"""The arrays of the launch that runs."""


def np_dtype(dtype: Any) -> np.dtype[Any]:
    """NumPy's type for one of numba's or NumPy's."""
    if isinstance(dtype, scalars.Cast):
        return dtype.dtype
    if isinstance(dtype, (str, type, np.dtype)):
        return np.dtype(dtype)
    from numba.np import numpy_support

    found: np.dtype[Any] = np.dtype(numpy_support.as_dtype(dtype))
    return found


def _shape(shape: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in shape) if isinstance(shape, (tuple, list)) else (int(shape),)


def _steps(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def _name_at(frame: Any) -> str:
    """The name that ``tile = cuda.shared.array(...)`` gives, read from the instruction after the call."""
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.offset > frame.f_lasti and instruction.opname.startswith("STORE_"):
            return str(instruction.argval)
    return "array"
