"""Tensors of other classes around device tensors: wrapper subclasses, and the wrappers of functorch's levels.

Both have a C++ half of their own, with a device. For a wrapper subclass (jagged tensors, quantized weights, classes
that users derive from torch.Tensor) it must be our C++ device: autograd asks for the guard of the device, a CPU build
has none for CUDA, and the process would abort. Python code sees ``cuda`` all the same.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.changes import patches, replaced, wrapped
from fakegpu_lab.driver.base.patches import Patches
from fakegpu_lab.driver.base.privateuse1 import NAME, as_cuda_device
from fakegpu_lab.driver.tensor_api.conversion import cpp_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_base: Any = torch._C.TensorBase
_make_wrapper_subclass: Any = torch.Tensor._make_wrapper_subclass
_DEVICE, _DISPATCH_DEVICE = 6, 10
"""Positions in `_make_wrapper_subclass` after the class (torch/csrc/autograd/python_variable.cpp)."""


def device(self: torch.Tensor) -> torch.device:
    """`Tensor.device`, ``cuda`` for our C++ device."""
    return as_cuda_device(_base.device.__get__(self))


def is_cuda(self: torch.Tensor) -> bool:
    """`Tensor.is_cuda`, also of our C++ device."""
    return _base.device.__get__(self).type in (NAME, "cuda")


_PROPERTIES = {"device": property(device), "is_cuda": property(is_cuda)}


@functools.wraps(_make_wrapper_subclass)
def make_wrapper_subclass(cls: type[torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
    """`Tensor._make_wrapper_subclass`; a class with a device tensor inside shows the tensor's device."""
    where = args[_DEVICE] if len(args) > _DEVICE else kwargs.get("device")
    if where is None or torch.device(where).type not in ("cuda", NAME):
        return _make_wrapper_subclass(cls, *args, **kwargs)  # type: ignore[no-any-return]
    if len(args) > _DEVICE:
        args = (*args[:_DEVICE], cpp_device(where), *args[_DEVICE + 1 :])
    else:
        kwargs["device"] = cpp_device(where)
    if len(args) > _DISPATCH_DEVICE:  # C++ would get the device that the class shows
        args = (*args[:_DISPATCH_DEVICE], False, *args[_DISPATCH_DEVICE + 1 :])
    elif kwargs.get("dispatch_device"):
        kwargs["dispatch_device"] = False
    for name, value in _PROPERTIES.items():
        if getattr(cls, name) is getattr(torch.Tensor, name):
            patches.set(cls, name, value)
    return _make_wrapper_subclass(cls, *args, **kwargs)  # type: ignore[no-any-return]


class _Levels:
    """Makes torch.Tensor show ``cuda`` while a functorch transform runs, whose wrappers are plain torch.Tensors."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0  # in all threads together
        self._patches = Patches()

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Within this context, there is one more level."""
        with self._lock:
            if not self._depth:
                for name, value in _PROPERTIES.items():
                    self._patches.set(torch.Tensor, name, value)
            self._depth += 1
        try:
            yield
        finally:
            with self._lock:
                self._depth -= 1
                if not self._depth:
                    self._patches.undo()

    def around(self, increment_nesting: Callable[..., Any]) -> Callable[..., Any]:
        """One of functorch's context managers, such as `grad_increment_nesting`, inside `entered`."""

        @contextlib.contextmanager
        def nesting(*args: Any, **kwargs: Any) -> Iterator[Any]:
            with self.entered(), increment_nesting(*args, **kwargs) as level:
                yield level

        return nesting


_levels = _Levels()

_NESTINGS = (
    "torch._functorch.vmap.vmap_increment_nesting",
    "torch._functorch.eager_transforms.grad_increment_nesting",
    "torch._functorch.eager_transforms.jvp_increment_nesting",
)


CHANGES = [
    replaced(
        "torch.Tensor._make_wrapper_subclass",
        staticmethod(make_wrapper_subclass),
        "a library's wrapper shows the device",
    ),
    *(wrapped(path, _levels.around, "functorch's wrappers show the device") for path in _NESTINGS),
]
