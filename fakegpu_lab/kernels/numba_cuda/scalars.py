"""Scalars inside a kernel: numba's types, and a count of the operations on floats.

A load from a float32 array gives a `Float32`. It behaves as in a compiled kernel: with another float32 the result is
rounded to float32; with an integer, a Python float or a float64 it is a float64 (numba's rules, which are NumPy's for
arrays of those types). A literal such as ``2.0`` is a float64, so ``x * 2.0`` is double precision, on a real card too.

Every ``+ - * / // % **`` on such scalars is one floating-point operation, and so is a call of a function of `math`. The
compiler's fused multiply-add counts as two, as in NVIDIA's profilers. Negation, `abs`, `min`, `max` and comparisons
count nothing.

A signed integer is Python's: numba computes with 64 bits, whatever the operands have, and there only Python does not
wrap. An `Unsigned` behaves as in a compiled kernel, where two of them give a uint64, and a uint64 with a signed integer
gives a float64. Operations on integers are not counted.
"""

from __future__ import annotations

import math
from array import array
from functools import cache
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

_single = array("f", [0.0])


class Counter:
    """Counts calls of `tick`, which is as fast as Python can count."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start from 0."""
        self._count = count()
        self.tick: Callable[[], int] = self._count.__next__

    @property
    def value(self) -> int:
        """How often `tick` was called."""
        return int(self._count.__reduce__()[1][0])


class _Scalar(float):
    """A float of a type that numba knows. Plain Python floats are float64 as well: literals, and host arguments."""

    __slots__ = ()
    numpy_type: type[np.floating[Any]]

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """``np.exp(x)``, or an operation with a scalar of NumPy's on the left."""
        values = [value.numpy_type(value) if isinstance(value, _Scalar) else value for value in inputs]
        result = wrapped(getattr(ufunc, method)(*values, **kwargs))
        if isinstance(result, _Scalar):
            FLOPS[type(result)].tick()
        return result


class Float64(_Scalar):
    """A float64."""

    __slots__ = ()
    numpy_type = np.float64


class Float32(_Scalar):
    """A float32: a Python float whose value is one of float32's."""

    __slots__ = ()
    numpy_type = np.float32


class Float16(_Scalar):
    """A float16."""

    __slots__ = ()
    numpy_type = np.float16


class Unsigned(int):
    """An unsigned integer of `bits` bits; beside a signed one, it is a signed one of 64."""

    bits = 32


class UInt64(Unsigned):
    """A uint64."""

    bits = 64


def _unsigned_operators(name: str, *, arithmetic: bool) -> None:
    operation = getattr(int, f"__{name}__")

    def compute(self: Unsigned, other: Any) -> Any:
        result = operation(self, other)
        if isinstance(other, Unsigned):
            return UInt64(result % (1 << 64))
        if result is NotImplemented or self.bits < UInt64.bits:
            return result
        return getattr(Float64(self), f"__{name}__")(Float64(other)) if arithmetic else UInt64(result % (1 << 64))

    setattr(Unsigned, f"__{name}__", compute)


for _name in ("add", "sub", "mul", "floordiv", "mod", "radd", "rsub", "rmul", "rfloordiv", "rmod"):
    _unsigned_operators(_name, arithmetic=True)
for _name in ("and", "or", "xor", "lshift", "rshift", "rand", "ror", "rxor"):
    _unsigned_operators(_name, arithmetic=False)

FLOPS: dict[type[float], Counter] = {Float16: Counter(), Float32: Counter(), Float64: Counter()}
FLOPS[float] = FLOPS[Float64]
_OF_NUMPY: dict[type, type[_Scalar]] = {np.float16: Float16, np.float32: Float32, np.float64: Float64}
_float = float.__new__


def wrapped(value: Any) -> Any:
    """A scalar of NumPy's as the type that it has in a kernel; anything else unchanged."""
    return cast(value.dtype)(value) if isinstance(value, np.generic) else value


def dtype_of(value: Any) -> np.dtype[Any]:
    """The type of a scalar in a kernel."""
    if isinstance(value, Unsigned):
        return np.dtype(f"u{value.bits // 8}")
    return np.dtype(value.numpy_type) if isinstance(value, _Scalar) else np.asarray(value).dtype


class Cast:
    """A type of numba's or of NumPy's in a kernel: it converts a number as C does; arrays are declared with it."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        bits = 8 * dtype.itemsize
        self._size, self._half = 1 << bits, 1 << bits - 1
        integers = {"u": UInt64 if bits == UInt64.bits else Unsigned, "i": self._signed, "b": bool}
        self._convert: Any = _OF_NUMPY.get(dtype.type) or integers.get(dtype.kind, dtype.type)

    def __call__(self, value: Any = 0) -> Any:
        """The number in this type."""
        if self.dtype.kind in "iu":
            if isinstance(value, (float, np.floating)):
                value = int(value) if math.isfinite(value) else 0
            return self._convert(int(value) % self._size)
        if self.dtype.kind == "f":
            with np.errstate(all="ignore"):
                return self._convert(self.dtype.type(value))
        return self._convert(value)

    def _signed(self, value: int) -> int:
        return value - self._size if value >= self._half else value


@cache
def cast(dtype: np.dtype[Any]) -> Any:
    """The conversion to a type of NumPy's; anything but a number stays as it is."""
    return Cast(dtype) if dtype.kind in "iufbc" else lambda value: value


def _ieee(name: str, left: Any, right: Any) -> float:
    """What the card computes where Python raises: no exception, but infinity or NaN."""
    with np.errstate(all="ignore"):
        by_numpy = {"truediv": np.divide, "floordiv": np.floor_divide, "mod": np.fmod, "pow": np.power}[name]
        return float(by_numpy(np.float64(left), np.float64(right)))


def _operators(cls: type[_Scalar], name: str) -> None:
    operation = getattr(float, f"__{name}__")
    numpy_type = cls.numpy_type
    narrow, wide = FLOPS[cls], FLOPS[Float64]

    def rounded(value: float) -> _Scalar:
        if cls is Float32:
            _single[0] = value
            return _float(Float32, _single[0])
        with np.errstate(all="ignore"):
            return _float(cls, numpy_type(value))

    def forward(left: float, right: Any) -> Any:
        return compute(right, left, right)

    def backward(right: float, left: Any) -> Any:
        return compute(left, left, right)

    def compute(other: Any, left: Any, right: Any) -> Any:
        if not isinstance(other, (int, float, np.number)):
            return NotImplemented
        try:
            value = operation(float(left), float(right))
        except (ZeroDivisionError, OverflowError):
            value = _ieee(name, left, right)
        if other.__class__ is cls or other.__class__ is numpy_type:
            narrow.tick()
            return rounded(value)
        wide.tick()
        return _float(Float64, value)

    def forward_single(left: float, right: Any) -> Any:
        """`forward`, written out for the most common case: both are float32."""
        if right.__class__ is Float32:
            narrow.tick()
            _single[0] = operation(left, right)
            return _float(Float32, _single[0])
        return compute(right, left, right)

    simple = name in ("add", "sub", "mul")  # which raise nothing
    setattr(cls, f"__{name}__", forward_single if cls is Float32 and simple else forward)
    setattr(cls, f"__r{name}__", backward)


for _cls in (Float16, Float32, Float64):
    for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
        _operators(_cls, _name)
    for _name in ("neg", "abs", "pos"):
        _plain = getattr(float, f"__{_name}__")
        setattr(_cls, f"__{_name}__", lambda self, plain=_plain, cls=_cls: _float(cls, plain(self)))


def _math_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of `math` as CUDA has it: a float32 gives a float32, and there are no exceptions, but NaN."""

    def call(*values: Any) -> Any:
        kinds = {value.__class__ for value in values if isinstance(value, (_Scalar, np.floating))}
        try:
            result = function(*values)
        except ValueError:
            result = -math.inf if function in (math.log, math.log2, math.log10) and values[0] == 0 else math.nan
        except OverflowError:
            result = math.inf
        if not isinstance(result, float):
            return result  # isnan, floor, frexp
        single = bool(kinds) and kinds <= {Float32, np.float32}
        FLOPS[Float32 if single else Float64].tick()
        if single:
            _single[0] = result
            return _float(Float32, _single[0])
        return _float(Float64, result)

    call.__name__ = function.__name__
    return call


_FUNCTIONS: dict[int, Any] = {
    id(function): _math_function(function) for function in vars(math).values() if callable(function)
}
_MATH = SimpleNamespace(**{name: _FUNCTIONS.get(id(value), value) for name, value in vars(math).items()})


def printed(*values: Any) -> None:
    """`print` in a kernel: floats as printf's %f (numba/cuda/printimpl.py)."""
    print(*(f"{value:f}" if isinstance(value, (float, np.floating)) else value for value in values))


class Inside:
    """A module as a kernel sees it, with `meaning` of each of its attributes."""

    def __init__(self, module: ModuleType, meaning: Callable[[Any], Any]) -> None:
        self._module, self._meaning = module, meaning

    def __getattr__(self, name: str) -> Any:
        found = vars(self)[name] = self._meaning(getattr(self._module, name))
        return found


def in_kernel(value: Any) -> Any:
    """What stands for a global of the kernel's module: `math`'s functions are CUDA's, and types convert numbers."""
    if isinstance(value, ModuleType):
        return _MATH if value is math else _NUMPY if value is np else value
    if isinstance(value, np.generic):
        return wrapped(value)
    if isinstance(value, type) and issubclass(value, np.number | np.bool):
        return cast(np.dtype(value))
    return _FUNCTIONS.get(id(value), value)


_NUMPY = Inside(np, in_kernel)
