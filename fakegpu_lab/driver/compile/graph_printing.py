"""The texts of TorchScript's graphs, with ``cuda`` in place of the name of our C++ device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.changes import wrapped
from fakegpu_lab.driver.base.privateuse1 import NAME

if TYPE_CHECKING:
    from collections.abc import Callable


_PRINTED: tuple[type, ...] = (torch._C.Graph, torch._C.Node, torch._C.Value)
_HAS_CODE: tuple[type, ...] = (torch._C.ScriptMethod, torch._C.ScriptFunction)


def _renaming(original: Callable[..., str]) -> Callable[..., str]:
    def text(self: Any, *args: Any, **kwargs: Any) -> str:
        return original(self, *args, **kwargs).replace(NAME, "cuda")

    return text


_WHY = "the texts of graphs name CUDA"
CHANGES = [
    *(
        wrapped(f"torch._C.{cls.__name__}.{name}", _renaming, _WHY)
        for cls in _PRINTED
        for name in ("__str__", "__repr__")
        if name in vars(cls)
    ),
    *(wrapped(f"torch._C.{cls.__name__}.code", lambda old: property(_renaming(old.fget)), _WHY) for cls in _HAS_CODE),
]
