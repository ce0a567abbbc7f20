"""Puts the simulation into `numba.cuda`: now if it is imported, else as soon as it is."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base.module_imports import when_imported

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.base.patches import Patches


def install(patches: Patches) -> None:
    """Patch `numba.cuda`, if greenlet is there too (the extra ``numba`` has both)."""
    when_imported("numba.cuda", patches, lambda module: _patch(patches, module))


def _patch(patches: Patches, module: Any) -> None:
    from fakegpu_lab.kernels.numba_cuda import compiling, device_arrays, functions, host_api, launching, threads

    try:
        threads.greenlets = importlib.import_module("greenlet")
    except ImportError:
        return

    stub = importlib.import_module("numba.cuda.stubs").Stub
    stubs = {name for name, value in vars(module).items() if isinstance(value, type) and issubclass(value, stub)}
    in_kernel = {**{name: functions.Missing(name) for name in stubs}, **functions.IN_KERNEL}
    known = {name: (vars(module)[name], ours) for name, ours in in_kernel.items() if name in vars(module)}
    libdevice = getattr(module, "libdevice", None) or importlib.import_module("numba.cuda.libdevice")
    for original, ours in [
        *known.values(),
        (libdevice, functions.libdevice),
        (module, SimpleNamespace(**{**vars(module), **in_kernel, "libdevice": functions.libdevice})),
    ]:
        patches.set_item(compiling.meanings, id(original), (original, ours))
    patches.later(compiling.widths.clear)
    for name, value in host_api.HOST.items():
        patches.set(module, name, value)
    if importlib.import_module("numba.core.config").ENABLE_CUDASIM:  # NUMBA_ENABLE_CUDASIM=1: numba's own simulator
        cls = importlib.import_module("numba.cuda.simulator.kernel").FakeCUDAKernel
    else:
        dispatchers = importlib.import_module("numba.cuda.dispatcher")
        cls = dispatchers.CUDADispatcher
        patches.set(dispatchers, "get_current_device", host_api.get_current_device)
        devices = importlib.import_module("numba.cuda.cudadrv.devices")
        patches.set(devices, "get_context", host_api.current_context)
        patches.set(devices, "gpus", host_api.HOST["gpus"])
        arrays = importlib.import_module("numba.cuda.cudadrv.devicearray")
        patches.set(arrays, "DeviceNDArray", device_arrays.DeviceArray)
        patches.set(cls, "configure", _configure)
        patches.set(cls, "compile", _compile)
        if "fold_argument_types" not in cls.get_call_template.__code__.co_names:  # as NVIDIA's numba-cuda does
            patches.set(cls, "get_call_template", _folding(cls.get_call_template))
    patches.set(cls, "__getitem__", _configured)
    patches.set(cls, "__call__", launching.call)
    patches.set(cls, "forall", _forall)
    patches.set(cls, "specialize", lambda self, *args: self)


def _configured(self: Any, args: Any) -> Any:
    """``kernel[griddim, blockdim]``, with a stream and bytes of dynamic shared memory if wanted."""
    from fakegpu_lab.kernels.numba_cuda.launching import Configured

    if not isinstance(args, tuple) or len(args) not in (2, 3, 4):
        raise ValueError("must specify at least the griddim and blockdim")  # numba/cuda/dispatcher.py
    return Configured(self, *args)


def _configure(self: Any, *args: Any) -> Any:
    return _configured(self, args)


def _folding(get_call_template: Callable[..., Any]) -> Callable[..., Any]:
    """``min`` and ``max``: numba's own compiler passes their arguments one by one to a function that takes ``*x``."""

    def folding(self: Any, args: Any, kws: Any) -> Any:
        return get_call_template(self, self.fold_argument_types(args, kws)[1], {})

    return folding


def _forall(self: Any, ntasks: int, tpb: int = 0, stream: Any = 0, sharedmem: int = 0) -> Any:
    """``kernel.forall(n)``: one dimension, with blocks of a size that numba chooses (here 256 if none is given)."""
    if ntasks < 0:
        raise ValueError(f"Can't create ForAll with negative task count: {ntasks}")
    threads = tpb or 256
    return _configured(self, (max(1, -(-ntasks // threads)), threads, stream, sharedmem))


def _compile(self: Any, sig: Any) -> None:
    """Compile for a signature that the decorator names: numba's errors appear at once."""
    from numba.core import sigutils

    from fakegpu_lab.kernels.numba_cuda import compiling

    compiling.compiled(self, sigutils.normalize_signature(sig)[0])
