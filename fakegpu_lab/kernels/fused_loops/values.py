"""`Values`: the operations of printed loops (`writing`), on whole tensors.

Each value is a CPU tensor that broadcasts to the range of its node: it has length 1 where it does not depend on an
index. Nothing is stored before the kernel's end, so that a kernel reads what its tensors held when it began. Half
precision is computed in float32 and rounded where it is stored, as in the kernels that Inductor prints.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.kernels.fused_loops import drawing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    Place = tuple[int, tuple[int, ...]] | Tensor | int


class NotHere(Exception):  # noqa: N818 - it is no error
    """Raised for what only the kernel's programs can do: an index is out of bounds, an assertion fails."""


_HALF = (torch.float16, torch.bfloat16)
_KINDS = {"i1": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32,
          "i64": torch.int64, "fp32": torch.float32, "fp64": torch.float64}  # fmt: skip
"""Triton's names of the types of arguments that are numbers."""
_UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in _HALF else dtype


class Values:
    """One launch.

    Parameters
    ----------
    tensors
        The memory of each argument, as CPU tensors: only where they begin and their dtype count.
    sizes
        The kernel's integer arguments.
    numbers
        All its arguments that are numbers, each with its type in Triton's signature.
    """

    REDUCTIONS = frozenset(
        [
            "sum",
            "prod",
            "max",
            "min",
            "any",
            "argmax",
            "argmin",
            "welford_reduce",
            "welford_combine",
            "online_softmax_reduce",
        ]
    )

    def __init__(
        self, tensors: Mapping[str, Tensor], sizes: Mapping[str, int], numbers: Mapping[str, tuple[float, str]]
    ) -> None:
        self.tensors, self.sizes, self._numbers = tensors, sizes, numbers
        self._kept: dict[str, tuple[Tensor, tuple[int, ...], Place]] = {}
        self._flat: dict[str, Tensor] = {}
        self._stores: list[tuple[bool, str, Place, tuple[int, ...], Tensor]] = []

    def begin(self, loops: tuple[int, ...], reduced: tuple[int, ...] = ()) -> None:
        """Begin a node with these ranges."""
        self._range = (*loops, *reduced)
        self._reduced = tuple(range(len(loops), len(self._range)))
        self._indices: dict[int, Tensor] = {}

    def index(self, dim: int) -> Tensor:
        """The index along one dimension of the range."""
        if dim not in self._indices:
            shape = [1] * len(self._range)
            shape[dim] = self._range[dim]
            self._indices[dim] = torch.arange(self._range[dim]).reshape(shape)
        return self._indices[dim]

    def _place(self, place: Place) -> Tensor:
        if isinstance(place, int):
            return torch.full((1,) * len(self._range), place)
        if not isinstance(place, tuple):
            return place
        offset, strides = place
        result = torch.full((1,) * len(self._range), offset)
        for dim, stride in enumerate(strides):
            if stride:
                result = result + self.index(dim) * stride
        return result

    def _view(self, memory: Tensor, place: tuple[int, tuple[int, ...]], whole: bool = False) -> Tensor:
        """The elements at a place of each index; an index on which the place does not depend has length 1."""
        offset, strides = place
        shape = [size if stride or whole else 1 for size, stride in zip(self._range, strides, strict=True)]
        return torch.as_strided(memory, shape, strides, memory.storage_offset() + offset)

    @staticmethod
    def _all(memory: Tensor) -> Tensor:
        """All elements behind the first one."""
        begin = memory.storage_offset()
        count = memory.untyped_storage().nbytes() // memory.element_size() - begin
        return torch.as_strided(memory, (count,), (1,), begin)

    def _read(self, memory: Tensor, place: Place, mask: Tensor | None) -> Tensor:
        if mask is None and isinstance(place, tuple):
            return self._view(memory, place)
        places = self._place(place)
        if mask is not None:
            places = torch.where(mask, places, 0)
        return self._all(memory)[places]

    def load(self, name: str, place: Place, mask: Tensor | None = None) -> Tensor:
        """Load from an argument's memory."""
        value = self._read(self.tensors[name], place, mask)
        return value.float() if value.dtype in _HALF else value

    def number(self, name: str) -> Tensor:
        """An argument that is a number."""
        value, kind = self._numbers[name]
        return torch.full((1,) * len(self._range), value, dtype=_KINDS[kind])

    def again(self, key: str, place: Place, mask: Tensor | None = None) -> Tensor:
        """Load what an earlier node has stored."""
        value, sizes, at = self._kept[key]
        if mask is None and isinstance(place, tuple) and place == at and self._is_at_hand(sizes, place[1]):
            return value
        if key not in self._flat:
            if not isinstance(at, tuple):
                raise NotHere
            offset, strides = at
            length = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True)) + 1
            self._flat[key] = torch.empty(max(length, 0), dtype=value.dtype)
            torch.as_strided(self._flat[key], sizes, strides, offset).copy_(value)
        return self._read(self._flat[key], place, mask)

    def _is_at_hand(self, sizes: tuple[int, ...], strides: tuple[int, ...]) -> bool:
        """Whether what was stored over `sizes` broadcasts to this range as it is."""
        return len(sizes) == len(self._range) and all(
            size == now or not stride for size, now, stride in zip(sizes, self._range, strides, strict=True)
        )

    def store(self, key: str, name: str | None, place: Place, value: Tensor) -> None:
        """Store, at the end; later nodes read the value itself."""
        sizes = self._stored(place)
        self._kept[key] = value, sizes, place
        if name is not None:
            self._stores.append((False, name, place, sizes, value))

    def _stored(self, place: Place) -> tuple[int, ...]:
        """The range that is stored: a reduction is stored once, not at each index that it is over."""
        if isinstance(place, tuple) and not any(place[1][dim] for dim in self._reduced):
            return tuple(1 if dim in self._reduced else size for dim, size in enumerate(self._range))
        return self._range

    def add_to(self, key: str, name: str, place: Place, value: Tensor) -> None:
        """Add to memory, by atomic operations."""
        self._stores.append((True, name, place, self._range, value))

    def alias(self, other: str, key: str) -> None:
        """The stored value is also that of another name."""
        if key in self._kept:
            self._kept[other] = self._kept[key]

    def finish(self) -> None:
        """Store everything."""
        several = len(self._stores) > 1
        memory = {tensor.untyped_storage()._cdata for tensor in self.tensors.values()}
        ready = [
            (adds, name, place, sizes, value.clone() if several and value.untyped_storage()._cdata in memory else value)
            for adds, name, place, sizes, value in self._stores
        ]
        for adds, name, place, sizes, value in ready:
            target = self.tensors[name]
            if isinstance(place, tuple) and not adds:
                offset, strides = place
                torch.as_strided(target, sizes, strides, target.storage_offset() + offset).copy_(value)
                continue
            self._range = sizes
            places = self._place(place)
            shape = torch.broadcast_shapes(places.shape, sizes if adds else value.shape)  # type: ignore[no-untyped-call]
            values = value.to(target.dtype).broadcast_to(shape)
            self._all(target).index_put_((places.broadcast_to(shape),), values, accumulate=adds)

    def wrapped(self, index: Tensor, size: int, check: bool, wrap: bool, mask: Tensor | None) -> Tensor:
        """An index that was loaded, as a place: negative ones count from the end."""
        index = index.to(torch.int64)
        if wrap:
            index = torch.where(index < 0, index + size, index)
        if check:
            self.holds((index >= 0) & (index < size), mask)
        return index

    def check(self, place: Place, size: int, lower: bool, upper: bool, mask: Tensor | None) -> None:
        """Places must be within a size."""
        places = self._place(place)
        if lower:
            self.holds(places >= 0, mask)
        if upper:
            self.holds(places < size, mask)

    def holds(self, condition: Tensor, mask: Tensor | None) -> None:
        """A condition must hold wherever the mask does."""
        if mask is not None:
            condition = condition | ~mask
        if not bool(condition.all()):
            raise NotHere

    def places(self, place: Place, dtype: torch.dtype) -> Tensor:
        """Indices as values."""
        return self._place(place).to(_wide(dtype))

    def constant(self, value: Any, dtype: torch.dtype) -> Tensor:
        """A number."""
        return torch.full((1,) * len(self._range), value, dtype=_wide(dtype))

    def chosen(self, mask: Tensor, value: Any, other: Any) -> Tensor:
        """The value where the mask holds, and another number elsewhere."""
        value = value if isinstance(value, torch.Tensor) else torch.tensor(value)
        other = other.to(value.dtype) if isinstance(other, torch.Tensor) else torch.tensor(other, dtype=value.dtype)
        return torch.where(mask, value, other)

    def to_dtype(
        self, x: Tensor, dtype: torch.dtype, src_dtype: torch.dtype | None = None, use_compute_types: bool = True
    ) -> Tensor:
        """Convert."""
        target = _wide(dtype) if use_compute_types else dtype
        if target is torch.bool:
            return x != 0
        if target in _UNSIGNED and x.is_floating_point():
            return x.to(torch.int64).to(target)
        return x.to(target)

    def to_dtype_bitcast(self, x: Tensor, dtype: torch.dtype, src_dtype: torch.dtype) -> Tensor:
        """The same bits as another type."""
        return x.to(src_dtype).view(dtype).to(_wide(dtype))

    def seed(self, name: str, offset: int) -> int:
        """A seed of the generator."""
        return int(self._all(self.tensors[name])[offset])

    def rand(self, seed: int, offset: Tensor, normal: bool, four: bool) -> Tensor:
        """Random numbers of Triton's generator."""
        return drawing.floats(seed, offset, normal=normal, four=four)

    def randint(self, seed: int, offset: Tensor, low: Any, high: Any) -> Tensor:
        """Random integers of it."""
        return drawing.integers(seed, offset, int(low), int(high))

    def reduce(self, kind: str, dtype: torch.dtype, value: Tensor, *more: Tensor) -> Any:
        """Reduce over the reduced dimensions, which stay, of length 1."""
        dims, dtype = self._reduced, _wide(dtype)
        value, *more = (self._expanded(one) for one in (value, *more))  # type: ignore[assignment]
        if kind in ("sum", "prod", "any", "max", "min", "argmax", "argmin"):
            return self._reduced_to_one(kind, value, dims).to(dtype)
        if kind == "online_softmax_reduce":
            most = value.amax(dims, keepdim=True)
            return most, torch.where(value == -torch.inf, 0.0, torch.exp(value - most)).sum(dims, keepdim=True)
        if kind == "welford_reduce":
            count = value.new_full((1,) * value.dim(), float(torch.Size(self._range[dim] for dim in dims).numel()))
            variance, mean = torch.var_mean(value, dims, correction=0, keepdim=True)
            return mean, variance * count, count
        squares, weights = more
        weight = weights.sum(dims, keepdim=True)
        mean = (value * weights).sum(dims, keepdim=True) / weight
        spread = squares.sum(dims, keepdim=True) + (weights * (value - mean).square()).sum(dims, keepdim=True)
        return mean, spread, weight

    def _expanded(self, value: Tensor) -> Tensor:
        shape = [self._range[dim] if dim in self._reduced else value.shape[dim] for dim in range(value.dim())]
        return value.expand(shape)

    @staticmethod
    def _reduced_to_one(kind: str, value: Tensor, dims: tuple[int, ...]) -> Tensor:
        if kind == "sum":
            return value.sum(dims, keepdim=True, dtype=value.dtype if value.is_floating_point() else torch.int64)
        if kind == "any":
            return value.any(dims, keepdim=True) if value.dtype is torch.bool else (value != 0).any(dims, keepdim=True)
        if kind in ("max", "min"):
            return value.amax(dims, keepdim=True) if kind == "max" else value.amin(dims, keepdim=True)
        loops = value.shape[: value.dim() - len(dims)]
        flat = value.reshape(*loops, -1)
        found: Tensor = getattr(torch, kind)(flat, -1)
        return found.reshape(*loops, *(1,) * len(dims))

    @staticmethod
    def identity(value: Tensor) -> Tensor:
        """The value itself."""
        return value

    @staticmethod
    def fma(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        """``x * y + z``."""
        return x * y + z


_LIKE_TORCH = (
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_left_shift",
    "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil", "copysign", "cos", "cosh",
    "digamma", "eq", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "fmod", "ge", "gt", "hypot", "i0",
    "isinf", "isnan", "le", "lgamma", "log", "log10", "log1p", "log2", "logical_and", "logical_not", "logical_or",
    "logical_xor", "lt", "maximum", "minimum", "mul", "ne", "neg", "nextafter", "pow", "reciprocal", "relu",
    "remainder", "round", "rsqrt", "sigmoid", "sign", "signbit", "sin", "sinh", "sqrt", "square", "sub", "tan",
    "tanh", "trunc",
)  # fmt: skip


def _to_int(rounded: Callable[[Tensor], Tensor]) -> Callable[[Tensor, torch.dtype], Tensor]:
    return lambda x, dtype: rounded(x).to(dtype)


_OTHERWISE: dict[str, Callable[..., Tensor]] = {
    "round_to_int": _to_int(torch.round),
    "floor_to_int": _to_int(torch.floor),
    "ceil_to_int": _to_int(torch.ceil),
    "trunc_to_int": _to_int(torch.trunc),
    "truediv": torch.true_divide,
    "floordiv": partial(torch.div, rounding_mode="floor"),
    "truncdiv": partial(torch.div, rounding_mode="trunc"),
    "where": torch.where,
    "div_rn": torch.true_divide,
    "mul_rn": torch.mul,
    "mod": torch.fmod,
    "and_": torch.bitwise_and,
    "or_": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "lshift": torch.bitwise_left_shift,
    "rshift": torch.bitwise_right_shift,
    "i0e": torch.special.i0e,
    "i1": torch.special.i1,
    "i1e": torch.special.i1e,
}
for _name, _function in {**{name: getattr(torch, name) for name in _LIKE_TORCH}, **_OTHERWISE}.items():
    setattr(Values, _name, staticmethod(_function))
