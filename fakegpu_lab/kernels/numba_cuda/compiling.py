"""numba's own compiler, up to the point where it needs a card: a kernel that numba would refuse fails in numba's words.

`compile_cuda` types the function and lowers it to LLVM. What it makes is not used: the kernel runs as Python. numba
takes 0.1 s for a kernel, and a second for the first one.
"""

from __future__ import annotations

from contextlib import contextmanager
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.tensor_api import dlpack
from fakegpu_lab.hardware.errors import with_notes
from fakegpu_lab.kernels.numba_cuda import messages, scalars

if TYPE_CHECKING:
    from collections.abc import Iterator

replaced: dict[str, tuple[Any, Any]] = {}
"""By names in `numba.cuda`: numba's stub (None if it has none), which is all that its compiler knows, and ours."""
_CAPABILITY = 8, 0
"""The compute capability that numba compiles for: every version of numba knows it."""


def _numba_cuda() -> Any:
    import numba.cuda

    return numba.cuda


@contextmanager
def _stubs() -> Iterator[None]:
    """`numba.cuda` as its compiler needs it."""
    module = _numba_cuda()
    try:
        for name, (stub, _) in replaced.items():
            setattr(module, name, stub)
        yield
    finally:
        for name, (_, ours) in replaced.items():
            setattr(module, name, ours)


def compiled(dispatcher: Any, types: tuple[Any, ...]) -> None:
    """Let numba compile a kernel for those argument types; raises numba's errors."""
    if not hasattr(dispatcher, "targetoptions"):
        return  # of numba's own simulator, which compiles nothing
    known = dispatcher.overloads
    if types in known:
        return
    if not dispatcher._can_compile:  # the decorator named the signatures
        if not any(_fits(dispatcher, types, signature) for signature in known):
            raise TypeError(f"No matching definition for argument type(s) {', '.join(map(str, types))}")
        return
    from numba.core import errors
    from numba.core import types as numba_types
    from numba.cuda.compiler import compile_cuda

    options = {name: dispatcher.targetoptions.get(name) for name in ("debug", "fastmath")}
    # Not the warp's size: the user's own constant 32 is the same object.
    stubs = {id(ours): stub for stub, ours in replaced.values() if stub is not None and not isinstance(ours, int)}
    with _stubs():
        try:
            result = compile_cuda(
                _with_globals(dispatcher.py_func, stubs), numba_types.void, types, cc=_CAPABILITY, **options
            )
        except errors.NumbaError as error:
            messages.not_compiled(error)
            raise error.with_traceback(None) from None  # its text has the user's line
        except AttributeError as error:
            messages.not_compiled(error)
            raise
    known[types] = result


def _fits(dispatcher: Any, types: tuple[Any, ...], signature: tuple[Any, ...]) -> bool:
    """Whether arguments of `types` can be passed for a signature (numba/core/dispatcher.py)."""
    convertible = dispatcher.typingctx.can_convert
    return len(types) == len(signature) and all(
        convertible(given, wanted) is not None for given, wanted in zip(types, signature, strict=True)
    )


def runnable(function: FunctionType) -> FunctionType:
    """The function that runs in place of a kernel: its `math` is CUDA's, and numba's stubs are ours."""
    table = {id(stub): ours for stub, ours in replaced.values() if stub is not None}
    return _with_globals(function, table, math=True)


def _with_globals(function: FunctionType, table: dict[int, Any], *, math: bool = False) -> FunctionType:
    """The function with some of the objects that its globals name exchanged."""
    names = function.__globals__
    if math:
        new = {name: table.get(id(value)) or scalars.in_kernel(value) for name, value in names.items()}
        new.setdefault("print", scalars.printed)
    else:
        new = {name: table.get(id(value), value) for name, value in names.items()}
    copy = FunctionType(function.__code__, new, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
    return copy


def type_of(dispatcher: Any, value: Any) -> Any:
    """Numba's type of an argument; raises what numba raises for one that it cannot pass."""
    if isinstance(value, FakeCudaTensor):
        return array_type(value)
    try:
        return dispatcher.typeof_pyval(value) if hasattr(dispatcher, "typeof_pyval") else None
    except ValueError as error:
        if isinstance(value, torch.Tensor):  # numba-cuda passes its address on, and numba knows no such type
            with_notes(error, messages.host_tensor_has_no_type(tuple(value.shape)))
        raise


def array_type(tensor: FakeCudaTensor) -> Any:
    """The type of an array with the tensor's ``__cuda_array_interface__``."""
    from numba.core import types as numba_types
    from numba.np import numpy_support

    try:
        dtype = numpy_support.from_dtype(tensor._inner.new_empty(0, device="cpu").numpy().dtype)
    except TypeError:
        raise TypeError(
            f"numba has no type for the elements of a tensor of {tensor.dtype}: use float32 or float16."
        ) from None
    strides = tensor.stride()
    broadcast = 0 in strides and tensor.numel() > 0
    if tensor.is_contiguous() and not broadcast:
        layout = "C"
    elif tensor.dim() > 1 and tensor.permute(*reversed(range(tensor.dim()))).is_contiguous() and not broadcast:
        layout = "F"
    else:
        layout = "A"
    return numba_types.Array(dtype, tensor.dim(), layout)


def check_exported(tensor: FakeCudaTensor) -> None:
    """Raise what `Tensor.__cuda_array_interface__` raises for a tensor whose memory it does not give away."""
    dlpack.exported_interface(tensor)
