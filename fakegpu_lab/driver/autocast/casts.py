"""The kernels with which ``torch.autocast("cuda")`` casts the arguments of ops on a device.

As on CUDA, a region turns a dispatch key on for its thread, and the kernels registered for that key cast the arguments
and call the op again with the key off. This happens above autograd, so that the casts are differentiated and tensors
saved for backward already have the lower precision. The key here is AutocastPrivateUse1 (see `base.privateuse1`); it
follows the state of ``cuda``, which is torch's own. Outside a region none of this code runs.

Follows aten/src/ATen/autocast_mode.{h,cpp} of PyTorch 2.14 (whose cast of a weight under `no_grad`, unlike that of
2.12 and older, can still be differentiated when it comes from the cache).
"""

from __future__ import annotations

import weakref
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.autocast import op_lists as lists
from fakegpu_lab.driver.base.privateuse1 import NAME
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.cost.op import Op
from fakegpu_lab.user_code.environment import DEBUG

if TYPE_CHECKING:
    from collections.abc import Callable

    Kernel = Callable[..., Any]
    Cast = Callable[[tuple[Any, ...], torch.dtype], list[Any]]
    Body = Callable[[tuple[Any, ...], dict[str, Any]], Any]

_OURS = torch._C.DispatchKey.AutocastPrivateUse1  # type: ignore[attr-defined]
_CUDA = torch._C.DispatchKey.AutocastCUDA
_exclude: Callable[[Any, bool], None] = torch._C._dispatch_tls_set_dispatch_key_excluded
_function_mode_enabled = torch._C._is_torch_function_mode_enabled
_no_function_modes = torch._C.DisableTorchFunction
_region_dtype: Callable[[str], torch.dtype] = torch.get_autocast_dtype
_cache_enabled: Callable[[], bool] = torch.is_autocast_cache_enabled
_CASTS: dict[torch.dtype, Callable[[torch.Tensor], torch.Tensor]] = {
    torch.float16: torch._C.TensorBase.half,
    torch.bfloat16: torch._C.TensorBase.bfloat16,
    torch.float32: torch._C.TensorBase.float,
}
_FLOAT = torch.float32
_FLOATS = frozenset((torch.float16, torch.bfloat16, torch.float32))

cached: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}
"""Weights and their casts, by the weight's id, for all threads, until one of them leaves its outermost region."""


def eligible(value: Any) -> bool:
    """Whether autocast casts `value` at all: floating-point tensors on a device, except doubles."""
    if value.__class__ is FakeCudaTensor and value.dtype in _FLOATS:
        return True
    return (
        isinstance(value, torch.Tensor)  # float8, or a wrapper of functorch's
        and value.device.type in ("cuda", NAME)
        and value.is_floating_point()
        and value.dtype is not torch.float64
    )


def lower_precision(tensor: torch.Tensor) -> torch.dtype:
    """The dtype in which an op on the list LOWER_PRECISION_FP sees `tensor`, inside or outside a region."""
    return _region_dtype("cuda") if torch.is_autocast_enabled("cuda") and eligible(tensor) else tensor.dtype


def cast(value: Any, dtype: torch.dtype) -> Any:
    """`value` in `dtype` if it is an eligible tensor (``cached_cast``); a weight's cast is cached for its next use."""
    was = value.dtype
    if was is dtype or not eligible(value):
        return value
    convert = _CASTS.get(dtype)
    if (
        value.requires_grad
        and was is _FLOAT
        and value.is_leaf
        and dtype is _region_dtype("cuda")
        and not value._is_view()
        and _cache_enabled()
        and not torch.is_inference_mode_enabled()
    ):
        known = cached.get(id(value))
        if known is not None and known[0]() is value:
            return known[1]
        with torch.enable_grad():
            copy = convert(value) if convert is not None else torch._C.TensorBase.to(value, dtype)
        cached[id(value)] = weakref.ref(value), copy
        return copy
    return convert(value) if convert is not None else torch._C.TensorBase.to(value, dtype)


def widest(values: list[Any]) -> torch.dtype:
    """The dtype that the policy ``promote`` casts an op's tensors to (``promote_type``)."""
    lower = current = _region_dtype("cuda")
    for value in values:
        if current is torch.float64:
            raise RuntimeError("promote type is double in at::autocast::prioritize")
        if not eligible(value):
            continue
        dtype = value.dtype
        if torch.float32 in (current, dtype):
            current = torch.float32
        elif not current is dtype is lower:
            raise RuntimeError("Unexpected floating ScalarType in at::autocast::prioritize")
    return current


def _arguments(func: Any) -> Cast:
    """A function that casts the tensors among an op's positional arguments; no op on the lists has others."""
    types = [str(a.type) for a in func._schema.arguments]
    tensors = tuple(i for i, t in enumerate(types) if t in ("Tensor", "Optional[Tensor]"))
    lists = tuple(i for i, t in enumerate(types) if t == "List[Tensor]")

    def cast_all(args: tuple[Any, ...], dtype: torch.dtype) -> list[Any]:
        new = list(args)
        count = len(new)
        for position in tensors:
            if position < count:
                value = new[position]
                if value is not None and value.dtype is not dtype:
                    new[position] = cast(value, dtype)
        for position in lists:
            if position < count:
                new[position] = [cast(item, dtype) for item in new[position]]
        return new

    return cast_all


def _to_region_dtype(func: Any, call: Kernel) -> Body:
    cast_all = _arguments(func)
    return lambda args, kwargs: call(*cast_all(args, _region_dtype("cuda")), **kwargs)


def _to_fp32(func: Any, call: Kernel) -> Body:
    cast_all = _arguments(func)
    return lambda args, kwargs: call(*cast_all(args, _FLOAT), **kwargs)


def _to_widest(func: Any, call: Kernel) -> Body:
    cast_all = _arguments(func)
    # optional tensors (a bias) are cast, but do not take part in the choice of the dtype
    deciding = [i for i, a in enumerate(func._schema.arguments) if str(a.type) == "Tensor"]

    def body(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return call(*cast_all(args, widest([args[i] for i in deciding])), **kwargs)

    return body


def _with_fp32_result(func: Any, call: Kernel) -> Body:
    positions = {a.name: i for i, a in enumerate(func._schema.arguments) if not a.kwarg_only}
    position = positions.get("dtype", len(positions))

    def body(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if eligible(args[0]):
            given = args[position] if position < len(args) else kwargs.get("dtype")
            if given is None:
                kwargs["dtype"] = _FLOAT
                args = args[:position]
        return call(*args, **kwargs)

    return body


def _with_appended_dtype(func: Any, call: Kernel) -> Body:
    defaults = [a.default_value for a in func._schema.arguments]

    def body(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        filled = (*args, *defaults[len(args) :])  # torch omits arguments that have their default value
        dtype = _FLOAT if eligible(args[0]) else args[0].dtype
        return call(*filled, **kwargs, dtype=dtype)

    return body


def _banned(message: str) -> Body:
    def body(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise RuntimeError(message)

    return body


def _kernel(body: Body) -> Kernel:
    """`body` with autocast off, as a kernel for the dispatcher."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        _exclude(_OURS, True)
        _exclude(_CUDA, True)
        try:
            if _function_mode_enabled():
                with _no_function_modes():  # the inner call is not the user's
                    return body(args, kwargs)
            return body(args, kwargs)
        except Exception as error:  # the traceback ends at the user's line and holds no casts: see `dispatcher.run`
            if DEBUG:
                raise
            raise error.with_traceback(None) from None
        finally:
            _exclude(_OURS, False)
            _exclude(_CUDA, False)

    return kernel


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _call(func: Any) -> Kernel:
    """The cheapest function that calls an overload again."""
    op = Op(func)
    if op.call is func._op and hasattr(torch._C._nn, op.name) and "reduction" not in op.arguments:
        return getattr(torch._C._nn, op.name)  # type: ignore[no-any-return]
    return op.call


_POLICIES: tuple[tuple[list[str], Callable[[Any, Kernel], Body]], ...] = (
    (lists.LOWER_PRECISION_FP, _to_region_dtype),
    (lists.FP32, _to_fp32),
    (lists.FP32_SET_OPT_DTYPE, _with_fp32_result),
    (lists.PROMOTE, _to_widest),
)


@cache
def kernels() -> dict[str, Kernel]:
    """The kernels by overload, for those on CUDA's lists that the installed torch has (versions differ)."""
    bodies: dict[str, Body] = {}
    for names, policy in _POLICIES:
        for name in filter(_has_cuda_kernel, names):
            func = _overload(name)
            bodies[name] = policy(func, _call(func))
    for name, target in lists.FP32_APPEND_DTYPE.items():
        bodies[name] = _with_appended_dtype(_overload(name), _overload(target)._op)
    for name, message in lists.BANNED.items():
        bodies[name] = _banned(message)
    return {name: _kernel(body) for name, body in bodies.items()}


def _has_cuda_kernel(name: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "AutocastCUDA")
