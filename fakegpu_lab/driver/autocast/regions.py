"""Where regions begin and end: autocast's state for ``cuda``, followed by the dispatch key that acts on our tensors.

The state is torch's own, per thread: `torch.is_autocast_enabled("cuda")` and `torch.get_autocast_dtype("cuda")` need no
change, nor does what is built on them (`torch.amp`, `torch.utils.checkpoint`, `DataParallel`).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.autocast import casts, recurrent
from fakegpu_lab.driver.base.privateuse1 import NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.base.patches import Patches

_set_enabled: Callable[..., None] = torch.set_autocast_enabled
_is_enabled: Callable[[str], bool] = torch.is_autocast_enabled
_clear_cache: Callable[[], None] = torch.clear_autocast_cache
_libraries: list[Any] = []


def set_autocast_enabled(*args: Any, **kwargs: Any) -> None:
    """`torch.set_autocast_enabled`; CUDA's state turns the key of our tensors on and off with it."""
    _set_enabled(*args, **kwargs)
    if len(args) + len(kwargs) == 1:  # without a device type, which from torch 2.15 on is the one that C++ knows us by
        _set_enabled("cuda", *args, **kwargs)
    _follow()


def clear_autocast_cache() -> None:
    """`torch.clear_autocast_cache`, of the casts of device weights as well."""
    casts.cached.clear()
    _clear_cache()


def _follow() -> None:
    enabled = _is_enabled("cuda")
    if enabled and not _libraries:
        _register()
    _set_enabled(NAME, enabled)


def _register() -> None:
    _pass_others_on()
    library: Any = torch.library.Library
    _libraries.append(library("aten", "IMPL"))
    for name, kernel in casts.kernels().items():
        _libraries[0].impl(name, kernel, "AutocastPrivateUse1")
    recurrent.register(_libraries[0])


@cache
def _pass_others_on() -> None:
    """Let every op without a kernel pass, as CUDA's key does; for the rest of the process, as the key itself."""
    library: Any = torch.library.Library
    fallback = library("_", "IMPL")
    fallback.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    _keep_alive.append(fallback)


_keep_alive: list[Any] = []


def install(patches: Patches) -> None:
    """Follow CUDA's state, also where a region is open already."""
    for owner in (torch, torch._C):
        patches.set(owner, "set_autocast_enabled", set_autocast_enabled)
        patches.set(owner, "clear_autocast_cache", clear_autocast_cache)
    _follow()


def uninstall() -> None:
    """Turn the key off, also within a region, and take the kernels out."""
    _set_enabled(NAME, False)
    casts.cached.clear()
    while _libraries:
        _libraries.pop()._destroy()
