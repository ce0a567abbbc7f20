"""Initialises CUDA, and forbids it in forked processes.

torch initialises CUDA at its first real use (`torch.cuda._lazy_init`), and then runs the calls queued before, such as
seeds. A process forked after the first CUDA call may not use CUDA (`forked_child` of torch/csrc/cuda/Module.cpp).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base import cuda_messages, current
from fakegpu_lab.driver.base.changes import begun, in_cuda_builds, replaced, wrapped
from fakegpu_lab.hardware.catalogue.visible_devices import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable

BAD_FORK = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' "
    "start method"
)

_CUDA = 1
"""``c10::DeviceType::CUDA``."""
_poisoned = False
_in_bad_fork = False


def poison_fork() -> None:
    """Remember that CUDA was called, so that a process forked from now on may not use it."""
    global _poisoned
    _poisoned = True


def _forked_child() -> None:
    global _in_bad_fork
    if _poisoned and current.machine is not None:
        _in_bad_fork = True
        current.ready = False
        current.machine.retire(BAD_FORK)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forked_child)


def look() -> None:
    """Read ``CUDA_VISIBLE_DEVICES``; changes to it have no effect after CUDA is initialised."""
    if current.machine is not None and not current.ready:
        current.machine.set_visible_devices(os.environ.get(VARIABLE))


def init() -> None:
    """``_cuda_init``: make the machine usable."""
    if _in_bad_fork:
        raise RuntimeError(BAD_FORK)
    look()
    if not current.devices():
        raise cuda_messages.no_gpus()
    poison_fork()
    from fakegpu_lab.driver.torch_cuda import generators

    generators.bind()
    device_asserts.initialise()
    current.ready = True


def require() -> None:
    """Initialise CUDA if it is not, like C++'s functions that need a context."""
    if not current.ready:
        torch.cuda._lazy_init()  # type: ignore[no-untyped-call]


def forget_in_cpp() -> None:
    """Make C++ call `torch.cuda._lazy_init` again at its next use of CUDA, which then raises that there is none.

    C++ remembers that CUDA was initialised; the function that resets this is exported
    (torch/csrc/utils/device_lazy_init.h). Where its mangled name differs (Windows), the error is C++'s own: PyTorch is
    not linked with support for CUDA.
    """
    suffix = ".dylib" if sys.platform == "darwin" else ".so"
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.PyDLL(str(Path(torch.__file__).parent / "lib" / f"libtorch_python{suffix}"))
        function = library["_ZN5torch5utils24set_requires_device_initEN3c1010DeviceTypeEb"]
        function.argtypes, function.restype = (ctypes.c_int8, ctypes.c_bool), None
        function(_CUDA, True)


FUNCTIONS = {
    "_cuda_init": init,
    "_cuda_isInBadFork": lambda: _in_bad_fork,
    "_cuda_hasPrimaryContext": lambda index: current.ready and 0 <= index < len(current.devices()),
}


def _begin() -> Callable[[], None]:
    global _poisoned, _in_bad_fork
    _poisoned = _in_bad_fork = False
    current.ready = False
    return forget_in_cpp


def _copy_of(seeds: Any) -> Any:
    copy = type(seeds)()
    vars(copy).update(vars(seeds))
    return copy


_UNUSED = "as in a CUDA build that has not been used yet"
_COPIED = (
    "a copy, so that calls queued while the machine is enabled are dropped with it; calls queued before "
    "(`torch.manual_seed` at the top of a notebook) take effect"
)
CHANGES = [
    *in_cuda_builds(FUNCTIONS),
    begun(_begin, _UNUSED),
    replaced("torch.cuda._is_in_bad_fork", FUNCTIONS["_cuda_isInBadFork"], _UNUSED),
    replaced("torch.cuda._initialized", False, _UNUSED),
    wrapped("torch.cuda._tls", lambda old: threading.local(), _UNUSED),
    wrapped("torch.cuda._queued_calls", list, _COPIED),
    wrapped("torch.cuda._lazy_seed_tracker", _copy_of, _COPIED),
]
