"""Arrays inside a kernel: what a thread reads and writes, checked and noted.

`KernelArray` has the interface that numba gives an array in a kernel: elements, slices, ``shape``, ``size``, ``T``.
Each element that a thread loads or stores is appended to the launch's `AccessNotes` as one integer, which has the
*site* (array, kind of access, instruction of the user's code) in its upper bits and the element's position in the lower
ones.

An index outside its dimension is an error. A card checks only addresses: in a two-dimensional array, an index that is
too large reads the next row, and one that is a little too large for the whole array reads another tensor. Indices below
zero count from the end, as in numba.
"""

from __future__ import annotations

import dis
import sys
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from fakegpu_lab.kernels.numba_cuda import scalars
from fakegpu_lab.user_code.frames import innermost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

    from fakegpu_lab.hardware.kernel_model.accesses import Kind


POSITION_BITS = 44
_getframe = sys._getframe
_VALUES: dict[str, Callable[[Any], Any]] = {
    "e": scalars.Float16,
    "f": scalars.Float32,
    "d": scalars.Float64,
    **dict.fromkeys("BHI", scalars.Unsigned),
    **dict.fromkeys("LQ", scalars.UInt64),
}


class OutOfBounds(Exception):  # noqa: N818 - CUDA's word
    """A thread's index lies outside its array."""

    def __init__(self, array: KernelArray, index: Any, action: str, line: tuple[str, int]) -> None:
        super().__init__(array, index, action, line)
        self.array, self.index, self.action, self.line = array, index, action, line


@dataclass(frozen=True)
class Site:
    """An instruction of the kernel that accesses an array; `kind` is "load", "store" or "atomic"."""

    memory: Memory
    kind: Kind
    line: tuple[str, int]


class AccessNotes:
    """What the threads of a launch have accessed so far: an integer for each access, in order.

    `unchanged` has the places of those stores that left the element's value as it was.
    """

    def __init__(self) -> None:
        self.sites: list[Site] = []
        self.codes: list[int] = []
        self.unchanged: list[int] = []


class Memory:
    """The bytes that one or more arrays of a kernel look at.

    Attributes
    ----------
    name
        What the user calls it.
    space
        "global" or "shared"; "local" is not noted: it stands for registers, and for constant memory.
    address
        Where it begins, in bytes: on the device, or in the block's shared memory.
    elements
        Its elements, one after the other; `cells` are the same, in the form that Python reads faster.
    numbers
        The sites that access it, by instruction, in the upper bits of an integer.
    """

    __slots__ = ("address", "cells", "elements", "name", "note", "notes", "numbers", "space", "value")

    def __init__(
        self,
        name: str,
        space: Literal["global", "shared", "local"],
        address: int,
        elements: np.ndarray[Any, Any],
        notes: AccessNotes,
    ) -> None:
        self.name = name
        self.space = space
        self.address = address
        self.elements = elements
        self.notes = notes if space != "local" else AccessNotes()
        self.note: Callable[[int], object] = _forget if space == "local" else notes.codes.append
        kind = elements.dtype.char
        # A memoryview is read in half the time.
        self.cells: Any = memoryview(elements.data) if kind in "fdbBhHiIlLqQ?" else elements
        if kind == "V":
            self.cells = _Records(self)
        self.value = _VALUES.get(kind, _itself)
        self.numbers: dict[int, int] = {}

    def number(self, kind: Kind, frame: FrameType) -> int:
        """A new site: the instruction that `frame` is at."""
        code = id(frame.f_code) << 16
        # Once the interpreter has specialised an instruction, it points behind the instruction's cache.
        first = max(one for one in _instructions(frame.f_code) if one <= frame.f_lasti)
        number = self.numbers.get(code | first)
        if number is None:
            number = self.numbers[code | first] = len(self.notes.sites) << POSITION_BITS
            self.notes.sites.append(Site(self, kind, line_of(frame)))
        self.numbers[code | frame.f_lasti] = number
        return number

    def put(self, position: int, value: Any) -> None:
        """Store what `cells` has refused: a float into integers is cut off, an integer that is too large wraps."""
        kind = self.elements.dtype
        if kind.kind in "iu" and isinstance(value, (int, float, np.number)):
            bits = 8 * kind.itemsize
            whole = int(value) % (1 << bits)
            self.elements[position] = whole - (1 << bits) if kind.kind == "i" and whole >> (bits - 1) else whole
        else:
            self.elements[position] = value


class _Records:
    """The cells of structured elements."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def __getitem__(self, position: int) -> Record:
        return Record(self._memory, position)

    def __setitem__(self, position: int, value: Any) -> None:
        whole = value._memory.elements[value._position] if isinstance(value, Record) else value
        self._memory.elements[position] = whole


class Record:
    """A structured element: fields by name. Simplified: writing a field counts as writing the element."""

    _memory: Memory
    _position: int

    def __init__(self, memory: Memory, position: int) -> None:
        object.__setattr__(self, "_memory", memory)
        object.__setattr__(self, "_position", position)

    def __getitem__(self, name: str) -> Any:
        return scalars.wrapped(self._memory.elements[self._position][name])

    __getattr__ = __getitem__

    def __setitem__(self, name: str, value: Any) -> None:
        self._memory.note(self._memory.number("store", _getframe(1)) + self._position)
        kind = self._memory.elements.dtype[name]
        self._memory.elements[self._position][name] = scalars.cast(kind)(value)

    __setattr__ = __setitem__


@lru_cache(maxsize=256)
def _instructions(code: CodeType) -> list[int]:
    return [instruction.offset for instruction in dis.get_instructions(code)]


def _forget(_: int) -> None:
    """Note nothing."""


def _itself(value: Any) -> Any:
    return value


def line_of(frame: FrameType | None) -> tuple[str, int]:
    """The user's line that is running."""
    frame = innermost(frame)
    return ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


class KernelArray:
    """An array as a thread of a kernel sees it: `steps` are its strides in elements of `memory`, from `start`."""

    __slots__ = ("_memory", "_numbers", "_start", "_steps", "ndim", "shape", "size")

    def __init__(self, memory: Memory, shape: tuple[int, ...], steps: tuple[int, ...], start: int = 0) -> None:
        self._memory = memory
        self._numbers = memory.numbers
        self._start = start
        self._steps = steps
        self.shape = shape
        self.ndim = len(shape)
        self.size = prod(shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its elements."""
        found: np.dtype[Any] = self._memory.elements.dtype
        return found

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self._memory.elements.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next, by dimension."""
        return tuple(step * self.itemsize for step in self._steps)

    @property
    def T(self) -> KernelArray:  # noqa: N802 - NumPy's name
        """The transposed array: the same elements."""
        return KernelArray(self._memory, self.shape[::-1], self._steps[::-1], self._start)

    @property
    def name(self) -> str:
        """What the user calls it."""
        return self._memory.name

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"`{self.name}.{name}` within a kernel is not part of the simulation. Write a loop over the elements."
        )

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        for index in range(self.shape[0]):
            yield self[index]

    def __getitem__(self, index: Any) -> Any:
        position = self._position(index, "read")
        if position.__class__ is KernelArray:
            return position
        frame = _getframe(1)
        memory = self._memory
        number = self._numbers.get(id(frame.f_code) << 16 | frame.f_lasti)
        if number is None:
            number = memory.number("load", frame)
        memory.note(number + position)
        return memory.value(memory.cells[position])

    def __setitem__(self, index: Any, value: Any) -> None:
        position = self._position(index, "write")
        if position.__class__ is KernelArray:
            position._fill(value)
            return
        frame = _getframe(1)
        memory = self._memory
        number = self._numbers.get(id(frame.f_code) << 16 | frame.f_lasti)
        if number is None:
            number = memory.number("store", frame)
        if memory.cells[position] == value:
            memory.notes.unchanged.append(len(memory.notes.codes))
        memory.note(number + position)
        try:
            memory.cells[position] = value
        except (ValueError, TypeError, OverflowError):
            memory.put(position, value)

    def update(self, index: Any, change: Callable[[Any], Any]) -> Any:
        """Replace an element by ``change(element)`` in one step, and return what it was: an atomic operation."""
        position = self._position(index, "update")
        if position.__class__ is KernelArray:
            raise TypeError("an atomic operation needs the index of one element")
        frame = _getframe(2)
        memory = self._memory
        number = self._numbers.get(id(frame.f_code) << 16 | frame.f_lasti)
        if number is None:
            number = memory.number("atomic", frame)
        memory.note(number + position)
        old = memory.value(memory.cells[position])
        memory.put(position, change(old))
        return old

    def _position(self, index: Any, action: str) -> Any:
        """Where an element is in `memory`; a `KernelArray` if `index` leaves more than one."""
        steps = self._steps
        if index.__class__ is int:  # one index or two, written out: every access comes here
            if len(steps) == 1 and 0 <= index < self.size:
                return self._start + index * steps[0]
        elif index.__class__ is tuple and len(index) == 2 == len(steps):
            (y, x), (height, width) = index, self.shape
            if y.__class__ is int and x.__class__ is int and 0 <= y < height and 0 <= x < width:
                return self._start + y * steps[0] + x * steps[1]
        indices = index if index.__class__ is tuple else (index,)
        if len(indices) < self.ndim or any(one.__class__ is slice or one is Ellipsis for one in indices):
            return self._part(indices)
        if len(indices) > self.ndim:
            raise IndexError(
                f"too many indices: {self.name} has {self.ndim} dimensions, and {index} has {len(indices)}"
            )
        position = self._start
        for one, size, step in zip(indices, self.shape, self._steps, strict=True):
            if one.__class__ is not int:
                one = one.__index__()  # noqa: PLW2901 - np.int32(3) is 3; a float is an error, as in numba
            if one < 0:
                one += size  # noqa: PLW2901
            if not 0 <= one < size:
                raise self._outside(index, action)
            position += one * step
        return position

    def _part(self, indices: tuple[Any, ...]) -> KernelArray:
        """A view: slices, or fewer indices than dimensions."""
        if Ellipsis in indices:
            at = indices.index(Ellipsis)
            rest = self.ndim - len(indices) + 1
            indices = (*indices[:at], *(slice(None),) * rest, *indices[at + 1 :])
        indices += (slice(None),) * (self.ndim - len(indices))
        start, shape, steps = self._start, [], []
        for one, size, step in zip(indices, self.shape, self._steps, strict=True):
            if isinstance(one, slice):
                chosen = range(*one.indices(size))
                start += chosen.start * step
                shape.append(len(chosen))
                steps.append(chosen.step * step)
            else:
                place = one.__index__()
                place += size if place < 0 else 0
                if not 0 <= place < size:
                    raise self._outside(indices, "read")
                start += place * step
        return KernelArray(self._memory, tuple(shape), tuple(steps), start)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None) -> Any:
        """``np.sin(x, out)``: element by element."""
        *given, target = (*inputs, *out) if out else inputs
        if method != "__call__" or len(given) != ufunc.nin or not isinstance(target, KernelArray):
            return NotImplemented
        for index in product(*map(range, target.shape)):
            target[index] = ufunc(*(one[index] if isinstance(one, KernelArray) else one for one in given))
        return target

    def _fill(self, value: Any) -> None:
        for index in product(*map(range, self.shape)):
            self[index] = value[index] if isinstance(value, KernelArray) else value

    def _outside(self, index: Any, action: str) -> OutOfBounds:
        return OutOfBounds(self, index, action, line_of(_getframe(2)))

    def __repr__(self) -> str:
        return f"<array {self.name} of {self.shape} {self.dtype} in {self._memory.space} memory>"


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
