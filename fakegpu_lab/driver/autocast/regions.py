"""Turns the autocast dispatch key of our tensors on and off where a region begins and ends.

The key follows autocast's state for ``cuda``, which is torch's own, per thread: `torch.is_autocast_enabled("cuda")` and
`torch.get_autocast_dtype("cuda")` need no change, nor does code built on them (`torch.amp`, `torch.utils.checkpoint`,
`DataParallel`).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.autocast import casts, recurrent
from fakegpu_lab.driver.base.changes import begun, replaced
from fakegpu_lab.driver.base.privateuse1 import NAME

if TYPE_CHECKING:
    from collections.abc import Callable


_set_enabled: Callable[..., None] = torch.set_autocast_enabled
_is_enabled: Callable[[str], bool] = torch.is_autocast_enabled
_clear_cache: Callable[[], None] = torch.clear_autocast_cache
_libraries: list[Any] = []


def set_autocast_enabled(*args: Any, **kwargs: Any) -> None:
    """`torch.set_autocast_enabled`; the key of our tensors follows CUDA's state."""
    _set_enabled(*args, **kwargs)
    if len(args) + len(kwargs) == 1:  # without a device type, which from torch 2.15 on is the one that C++ knows us by
        _set_enabled("cuda", *args, **kwargs)
    _follow()


def clear_autocast_cache() -> None:
    """`torch.clear_autocast_cache`, also for the casts of device weights."""
    casts.cached.clear()
    _clear_cache()


def _follow() -> None:
    enabled = _is_enabled("cuda")
    if enabled and not _libraries:
        _register()
    _set_enabled(NAME, enabled)


def _register() -> None:
    _register_fallthrough()
    library: Any = torch.library.Library
    _libraries.append(library("aten", "IMPL"))
    for name, kernel in casts.kernels().items():
        _libraries[0].impl(name, kernel, "AutocastPrivateUse1")
    recurrent.register(_libraries[0])


@cache
def _register_fallthrough() -> None:
    """Let every op without a kernel fall through, as CUDA's key does; this stays for the rest of the process."""
    library: Any = torch.library.Library
    fallback = library("_", "IMPL")
    fallback.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    _keep_alive.append(fallback)


_keep_alive: list[Any] = []


def _begin() -> Callable[[], None]:
    """Follow CUDA's state, also in a region that is already open."""
    _follow()
    return _end


def _end() -> None:
    """Turn the key off, also within a region, and remove the kernels."""
    _set_enabled(NAME, False)
    casts.cached.clear()
    while _libraries:
        _libraries.pop()._destroy()


CHANGES = [
    *(
        replaced(f"{owner}.{function.__name__}", function, "the backend's autocast follows CUDA's")
        for owner in ("torch", "torch._C")
        for function in (set_autocast_enabled, clear_autocast_cache)
    ),
    begun(_begin, "a region may be open already"),
]
