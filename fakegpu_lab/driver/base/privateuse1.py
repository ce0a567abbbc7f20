"""Registers the C++ device type behind ``cuda``: torch's own PrivateUse1, in pure Python.

A tensor whose C++ device is CUDA cannot exist in a torch without CUDA: autograd finds no device guard. PrivateUse1
is the device type that torch reserves for other backends. Since torch 2.10, Python can give it a guard and hooks
(`torch.utils.backend_registration._setup_privateuseone_for_python_backend`). The registration lasts as long as the
process and changes nothing for code that does not use the device.
"""

from __future__ import annotations

import types
from functools import lru_cache
from typing import Any

import torch
from torch.utils.backend_registration import rename_privateuse1_backend

from fakegpu_lab.driver.base import answers_to_cpp
from fakegpu_lab.user_code import interrupts

NAME = "fakegpu"
"""PrivateUse1's name, as C++ prints it. Users never see it: `FakeCudaTensor.device` is ``cuda``."""

MAX_DEVICES = 64
"""Device indices are a signed byte in C++."""

_keep_alive: list[object] = []  # C++ holds bare pointers to the guard and the hooks


class _Guard(torch._C._acc.DeviceGuard):
    """The device guard. C++ asks for its type several times for each node of backward; no Python may run there."""

    type_: Any = answers_to_cpp.answer(torch._C._autograd.DeviceType.PrivateUse1)


class _Hooks(torch._C._acc.PrivateUse1Hooks):
    is_available: Any = staticmethod(answers_to_cpp.constant(True))
    is_built: Any = staticmethod(answers_to_cpp.constant(True))
    has_primary_context: Any = staticmethod(answers_to_cpp.constant(True))


CPP_DEVICES: list[torch.device] = []
"""The C++ device of ``cuda:i``, by i."""

CUDA_DEVICES = [torch.device("cuda", index) for index in range(MAX_DEVICES)]
"""The device that Python code sees for ``cuda:i``, by i."""

DeviceClass = type(CUDA_DEVICES[0])
"""The class of devices; while a machine is enabled, `torch.device` is a stand-in for it."""


def as_cuda_device(where: torch.device) -> torch.device:
    """`where` under its Python name, ``cuda``; functorch's wrappers and C++'s metadata give the C++ name."""
    return CUDA_DEVICES[where.index] if where.type == NAME else where


def _index(where: Any) -> int | str:
    """The ordinal of a device given by its C++ name; ``cuda`` for the current device."""
    index = where if isinstance(where, int) else torch.device(where or NAME).index
    return "cuda" if index is None else index


@lru_cache(maxsize=1)
def register() -> None:
    """Register the device type with torch, once in a process."""
    rename_privateuse1_backend(NAME)
    module = types.ModuleType(f"torch.{NAME}")
    module.__dict__.update(  # each looks up torch.cuda when called: it is patched while a machine is enabled
        is_initialized=lambda: True,
        is_available=lambda: torch.cuda.is_available(),
        current_device=lambda: torch.cuda.current_device(),
        device_count=lambda: torch.cuda.device_count(),
        manual_seed_all=lambda seed: None,  # torch.manual_seed reaches the devices through torch.cuda
        get_amp_supported_dtype=lambda: [torch.float16, torch.bfloat16],
        get_rng_state=lambda device=None: torch.cuda.get_rng_state(_index(device)),
        set_rng_state=lambda state, device=None: torch.cuda.set_rng_state(state, _index(device)),
        _is_in_bad_fork=lambda: torch.cuda._is_in_bad_fork(),
        _lazy_init=lambda: None,
    )
    torch._register_device_module(NAME, module)  # type: ignore[no-untyped-call]
    hooks, guard = _Hooks(), _Guard()
    torch._C._acc.register_python_privateuseone_hook(hooks)
    torch._C._acc.register_python_privateuseone_device_guard(guard)
    _keep_alive.extend((hooks, guard))
    answers_to_cpp.settle()
    interrupts.unsafe.append(answers_to_cpp.asked)
    CPP_DEVICES.extend(torch.device(NAME, index) for index in range(MAX_DEVICES))
    _hide()


def _hide() -> None:
    """Make torch report the accelerator it had before; ours does not exist when no machine is enabled."""
    C: Any = torch._C  # noqa: N806 - its stubs know little
    accelerator, default = C._accelerator_getAccelerator, C._get_accelerator

    def get_accelerator() -> torch.device | None:
        found: torch.device | None = accelerator()
        return None if found is not None and found.type == NAME else found

    def get_default(check: bool | None = None) -> torch.device:
        found: torch.device = default() if check is None else default(check)
        if found.type != NAME:
            return found
        if check:
            raise RuntimeError("Cannot access accelerator device when none is available.")
        return torch.device("cpu")

    if accelerator() is not None and accelerator().type == NAME:
        C._accelerator_getAccelerator, C._get_accelerator = get_accelerator, get_default
