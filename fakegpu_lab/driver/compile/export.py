"""FakeTensors and higher-order operators, with which `torch.export`, `make_fx` and FlexAttention trace.

A FakeTensor has a meta tensor's C++ half and returns its device itself. Python code sees ``cuda``; C++, which would
look for CUDA's device guard and abort the process, gets our own device. A higher-order operator (`cond`,
`flex_attention`) on device tensors runs its plain kernel, op by op, as it does on CUDA without compilation.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses import fake_tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from fakegpu_lab.driver.base.changes import added, item, patches, replaced, wrapped
from fakegpu_lab.driver.base.privateuse1 import NAME
from fakegpu_lab.driver.base.tensor import DEVICE_TENSORS, FakeCudaTensor
from fakegpu_lab.driver.tensor_api.conversion import cpp_device

if TYPE_CHECKING:
    from collections.abc import Callable


_device = torch.ops.prim.device.default
_PLAIN = torch._C.DispatchKey.CompositeExplicitAutograd
_OF_CUDA = {
    torch._C.DispatchKey.AutogradPrivateUse1: torch._C.DispatchKey.AutogradCUDA,
    torch._C.DispatchKey.PrivateUse1: torch._C.DispatchKey.CUDA,
}


def _torch_dispatch(original: Callable[..., Any]) -> Callable[..., Any]:
    """`FakeTensor.__torch_dispatch__`, which C++ asks for the device, and to which device tensors are plain tensors."""

    @functools.wraps(original)
    def torch_dispatch(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = original(func, [one for one in types if one not in DEVICE_TENSORS], args, kwargs or {})
        return cpp_device(result) if func is _device else result

    return torch_dispatch


def _shown(device: Any) -> torch.device:
    """A device as Python sees it; a backward formula passes C++'s."""
    given: torch.device = torch.device(device)
    if given.type != NAME:
        return given
    return torch.device("cuda", given.index) if given.index is not None else torch.device("cuda")


def _normalized(original: Callable[..., torch.device]) -> Callable[..., torch.device]:
    """`FakeTensor._normalize_fake_device`, to which a backward formula passes C++'s device."""
    return lambda device: original(_shown(device))


def _proxied(original: Callable[..., Any]) -> Callable[..., Any]:
    """`ProxyTorchDispatchMode.__torch_dispatch__`, whose graphs name CUDA where a formula in C++ passes its device."""

    @functools.wraps(original)
    def torch_dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        shown = [_shown(one) if isinstance(one, torch.device) else one for one in args]
        named = {key: _shown(one) if isinstance(one, torch.device) else one for key, one in (kwargs or {}).items()}
        return original(self, func, types, tuple(shown), named)

    return torch_dispatch


def _new(original: Callable[..., Any]) -> Callable[..., Any]:
    """`FakeTensor.__new__`, which normalizes by itself in torch 2.10."""

    @functools.wraps(original)
    def new(cls: Any, fake_mode: Any, elem: Any, device: Any, *args: Any, **kwargs: Any) -> Any:
        return original(cls, fake_mode, elem, _shown(device), *args, **kwargs)

    return new


def _check_for_subclass_arg(original: Callable[..., Any]) -> Callable[..., bool]:
    """Whether a FakeTensorMode tries a tensor's own class first: not for ours, which are plain tensors on CUDA."""

    def check_for_subclass_arg(x: object) -> bool:
        return type(x) is not FakeCudaTensor and original(x)

    return check_for_subclass_arg


def _run_fallback_kernel(original: Callable[..., Any]) -> Callable[..., Any]:
    """`fake_tensor.run_fallback_kernel`, which computes an op without a meta kernel on zeros, to see its results.

    As on CUDA, the zeros are on the device, and the kernel is launched there. torch's own turns dispatch to Python off,
    and so would make no device tensors.
    """

    @functools.wraps(original)
    def run_fallback_kernel(mode: Any, func: Any, flat_args: Any, args_spec: Any, error: BaseException) -> Any:
        fakes = [arg for arg in flat_args if mode.is_our_fake(arg)]
        if not any(fake.fake_device.type == "cuda" and fake.layout is torch.strided for fake in fakes):
            return original(mode, func, flat_args, args_spec, error)
        if torch.Tag.inplace_view in func.tags:
            raise error
        with _disable_current_modes():
            zeros = [_zeros(arg) if mode.is_our_fake(arg) else arg for arg in flat_args]
            args, kwargs = pytree.tree_unflatten(zeros, args_spec)
            result = func(*args, **kwargs)
        fake_of = {id(zero): arg for zero, arg in zip(zeros, flat_args, strict=True)}
        memory = {id(zero._buffer) for zero in zeros if isinstance(zero, FakeCudaTensor)}

        def faked(value: Any) -> Any:
            if id(value) in fake_of or not isinstance(value, torch.Tensor):
                return fake_of.get(id(value), value)
            if isinstance(value, FakeCudaTensor) and id(value._buffer) in memory:
                raise error  # a view, which a new FakeTensor would not be
            return mode.fake_tensor_converter.from_real_tensor(mode, value)

        return pytree.tree_map(faked, result)

    return run_fallback_kernel


def _zeros(fake: Any) -> torch.Tensor:
    """A FakeTensor's twin with values."""
    twin = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.fake_device)
    return twin.zero_()


def _dispatch(original: Callable[..., Any]) -> Callable[..., Any]:
    """`HigherOrderOperator.dispatch`: CUDA's kernel, or else the plain one, is the rule for device tensors and ours."""

    @functools.wraps(original)
    def dispatch(self: Any, dispatch_key: Any, /, *args: Any, **kwargs: Any) -> Any:
        kernel = self.py_kernels.get(torch._C.DispatchKey.CUDA) or self.py_kernels.get(_PLAIN)
        if FakeCudaTensor not in self.python_key_table and kernel is not None:
            patches.set_item(self.python_key_table, FakeCudaTensor, kernel)
        of_cuda = _OF_CUDA.get(dispatch_key)
        if of_cuda in self.py_kernels and dispatch_key not in self.py_kernels:
            patches.set_item(self.py_kernels, dispatch_key, self.py_kernels[of_cuda])
        return original(self, dispatch_key, *args, **kwargs)

    return dispatch


def _of_cuda(answer: Callable[..., Any]) -> Callable[..., Any]:
    return lambda args: cpp_device(answer(args))


_FAKE = "torch._subclasses.fake_tensor.FakeTensor"
_SHOWN = "a traced tensor shows the device that the program named"
CHANGES = [
    wrapped(
        "torch.fx.experimental.proxy_tensor.HANDLED_TYPES",
        lambda types: (*types, *DEVICE_TENSORS),
        "on CUDA these are plain tensors; `make_fx` leaves out what is done to subclasses",
    ),
    item("torch._subclasses.fake_tensor._DISPATCH_META_HANDLERS", _device, _of_cuda, _SHOWN),
    wrapped(f"{_FAKE}.__torch_dispatch__", lambda old: staticmethod(_torch_dispatch(old)), _SHOWN),
    added(f"{_FAKE}.is_cuda", property(lambda self: self.device.type == "cuda"), _SHOWN),
    replaced(
        f"{_FAKE}Mode.avoid_device_init",
        property(lambda self: True),
        "constants are fake before they move to the device, not after",
    ),
    wrapped("torch.fx.experimental.proxy_tensor.ProxyTorchDispatchMode.__torch_dispatch__", _proxied, _SHOWN),
    wrapped(f"{_FAKE}._normalize_fake_device", lambda old: staticmethod(_normalized(old)), _SHOWN, optional=True),
    *(
        ()
        if hasattr(fake_tensor.FakeTensor, "_normalize_fake_device")
        else (wrapped(f"{_FAKE}.__new__", lambda old: staticmethod(_new(old)), _SHOWN),)
    ),
    wrapped(
        "torch._subclasses.fake_tensor._check_for_subclass_arg",
        _check_for_subclass_arg,
        "a device tensor is no subclass",
        optional=True,
    ),
    wrapped(
        "torch._subclasses.fake_tensor.run_fallback_kernel",
        _run_fallback_kernel,
        "an op without a meta kernel runs here",
    ),
    wrapped("torch._ops.HigherOrderOperator.dispatch", _dispatch, "the plain kernel is the rule for device tensors"),
]
