"""numba's own compiler, up to the point where it needs a card: a kernel that numba would refuse fails in numba's words.

`compile_cuda` types the function and lowers it to LLVM. What it makes is not used: the kernel runs as Python. numba
takes 0.1 s for a kernel, and a second for the first one.
"""

from __future__ import annotations

from functools import partial
from types import CellType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.hardware.errors import with_notes
from fakegpu_lab.kernels.numba_cuda import messages, scalars
from fakegpu_lab.kernels.numba_cuda.arrays import KernelArray

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import CodeType

    Types = tuple[Any, ...]

meanings: dict[int, tuple[Any, Any]] = {}
"""What numba's objects are in a kernel that runs here: by their ids, with the objects themselves."""
widths: dict[tuple[CodeType, int], int] = {}
"""The bits of the integers that `popc` and its like get, by function and line, as numba has typed the calls."""
_CAPABILITY = 8, 0
"""The compute capability that numba compiles for: every version of numba knows it."""
_BY_WIDTH = ("popc", "brev", "clz", "ffs")


def compiled(dispatcher: Any, types: Types) -> Types:
    """Let numba compile a kernel for those argument types; raises numba's errors.

    Returns
    -------
    tuple
        The types that the kernel gets: those of the signature, if the decorator named some.
    """
    if not hasattr(dispatcher, "targetoptions"):
        return types  # of numba's own simulator, which compiles nothing
    known = dispatcher.overloads
    if types in known:
        return types
    if not dispatcher._can_compile:  # the decorator named the signatures
        signature = _closest(dispatcher, types, known)
        if signature is None:
            raise TypeError(f"No matching definition for argument type(s) {', '.join(map(str, types))}")
        return signature
    from numba.core import errors
    from numba.core import types as numba_types
    from numba.cuda.compiler import compile_cuda

    options = {name: dispatcher.targetoptions.get(name) for name in ("debug", "fastmath")}
    try:
        result = compile_cuda(dispatcher.py_func, numba_types.void, types, cc=_CAPABILITY, **options)
    except errors.NumbaError as error:
        messages.not_compiled(error)
        raise error.with_traceback(None) from None  # its text has the user's line
    except AttributeError as error:
        messages.not_compiled(error)
        raise
    known[types] = result
    return types


def _closest(dispatcher: Any, types: Types, signatures: Iterable[Types]) -> Types | None:
    """The signature that arguments of `types` are converted to most easily (numba/core/dispatcher.py)."""
    best: tuple[Any, Types] | None = None
    for signature in signatures:
        if len(types) == len(signature):
            given = zip(types, signature, strict=True)
            steps = [dispatcher.typingctx.can_convert(one, wanted) for one, wanted in given]
            if None not in steps and (best is None or sorted(steps, reverse=True) < best[0]):
                best = sorted(steps, reverse=True), signature
    return best and best[1]


def converted(value: Any, to: Any) -> Any:
    """A number, or a tuple of them, as a type of numba's; anything else unchanged."""
    from numba.core import types as numba_types
    from numba.np import numpy_support

    if isinstance(to, (numba_types.Number, numba_types.Boolean)):
        return scalars.cast(numpy_support.as_dtype(to))(value)
    if isinstance(to, numba_types.BaseTuple):
        parts = [converted(one, its) for one, its in zip(value, to.types, strict=True)]
        return type(value)(*parts) if isinstance(to, numba_types.BaseNamedTuple) else tuple(parts)
    return scalars.wrapped(value)


def runnable(dispatcher: Any, function_of: Callable[[Any], Callable[..., Any]]) -> Callable[..., Any]:
    """The function that runs in place of a kernel or of a function that it calls.

    Its `math` is CUDA's, and numba's stubs are ours. If the decorator named signatures, it converts its arguments and
    its result.

    Parameters
    ----------
    function_of
        Gives the functions that it calls, by their dispatchers.
    """
    function = dispatcher.py_func
    overloads = getattr(dispatcher, "overloads", {})
    for overload in overloads.values():
        _note_widths(function.__code__, getattr(overload, "type_annotation", None))
    names = {
        name: value if name == "__builtins__" else _in_kernel(value, function_of)
        for name, value in function.__globals__.items()
    }
    names.setdefault("print", scalars.printed)
    cells = tuple(_cell(cell, function_of) for cell in function.__closure__ or ())
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__, cells or None)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
    if getattr(dispatcher, "_can_compile", True) or not all(hasattr(one, "signature") for one in overloads.values()):
        return copy

    def call(*args: Any) -> Any:
        types = next(iter(overloads))
        if len(overloads) > 1:
            types = _closest(dispatcher, tuple(map(_type_in_kernel, args)), overloads) or types
        result = copy(*map(converted, args, types))
        return converted(result, overloads[types].signature.return_type)

    return call


def _cell(cell: CellType, function_of: Callable[[Any], Callable[..., Any]]) -> CellType:
    try:
        return CellType(_in_kernel(cell.cell_contents, function_of))
    except ValueError:  # empty
        return cell


def _in_kernel(value: Any, function_of: Callable[[Any], Callable[..., Any]]) -> Any:
    """What stands in a kernel for an object of its surroundings."""
    from numba.core import dispatcher, types
    from numba.np import numpy_support

    if id(value) in meanings:
        return meanings[id(value)][1]
    if isinstance(value, dispatcher.Dispatcher):
        return lambda *args, **kwargs: function_of(value)(*args, **kwargs)  # noqa: PLW0108 - when it is called
    if isinstance(value, (types.Number, types.Boolean)):
        return scalars.cast(numpy_support.as_dtype(value))
    known = scalars.in_kernel(value)
    if isinstance(known, ModuleType):
        return scalars.Inside(known, partial(_in_kernel, function_of=function_of))
    return known


def _note_widths(code: CodeType, typed: Any) -> None:
    """Note the integers that numba has seen in calls of `popc` and its like."""
    wanted = {id(stub) for stub, ours in meanings.values() if getattr(ours, "__name__", "") in _BY_WIDTH}
    for call, signature in (typed.calltypes if typed is not None else {}).items():
        function = typed.typemap.get(call.func.name) if getattr(call, "op", "") == "call" else None
        if id(getattr(function, "typing_key", None)) in wanted:
            widths[code, call.loc.line] = signature.args[0].bitwidth


def _type_in_kernel(value: Any) -> Any:
    """Numba's type of a value that a kernel passes to a function."""
    from numba.core import types
    from numba.np import numpy_support

    if isinstance(value, KernelArray):
        return types.Array(numpy_support.from_dtype(value.dtype), value.ndim, "C")
    return numpy_support.from_dtype(scalars.dtype_of(value))


def type_of(dispatcher: Any, value: Any) -> Any:
    """Numba's type of an argument; raises what numba raises for one that it cannot pass."""
    try:
        return dispatcher.typeof_pyval(value) if hasattr(dispatcher, "typeof_pyval") else None
    except ValueError as error:
        if isinstance(value, torch.Tensor):  # numba-cuda passes its address on, and numba knows no such type
            with_notes(error, messages.host_tensor_has_no_type(tuple(value.shape)))
        raise
