"""What `numba.cuda` offers inside a kernel: the thread's place, barriers, shared memory, atomics, the warp's functions.

While a kernel runs, these objects stand for numba's stubs, however its module imported them.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.kernels.numba_cuda import arrays, compiling, scalars, threads
from fakegpu_lab.kernels.numba_cuda.arrays import line_of
from fakegpu_lab.kernels.numba_cuda.threads import (
    WARP,
    Waiting,
    block_extent,
    block_index,
    grid_extent,
    here,
    thread_index,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from fakegpu_lab.kernels.numba_cuda.arrays import KernelArray

FULL_MASK = 0xFFFF_FFFF


def grid(ndim: int) -> int | tuple[int, ...]:
    """The thread's place in the whole grid, in 1 to 3 dimensions."""
    x = block_index.x * block_extent.x + thread_index.x
    if ndim == 1:
        return x
    y = block_index.y * block_extent.y + thread_index.y
    return (x, y) if ndim == 2 else (x, y, block_index.z * block_extent.z + thread_index.z)


def gridsize(ndim: int) -> int | tuple[int, ...]:
    """The number of threads of the whole grid, in 1 to 3 dimensions."""
    sizes = (block_extent.x * grid_extent.x, block_extent.y * grid_extent.y, block_extent.z * grid_extent.z)
    return sizes[0] if ndim == 1 else sizes[:ndim]


class _Lane:
    """`cuda.laneid`: behaves as the number of the running thread in its warp."""

    def __index__(self) -> int:
        return here.thread.lane

    __int__ = __index__

    def __eq__(self, other: object) -> bool:
        return here.thread.lane == other

    def __hash__(self) -> int:
        return here.thread.lane


def _binary(name: str) -> Callable[[_Lane, Any], Any]:
    return lambda self, other: getattr(int, name)(here.thread.lane, int(other))


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "mod", "floordiv", "and", "xor", "lshift", "rlshift"):
    setattr(_Lane, f"__{_name}__", _binary(f"__{_name}__"))
for _name in ("lt", "le", "gt", "ge", "rshift", "or"):
    setattr(_Lane, f"__{_name}__", _binary(f"__{_name}__"))


class _Declared:
    """`cuda.shared`, `cuda.local` and `cuda.const`."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def array(self, shape: Any, dtype: Any, alignment: int | None = None) -> KernelArray:
        """``array(shape, dtype)``."""
        return getattr(arrays.running, self._kind)(shape, dtype, sys._getframe(1))  # type: ignore[no-any-return]

    def array_like(self, values: Any) -> KernelArray:
        """``const.array_like(values)``."""
        if self._kind == "constant":
            return arrays.running.constant(values, sys._getframe(1))
        return getattr(arrays.running, self._kind)(values.shape, values.dtype, sys._getframe(1))  # type: ignore[no-any-return]


class _Atomic:
    """`cuda.atomic`: each returns the old value."""

    @staticmethod
    def add(array: KernelArray, index: Any, value: Any) -> Any:
        return array.update(index, lambda old: old + value)

    @staticmethod
    def sub(array: KernelArray, index: Any, value: Any) -> Any:
        return array.update(index, lambda old: old - value)

    @staticmethod
    def and_(array: KernelArray, index: Any, value: Any) -> Any:
        return array.update(index, lambda old: old & value)

    @staticmethod
    def or_(array: KernelArray, index: Any, value: Any) -> Any:
        return array.update(index, lambda old: old | value)

    @staticmethod
    def xor(array: KernelArray, index: Any, value: Any) -> Any:
        return array.update(index, lambda old: old ^ value)

    @staticmethod
    def inc(array: KernelArray, index: Any, value: Any) -> Any:
        return array.update(index, lambda old: 0 if old >= value else old + 1)

    @staticmethod
    def dec(array: KernelArray, index: Any, value: Any) -> Any:
        return array.update(index, lambda old: value if old == 0 or old > value else old - 1)

    @staticmethod
    def exch(array: KernelArray, index: Any, value: Any) -> Any:
        return array.update(index, lambda _: value)

    @staticmethod
    def max(array: KernelArray, index: Any, value: Any) -> Any:
        return array.update(index, lambda old: max(old, value))

    @staticmethod
    def min(array: KernelArray, index: Any, value: Any) -> Any:
        return array.update(index, lambda old: min(old, value))

    @staticmethod
    def nanmax(array: KernelArray, index: Any, value: Any) -> Any:
        return array.update(index, lambda old: np.fmax(old, value))

    @staticmethod
    def nanmin(array: KernelArray, index: Any, value: Any) -> Any:
        return array.update(index, lambda old: np.fmin(old, value))

    @staticmethod
    def cas(array: KernelArray, index: Any, old: Any, value: Any) -> Any:
        found = array.update(index, lambda now: value if now == old else now)
        if found != old:
            threads.spin()  # perhaps a lock that another thread has
        return found

    @staticmethod
    def compare_and_swap(array: KernelArray, old: Any, value: Any) -> Any:
        found = array.update((0,) * array.ndim, lambda now: value if now == old else now)
        if found != old:
            threads.spin()
        return found


def _block_wide(name: str) -> Callable[..., Any]:
    def call(value: Any = None) -> Any:
        return threads.wait(Waiting(name, line_of(sys._getframe(1)), None, value))

    call.__name__ = name
    return call


def _warp_wide(name: str) -> Callable[..., Any]:
    def call(mask: int = FULL_MASK, value: Any = None, argument: int = 0) -> Any:
        return threads.wait(Waiting(name, line_of(sys._getframe(1)), int(mask) & FULL_MASK, value, int(argument)))

    call.__name__ = name
    return call


def activemask() -> int:
    """The lanes of the warp that have not ended; a card counts only those that are at this instruction."""
    start = here.thread.number - here.thread.lane
    return sum(1 << thread.lane for thread in here.threads[start : start + WARP] if not thread.ended)


def lanemask_lt() -> int:
    """The lanes below this one."""
    return (1 << here.thread.lane) - 1


def fma(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` (rounded twice here, once on a card)."""
    return a * b + c


def cbrt(a: Any) -> Any:
    """The cube root."""
    return np.cbrt(a) if isinstance(a, scalars.Float32) else scalars.Float64(np.cbrt(float(a)))


def _bits(value: Any, frame: FrameType) -> str:
    """The bits of an integer, as many as its type has where numba has typed the call; else 32, if it fits."""
    whole = int(value)
    known = getattr(value, "bits", 0) or compiling.widths.get((frame.f_code, frame.f_lineno), 0)
    wide = known == 64 if known else not -(1 << 31) <= whole < 1 << 32
    return f"{whole & (1 << 64) - 1:064b}" if wide else f"{whole & FULL_MASK:032b}"


def popc(value: Any) -> int:
    """The number of bits that are set."""
    return _bits(value, sys._getframe(1)).count("1")


def brev(value: Any) -> scalars.Unsigned:
    """The bits in reverse order."""
    bits = _bits(value, sys._getframe(1))[::-1]
    return (scalars.UInt64 if len(bits) > 32 else scalars.Unsigned)(bits, 2)


def clz(value: Any) -> int:
    """The number of zeros before the highest bit that is set."""
    bits = _bits(value, sys._getframe(1))
    return len(bits) - len(bits.lstrip("0"))


def ffs(value: Any) -> int:
    """The place of the lowest bit that is set, counted from 1; 0 if there is none."""
    return _bits(value, sys._getframe(1))[::-1].find("1") + 1


def selp(condition: Any, value: Any, other: Any) -> Any:
    """One of two values."""
    return value if condition else other


class Missing:
    """Stands for a name of `numba.cuda` that kernels cannot use here."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refused."""
        raise self._error()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name) if name.startswith("__") else self._error()

    def _error(self) -> FakeGpuError:
        return FakeGpuError(f"cuda.{self._name} within a kernel is not part of the simulation.")


def _nothing(*_: Any) -> None:
    """A fence: one thread runs at a time, so that all see the same memory."""


def _no_grid_sync(*_: Any) -> None:
    raise FakeGpuError(
        "cuda.cg.this_grid() needs all blocks on the card at once; here blocks run one after the other. Split the "
        "kernel in two at the point where the grid synchronizes."
    )


class _Libdevice:
    """`numba.cuda.libdevice`, as far as `math` has the functions."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked by `inspect`, also where numba is not installed
            raise AttributeError(name)
        from numba.cuda.libdevicefuncs import functions

        plain = name.removeprefix("fast_")
        function = getattr(math, plain.removesuffix("f"), None) or getattr(math, plain, None)
        if f"__nv_{name}" not in functions or function is None:
            return Missing(f"libdevice.{name}")
        result, given = functions[f"__nv_{name}"]

        def call(*values: Any) -> Any:
            inside = (compiling.converted(value, its.ty) for value, its in zip(values, given, strict=True))
            return compiling.converted(scalars.in_kernel(function)(*inside), result)

        setattr(self, name, call)
        return call


libdevice = _Libdevice()


class _Groups:
    """`cuda.cg`."""

    this_grid = staticmethod(_no_grid_sync)


IN_KERNEL: dict[str, Any] = {
    "threadIdx": thread_index,
    "blockIdx": block_index,
    "blockDim": block_extent,
    "gridDim": grid_extent,
    "laneid": _Lane(),
    "warpsize": WARP,
    "grid": grid,
    "gridsize": gridsize,
    "shared": _Declared("shared"),
    "local": _Declared("local"),
    "const": _Declared("constant"),
    "atomic": _Atomic,
    "activemask": activemask,
    "lanemask_lt": lanemask_lt,
    "fma": fma,
    **{function.__name__: function for function in (popc, brev, clz, ffs, selp)},
    "cbrt": cbrt,
    "cg": _Groups,
    "fp16": Missing("fp16"),
    **dict.fromkeys(("threadfence", "threadfence_block", "threadfence_system", "nanosleep"), _nothing),
    **{name: _block_wide(name) for name in ("syncthreads", "syncthreads_count", "syncthreads_and", "syncthreads_or")},
    **{name: _warp_wide(name) for name in threads.WARP_WIDE},
}
"""By their names in `numba.cuda`."""
