"""What the simulation changes in `numba.cuda`: now if it is imported, else as soon as it is."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base.changes import added, begun, imported, patches, replaced, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.base.changes import Change


def _rows(module: Any) -> list[Change]:
    """The rows, if greenlet is there, too (the extra ``numba`` has both)."""
    from fakegpu_lab.kernels.numba_cuda import device_arrays, host_api, launching, threads

    try:
        threads.greenlets = importlib.import_module("greenlet")
    except ImportError:
        return []
    rows = [added(f"numba.cuda.{name}", value, "the host's functions") for name, value in host_api.HOST.items()]
    rows.append(begun(lambda: _know_stubs(module), "kernels find the simulation behind numba's stubs"))
    if importlib.import_module("numba.core.config").ENABLE_CUDASIM:  # NUMBA_ENABLE_CUDASIM=1: numba's own simulator
        cls = "numba.cuda.simulator.kernel.FakeCUDAKernel"
    else:
        cls = "numba.cuda.dispatcher.CUDADispatcher"
        rows += [
            replaced("numba.cuda.dispatcher.get_current_device", host_api.get_current_device, "the simulated card"),
            replaced("numba.cuda.cudadrv.devices.get_context", host_api.current_context, "the simulated card's"),
            replaced("numba.cuda.cudadrv.devices.gpus", host_api.HOST["gpus"], "the simulated cards"),
            replaced("numba.cuda.cudadrv.devicearray.DeviceNDArray", device_arrays.DeviceArray, "arrays are ours"),
            replaced(f"{cls}.configure", _configure, "launches run here"),
            replaced(f"{cls}.compile", _compile, "there is no card to compile for"),
            wrapped(f"{cls}.get_call_template", _folding, "min and max of several values, as numba-cuda compiles them"),
        ]
    return [
        *rows,
        replaced(f"{cls}.__getitem__", _configured, "launches run here"),
        replaced(f"{cls}.__call__", launching.call, "launches run here"),
        replaced(f"{cls}.forall", _forall, "launches run here"),
        added(f"{cls}.specialize", lambda self, *args: self, "nothing is compiled for a card"),
    ]


def _know_stubs(module: Any) -> None:
    """Let kernels find ours by numba's stubs, under whatever names they imported them."""
    from fakegpu_lab.kernels.numba_cuda import compiling, functions

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
    if "fold_argument_types" in get_call_template.__code__.co_names:  # NVIDIA's numba-cuda does it
        return get_call_template

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


CHANGES = [imported("numba.cuda", _rows, "kernels of numba.cuda run on simulated cards")]
