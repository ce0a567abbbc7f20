"""What calls, assignments, conditions and loops mean in a kernel: `rewriting` puts calls of these functions there."""

from __future__ import annotations

import builtins
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import triton.language as tl
from triton.language import core
from triton.runtime.interpreter import TensorHandle
from triton.runtime.jit import ConstexprFunction, JITCallable

from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.kernels.triton_programs import reductions, rewriting
from fakegpu_lab.kernels.triton_programs.builder import builder, semantic
from fakegpu_lab.kernels.triton_programs.libdevice import LIBDEVICE
from fakegpu_lab.kernels.triton_programs.running import Diverged, now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_functions: dict[Any, Any] = {}


def function_of(kernel: Any) -> Any:
    """The function that runs a kernel, or a function that a kernel calls."""
    found = _functions.get(id(kernel))
    if found is None or found[0] is not kernel:
        constants = {name for name, one in kernel.get_capture_scope().items() if isinstance(one, core.constexpr)}
        made = rewriting.rewritten(kernel.parse(), kernel.def_file_line_number, kernel.fn, _Meaning, constants)
        made.__defaults__ = made.__defaults__ and builtins.tuple(map(plain, made.__defaults__))
        found = _functions[id(kernel)] = (kernel, made)
    return found[1]


def plain(value: Any) -> Any:
    """A constant's own value."""
    return value.value if isinstance(value, core.constexpr) else value


def call(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """A call: of one of Triton's functions, of a function with ``@triton.jit``, or of Python's."""
    if isinstance(function, ConstexprFunction):
        return function.fn(*map(plain, args), **{name: plain(value) for name, value in kwargs.items()})
    if isinstance(function, JITCallable):
        return function_of(function)(*args, **kwargs)
    special = _SPECIAL.get(id(function))
    if special is not None:
        return special(*args, **kwargs)
    if "libdevice" in (getattr(function, "__module__", None) or ""):
        return _of_libdevice(function.__name__)(*args)
    if core.is_builtin(function):
        return _builtin(function, args, kwargs)
    return function(*args, **kwargs)


def _builtin(function: Any, args: Any, kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs, _semantic=semantic)
    except (NotImplementedError, AttributeError) as error:  # the builder has no such operation
        if isinstance(error, AttributeError) and getattr(error, "obj", builder) is not builder:
            raise
        raise FakeGpuError(f"tl.{function.__name__} is not part of the simulation.") from None


def _of_libdevice(name: str) -> Any:
    if name not in LIBDEVICE:
        known = ", ".join(sorted(LIBDEVICE))
        raise FakeGpuError(f"tl.extra.libdevice.{name} is not part of the simulation; these functions are: {known}.")
    return LIBDEVICE[name]


def method(owner: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
    """A call of an attribute: of a module's function, or of a tensor's method."""
    if isinstance(owner, core.tensor):
        member = getattr(type(owner), name, None)
        if isinstance(member, JITCallable) or id(member) in _SPECIAL:
            return call(member, owner, *args, **kwargs)
    return call(getattr(owner, name), *args, **kwargs)


def value(found: Any) -> Any:
    """What an assignment stores: numbers become tensors."""
    if isinstance(found, builtins.tuple) and type(found) is builtins.tuple:
        return builtins.tuple(map(value, found))
    return semantic.to_tensor(found, False)


def _all_the_same(tensor: Any) -> Any:
    """The one value of a scalar; raises `Diverged` where programs have different ones."""
    data = tensor.handle.data
    first = data.flat[0]
    if data.size > 1 and not (data == first).all():
        raise Diverged(data.reshape(len(data), -1)[:, 0])
    return first.item()


def true(condition: Any) -> bool:
    """Whether a condition is met."""
    if not isinstance(condition, core.tensor):
        return bool(plain(condition))
    if condition.handle.data.ndim > 1 and condition.handle.data[0].size > 1:
        raise ValueError("Boolean value of Tensor with more than one value is ambiguous")
    return bool(_all_the_same(call(core.tensor.__ne__, condition, 0)))


def again(condition: Any) -> bool:
    """Whether a ``while`` loop goes on; raises where it waits for what does not come."""
    now[-1].goes_around()
    return true(condition)


def both(left: Any, right: Callable[[], Any]) -> Any:
    """``left and right``."""
    if not isinstance(left, core.tensor):
        return right() if plain(left) else left
    return left.logical_and(right(), _semantic=semantic)


def either(left: Any, right: Callable[[], Any]) -> Any:
    """``left or right``."""
    if not isinstance(left, core.tensor):
        return left if plain(left) else right()
    return left.logical_or(right(), _semantic=semantic)


def invert(operand: Any) -> Any:
    """``not operand``."""
    return semantic.not_(operand) if isinstance(operand, core.tensor) else not plain(operand)


def compare(*parts: Any) -> Any:
    """``a < b < c``, as ``a < b and b < c``."""
    found = parts[0]
    for part in parts[1:]:
        found = both(found, partial(plain, part))
    return found


def claim(condition: Any, message: Callable[[], Any]) -> None:
    """``assert``: of what the compiler knows; a device-side one is left out unless Triton debugs."""
    if not isinstance(condition, core.tensor):
        assert plain(condition), message()


def _numbers(first: Any, second: Any, step: Any) -> tuple[Any, Any, Any]:
    first, second, step = (plain(one) for one in (first, second, step))
    start, stop = (0, first) if second is None else (first, second)
    return start, stop, 1 if step is None else step


def _range(arg1: Any, arg2: Any = None, step: Any = None, **options: Any) -> Iterator[Any]:
    """``range`` and ``tl.range``: programs may begin at different places, but make the same number of steps."""
    bounds = _numbers(arg1, arg2, step)
    wide = any(isinstance(one, core.tensor) and one.dtype.primitive_bitwidth == 64 for one in bounds)
    start, stop, by = (
        one.handle.data.astype(np.int64) if isinstance(one, core.tensor) else np.array([one], np.int64)
        for one in bounds
    )
    steps = np.maximum(-((start - stop) // by), 0)
    if steps.size > 1 and not (steps == steps[0]).all():
        raise Diverged(steps)
    kind, dtype = (np.int64, tl.int64) if wide else (np.int32, tl.int32)
    for step_number in builtins.range(int(steps[0])):
        yield core.tensor(TensorHandle((start + step_number * by).astype(kind), dtype), dtype)


def _static_range(arg1: Any, arg2: Any = None, step: Any = None, **options: Any) -> Any:
    def number(one: Any) -> int:
        return int(_all_the_same(one)) if isinstance(one, core.tensor) else int(one)

    return builtins.range(*map(number, _numbers(arg1, arg2, step)))


def _reduce(operand: Any, axis: Any, combine_fn: Any, keep_dims: bool = False, **options: Any) -> Any:
    return reductions.reduce(call, operand, plain(axis), combine_fn, bool(plain(keep_dims)))


def _reduce_with_indices(operand: Any, axis: Any, combine_fn: Any, keep_dims: bool = False, **options: Any) -> Any:
    where = plain(axis) % len(operand.shape)
    places = core.arange(0, operand.shape[where], _semantic=semantic)
    for other in builtins.range(len(operand.shape)):
        if other != where:
            places = semantic.expand_dims(places, other)
    places = semantic.broadcast_impl_shape(places, [plain(one) for one in operand.shape])
    return _reduce((operand, places), where, combine_fn, keep_dims)


def _scan(operand: Any, axis: Any, combine_fn: Any, reverse: bool = False, **options: Any) -> Any:
    return reductions.scan(call, operand, plain(axis), combine_fn, bool(plain(reverse)))


def _static_assert(condition: Any, message: Any = "") -> None:
    assert plain(condition), plain(message)


def _same(tensor: Any, *hints: Any) -> Any:
    return tensor


def _lesser(*args: Any) -> Any:
    return _extreme(core.minimum, builtins.min, args)


def _greater(*args: Any) -> Any:
    return _extreme(core.maximum, builtins.max, args)


def _extreme(of_tensors: Any, of_numbers: Any, args: Any) -> Any:
    if not any(isinstance(one, core.tensor) for one in args):
        return of_numbers(*map(plain, args))
    found = args[0]
    for one in args[1:]:
        found = of_tensors(found, one, _semantic=semantic)
    return found


_SPECIAL: dict[int, Any] = {
    id(builtins.range): _range,
    id(core.range): _range,
    id(core.static_range): _static_range,
    id(core.reduce): _reduce,
    id(core._reduce_with_indices): _reduce_with_indices,
    id(core.associative_scan): _scan,
    id(core.static_assert): _static_assert,
    id(core.static_print): print,
    id(builtins.print): partial(call, core.device_print),
    id(core.multiple_of): _same,
    id(core.max_contiguous): _same,
    id(core.max_constancy): _same,
    id(builtins.min): _lesser,
    id(builtins.max): _greater,
}
for _name in ("reduce", "associative_scan"):  # as methods of a tensor
    _member = getattr(core.tensor, _name, None)
    if _member is not None:
        _SPECIAL[id(_member)] = _reduce if _name == "reduce" else _scan


class _Meaning:
    plain = staticmethod(plain)
    call = staticmethod(call)
    method = staticmethod(method)
    value = staticmethod(value)
    true = staticmethod(true)
    again = staticmethod(again)
    both = staticmethod(both)
    either = staticmethod(either)
    invert = staticmethod(invert)
    compare = staticmethod(compare)
    claim = staticmethod(claim)


def _ir_type(dtype: Any, _builder: Any) -> Any:
    """`dtype.to_ir`: a type stands for itself, with its sign."""
    return dtype


def _transposed(tensor: Any) -> Any:
    return semantic.permute(tensor, (1, 0))


def _with_semantic(member: Any) -> Any:
    def bound(self: Any, *args: Any, **kwargs: Any) -> Any:
        return member(self, *args, **{**kwargs, "_semantic": semantic})

    return bound


_OPERATORS = {
    name: _with_semantic(member)
    for name, member in vars(core.tensor).items()
    if name.startswith("__") and core.is_builtin(member)
}


@contextmanager
def in_force() -> Iterator[None]:
    """Within this context, Triton's tensors compute at once."""
    changes: list[tuple[Any, str, Any]] = [(core.tensor, name, made) for name, made in _OPERATORS.items()]
    changes += [
        (core.tensor, "__index__", lambda self: int(_all_the_same(self))),
        (core.tensor, "__str__", lambda self: str(self.handle.data)),
        (core.tensor, "T", property(_transposed)),
        (core.dtype, "to_ir", _ir_type),
    ]
    missing: Any = object()
    before = [(owner, name, vars(owner).get(name, missing)) for owner, name, _ in changes]
    for owner, name, new in changes:
        setattr(owner, name, new)
    try:
        yield
    finally:
        for owner, name, old in before:
            if old is missing:
                delattr(owner, name)
            else:
                setattr(owner, name, old)


def number(given: Any, kind: str) -> Any:
    """A number that the kernel gets, as a scalar of its type in the signature."""
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        return semantic.to_tensor(given, False)
    if isinstance(given, int) and not kind.startswith(("i", "u")):
        kind = "i32" if -(2**31) <= given < 2**31 else "i64" if given < 2**63 else "u64"
    dtype = tl.str_to_ty(kind, None) if kind != "constexpr" else tl.float32
    if isinstance(given, float):
        scalar = semantic.to_tensor(float(given))
        return semantic.cast(scalar, dtype) if scalar.dtype != dtype else scalar
    numpy_type = {"i1": np.bool_, "u1": np.bool_}.get(kind) or f"{'u' if kind[0] == 'u' else ''}int{kind[1:]}"
    return core.tensor(TensorHandle(np.array([given]).astype(numpy_type), dtype), dtype)


def pointer(address: int, kind: str, name: str) -> Any:
    """A pointer that the kernel gets in its argument `name`."""
    dtype = tl.str_to_ty(kind, None)
    handle = TensorHandle(np.array([address], dtype=np.uint64), dtype, {"origin": name})
    return core.tensor(handle, dtype)


__all__ = ["builder", "function_of", "in_force", "number", "pointer"]
