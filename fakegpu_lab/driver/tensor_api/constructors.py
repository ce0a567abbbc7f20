"""Gives constructors the device that C++ expects: the index of ``device="cuda"``, or the name of our C++ device.

Some would ask C++'s CUDA device guard for the current device, and a CPU build has no such guard; some compare
``device=`` with the device of ``out=``. (All other factories reach `dispatch.registered_kernels` without an index, and
need nothing.)
"""

from __future__ import annotations

import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._device

from fakegpu_lab.driver.base import cuda_messages, current, not_simulated
from fakegpu_lab.driver.base.changes import begun, wrapped
from fakegpu_lab.driver.base.privateuse1 import CPP_DEVICES, CUDA_DEVICES, DeviceClass
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.tensor_api import conversion, dlpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_FUNCTIONS = ("tensor", "as_tensor", "asarray", "frombuffer")
_SPARSE = ("sparse_coo_tensor", "sparse_csr_tensor", "sparse_csc_tensor", "sparse_bsr_tensor", "sparse_bsc_tensor",
           "sparse_compressed_tensor")  # fmt: skip
_GUARDED = (*_SPARSE, "range")
"""Constructors that enter a device's guard first: they get our C++ device."""
_WITH_OUT = ("arange", "empty", "eye", "full", "linspace", "logspace", "normal", "ones", "rand", "randint", "randn",
             "randperm", "range", "zeros")  # fmt: skip
_FREQUENCIES = ("fftfreq", "rfftfreq")
_METHODS = ("new_tensor",)
_ON_DEVICE = "_tensor_on_device"
"""The attribute of other libraries' arrays on a device that stands for the CUDA array interface: their memory."""


def with_index(where: Any) -> Any:
    """``cuda`` as ``cuda:<current>``; any other device unchanged."""
    if where.__class__ is str:
        if where != "cuda":
            return where
    elif not (where.__class__ is DeviceClass and where.type == "cuda" and where.index is None):
        return where
    return CUDA_DEVICES[current.device().index]


def _indexed(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def constructor(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        data = args[0] if args else None
        if data.__class__ is dlpack.Capsule:
            data = data.take()
            args = (data, *args[1:])
        elif hasattr(data, _ON_DEVICE):
            data = getattr(data, _ON_DEVICE)
            args = (data, *args[1:])
        if data.__class__ is FakeCudaTensor:  # C++ compares the devices, to see whether it must copy
            return _from_tensor(function, args, kwargs)
        if kwargs.get("device") is not None:
            kwargs["device"] = with_index(kwargs["device"])
        return function(*args, **kwargs)

    return constructor


def _from_tensor(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kwargs.get("device") is not None:
        kwargs["device"] = conversion.cpp_device(kwargs["device"])
    try:
        return function(*args, **kwargs)
    except (RuntimeError, ValueError) as error:
        raise cuda_messages.with_cuda_name(error) from None


def _is_ours(where: Any) -> bool:
    return where is not None and current.is_ours(torch.device(where))


def _nested(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def nested_tensor(*args: Any, **kwargs: Any) -> Any:
        if _is_ours(kwargs.get("device")):
            raise not_simulated.error("strided nested tensors")
        return function(*args, **kwargs)

    return nested_tensor


def _with_out(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, whose ``out=`` may be on a device.

    C++ compares the types of ``device=`` and of ``out=``, ignores the index and says which differ
    (torch/csrc/autograd/python_torch_functions_manual.cpp, check_out_type_matches).
    """

    @functools.wraps(function)
    def constructor(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if not kwargs:
            return function(*args)
        if "out" not in kwargs:
            return function(*args, **kwargs)
        if _is_ours(kwargs.get("device")) and kwargs["out"].__class__ is FakeCudaTensor:
            kwargs["device"] = CPP_DEVICES[0]
        try:
            return function(*args, **kwargs)
        except RuntimeError as error:
            raise cuda_messages.with_cuda_name(error) from None

    return constructor


@contextmanager
def _current(index: int) -> Iterator[None]:
    """Make that device the current one, as C++'s guard does."""
    before, current.thread.index = current.thread.index, index
    try:
        yield
    finally:
        current.thread.index = before


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which C++ runs under a guard of ``device=``: without data, the current device decides."""

    @functools.wraps(function)
    def constructor(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if not _is_ours(kwargs.get("device")):
            return function(*args, **kwargs)
        kwargs["device"] = where = conversion.cpp_device(kwargs["device"])
        with _current(where.index):
            return function(*args, **kwargs)

    return constructor


def _coalesced(function: Callable[..., Any]) -> Callable[..., Any]:
    """`sparse_coo_tensor`: C++ checks that indices are coalesced by a kernel that only the CPU and CUDA have."""

    @functools.wraps(function)
    def constructor(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        checks = kwargs.get("check_invariants")
        if checks is None:
            checks = torch.sparse.check_sparse_tensor_invariants.is_enabled()  # type: ignore[no-untyped-call]
        if checks and kwargs.get("is_coalesced"):
            made = function(*args, **{**kwargs, "is_coalesced": None})
            if made.__class__ is FakeCudaTensor:
                torch._validate_sparse_coo_tensor_args(made._indices(), made._values(), made.shape, True)
                kwargs["check_invariants"] = False
        return function(*args, **kwargs)

    return constructor


def _new(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Tensor.new`, which C++ runs under a device guard for the tensor's device (THPVariable_new)."""

    @functools.wraps(original)
    def new(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not self.is_cuda:
            return original(self, *args, **kwargs)
        if kwargs.get("device") is not None:
            kwargs["device"] = conversion.cpp_device(kwargs["device"])
        if len(args) == 1 and isinstance(args[0], (list, tuple)) and not isinstance(args[0], torch.Size):
            return torch.tensor(args[0], dtype=self.dtype, device=kwargs.get("device", self.device))
        try:
            with _current(self.device.index):
                return original(self, *args, **kwargs)
        except (RuntimeError, TypeError) as error:
            raise cuda_messages.with_cuda_name(error) from None

    return new


def _device_context(original: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.utils._device.DeviceContext.__torch_function__` (``with torch.device("cuda")``), index filled in.

    It gets torch's own functions, not our wrappers.
    """

    def torch_function(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.device.type != "cuda":
            return original(self, func, types, args, kwargs)
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is None and func in torch.utils._device._device_constructors():
            data = args[0] if args else None
            beside = FakeCudaTensor in (data.__class__, kwargs.get("out").__class__)
            devices = CPP_DEVICES if beside or func.__name__ in _GUARDED else CUDA_DEVICES
            index = self.device.index
            kwargs["device"] = where = devices[current.device().index if index is None else index]
            if func.__name__ in _GUARDED:
                with _current(where.index):
                    return original(self, func, types, args, kwargs)
        return original(self, func, types, args, kwargs)

    return torch_function


CHANGES = [
    wrapped("torch._C._nested.nested_tensor", _nested, "nested tensors of device tensors"),
    begun(
        lambda: torch.utils._device._device_constructors() and None,
        "cached for good, so it must see torch's functions, not our wrappers",
    ),
    *(wrapped(f"torch.{name}", _indexed, "device='cuda' is the current device") for name in _FUNCTIONS),
    *(wrapped(f"torch.{name}", _guarded, "device='cuda' is the current device") for name in _GUARDED),
    wrapped("torch.sparse_coo_tensor", _coalesced, "device='cuda' is the current device"),
    *(wrapped(f"torch.{name}", _with_out, "the device of out=") for name in _WITH_OUT),
    *(wrapped(f"torch.fft.{name}", _with_out, "the device of out=") for name in _FREQUENCIES),
    *(wrapped(f"torch.Tensor.{name}", _indexed, "device='cuda' is the current device") for name in _METHODS),
    wrapped("torch.Tensor.new", _new, "a tensor on the device"),
    wrapped("torch.utils._device.DeviceContext.__torch_function__", _device_context, "with torch.device('cuda')"),
]
