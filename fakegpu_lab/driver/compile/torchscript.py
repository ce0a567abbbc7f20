"""TorchScript: models on a device run and move, are loaded from files of the CPU, and are not saved.

C++ writes and reads the files, and the C++ halves of our tensors have no values. Texts show ``cuda`` in place of the
name of our C++ device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import current, not_simulated
from fakegpu_lab.driver.base.changes import replaced, wrapped
from fakegpu_lab.driver.base.privateuse1 import NAME

if TYPE_CHECKING:
    from collections.abc import Callable


_PRINTED: tuple[type, ...] = (torch._C.Graph, torch._C.Node, torch._C.Value)
_COMPILED: tuple[type, ...] = (torch._C.ScriptMethod, torch._C.ScriptFunction)


def _saves(save: Callable[..., Any]) -> Callable[..., Any]:
    def saved(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return save(self, *args, **kwargs)
        except RuntimeError as error:
            if NAME not in str(error):
                raise
            raise not_simulated.error("TorchScript files") from None

    return saved


def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
    """`torch.jit.load`, which reads a file onto the CPU and moves the model."""
    if map_location is None or not current.is_ours(torch.device(map_location)):
        return _load(f, map_location, *args, **kwargs)  # type: ignore[no-untyped-call]
    return _load(f, "cpu", *args, **kwargs).to(map_location)  # type: ignore[no-untyped-call]


_load = torch.jit.load


def apply(self: Any, fn: Any, recurse: bool = True) -> Any:
    """`ScriptModule._apply`, which gives C++ the new C++ tensor of a moved parameter (`conversion.become`)."""
    parameters = list(self._parameters.items())
    _apply(self, fn, recurse)  # type: ignore[no-untyped-call]
    for name, parameter in parameters:
        self._c.setattr(name, parameter)
    return self


_apply = torch.nn.Module._apply


def _renaming(original: Callable[..., str]) -> Callable[..., str]:
    def text(self: Any, *args: Any, **kwargs: Any) -> str:
        return original(self, *args, **kwargs).replace(NAME, "cuda")

    return text


_TEXTS = "the texts of graphs and of compiled code name CUDA"
CHANGES = [
    *(
        wrapped(f"torch._C.{owner}.{name}", _saves, "files of device tensors are refused")
        for owner in ("ScriptModule", "ScriptFunction")
        for name in ("save", "save_to_buffer")
    ),
    replaced("torch.jit.load", load, "a file is read onto the CPU, and the model moved"),
    replaced("torch.jit.ScriptModule._apply", apply, "scripted modules move to the device"),
    *(
        wrapped(f"torch._C.{cls.__name__}.{name}", _renaming, _TEXTS)
        for cls in _PRINTED
        for name in ("__str__", "__repr__")
        if name in vars(cls)
    ),
    *(wrapped(f"torch._C.{cls.__name__}.code", lambda old: property(_renaming(old.fget)), _TEXTS) for cls in _COMPILED),
]
