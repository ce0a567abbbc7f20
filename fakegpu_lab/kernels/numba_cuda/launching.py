"""One launch of a `numba.cuda` kernel: ``kernel[blocks, threads](x, y)``.

numba compiles the kernel for the types of its arguments (`compiling`), the driver checks the launch configuration, and
then every thread runs. On CUDA a launch returns before the kernel has run; here an access outside an array is reported
where CUDA would report it, by the next call that waits for the device.

Threads that wait for others that never come stop the kernel with an error of our own: a card would hang. A race between
threads is reported, and the kernel goes on, as on a card, where its results differ from run to run.
"""

from __future__ import annotations

import threading
import warnings
from functools import partial
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.kernels.launch import GRID_LIMITS, IllegalAccess, Ran, launch
from fakegpu_lab.kernels.numba_cuda import arrays, compiling, endless, messages, scalars, threads
from fakegpu_lab.kernels.numba_cuda.arrays import AccessNotes, Arrays, KernelArray, Memory, OutOfBounds, Record
from fakegpu_lab.kernels.numba_cuda.device_arrays import DeviceArray, MappedArray, over, to_device
from fakegpu_lab.kernels.numba_cuda.requests import Accesses, Between
from fakegpu_lab.kernels.numba_cuda.streams import on_stream
from fakegpu_lab.kernels.sampling import Progress, chosen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.kernel_model.accesses import AccessLog, Space
    from fakegpu_lab.kernels.numba_cuda.requests import Race

_MOST_NOTED = 200_000
"""Accesses that are kept before requests are made of them."""
_FORMATS = {scalars.Float16: "fp16", scalars.Float32: "fp32", scalars.Float64: "fp64"}
_BLOCK_LIMITS = (1024, 1024, 64)

_one_at_a_time = threading.RLock()
_active: Launch | None = None


class Configured:
    """``kernel[griddim, blockdim, stream, sharedmem]``: call it to launch the kernel."""

    def __init__(self, dispatcher: Any, griddim: Any, blockdim: Any, stream: Any = 0, sharedmem: int = 0) -> None:
        from numba.cuda.errors import normalize_kernel_dimensions

        self.dispatcher = dispatcher
        self.griddim, self.blockdim = normalize_kernel_dimensions(griddim, blockdim)
        self.stream = stream
        self.sharedmem = sharedmem

    def __call__(self, *args: Any) -> None:
        """Launch it."""
        __tracebackhide__ = True
        device = current.device()
        with _one_at_a_time, on_stream(device, self.stream):
            Launch(device, self, args).run()


Configured.__call__.__qualname__ = "_LaunchConfiguration.__call__"  # numba's name, which a TypeError shows


def call(dispatcher: Any, *args: Any) -> Any:
    """``function(...)``: within a kernel, a device function; else an error, as the launch configuration is missing."""
    __tracebackhide__ = True
    if _active is None:
        from numba.cuda.errors import missing_launch_config_msg

        raise ValueError(missing_launch_config_msg)
    return _active.function(dispatcher)(*args)


class Launch:
    """A launch that has been configured, with its arguments."""

    def __init__(self, device: Device, configured: Configured, args: Sequence[Any]) -> None:
        self.device = device
        self.configured = configured
        self.program = configured.dispatcher.py_func
        self.args = args
        self._begin()

    def _begin(self) -> None:
        """Forget what an earlier run has left: a captured launch runs at each replay of its graph."""
        self.notes = AccessNotes()
        self.segments = threads.Segments()
        self.between = Between()
        self.races: list[str] = []
        self.chosen = chosen(prod(self.configured.griddim))
        self._functions: dict[Any, Any] = {}  # these keep everything alive that the user's module names
        self._memories: dict[int, FakeCudaTensor] = {}

    def function(self, dispatcher: Any) -> Any:
        """The function that runs for a kernel or a device function."""
        found = self._functions.get(id(dispatcher))
        if found is None:
            found = self._functions[id(dispatcher)] = compiling.runnable(dispatcher, self.function)
        return found

    def run(self) -> None:
        """Launch."""
        __tracebackhide__ = True
        dispatcher = self.configured.dispatcher
        names = list(dispatcher.py_func.__code__.co_varnames)
        given = [over(value) if isinstance(value, FakeCudaTensor) else value for value in self.args]
        types = tuple(compiling.type_of(dispatcher, value) for value in given)
        types = compiling.compiled(dispatcher, types)
        self._check_limits(self.configured.sharedmem)
        write_back: list[Callable[[], object]] = []
        values = [self._on_device(value, write_back) for value in given]
        tensors = [value.tensor for value in values if isinstance(value, DeviceArray)]
        launch(self.device, self.program.__name__, tensors, partial(self._execute, names, values, types))
        for copy in write_back:
            copy()

    def _check_limits(self, shared: int) -> None:
        """Refuse a configuration that the driver refuses."""
        block, grid, profile = self.configured.blockdim, self.configured.griddim, self.device.profile
        if prod(block) > _BLOCK_LIMITS[0] or any(one > most for one, most in zip(block, _BLOCK_LIMITS, strict=True)):
            raise messages.too_many_threads(block)
        if any(one > most for one, most in zip(grid, GRID_LIMITS, strict=True)) or min(*grid, *block) < 1:
            raise messages.impossible_grid(grid, block)
        if shared > profile.shared_mem_per_block:
            raise messages.too_much_dynamic(shared, profile.shared_mem_per_block)

    def _on_device(self, value: Any, write_back: list[Callable[[], object]]) -> Any:
        """The argument on the device: arrays of the host are copied there, and back after the kernel."""
        hint = type(value).__name__ if hasattr(value, "to_device") and hasattr(value, "value") else ""
        host = value.value if hint else value
        if isinstance(host, FakeCudaTensor):
            return over(host)
        if isinstance(host, np.void):
            record = to_device(np.array([host]))

            def of_record() -> None:
                for name in host.dtype.names or ():
                    host[name] = record.copy_to_host()[0][name]

            write_back.append(of_record)
            return record
        if not isinstance(host, np.ndarray):
            return value
        if not hint and not isinstance(host, MappedArray):
            self._warn_of_copies()
        array = to_device(host)
        if hint != "In":
            write_back.append(lambda: array.copy_to_host(host))
        return array

    def _warn_of_copies(self) -> None:
        from numba.core import config, errors

        if config.CUDA_WARN_ON_IMPLICIT_COPY:
            warning = errors.NumbaPerformanceWarning(
                "Host array used in CUDA kernel will incur copy overhead to/from device."
            )
            warnings.warn(warning, stacklevel=4)

    def _execute(self, names: list[str], values: list[Any], types: tuple[Any, ...], log: AccessLog) -> Ran:
        """Run all blocks: what `kernels.launch` calls."""
        __tracebackhide__ = True
        global _active
        for name, value in zip(names, values, strict=False):
            if isinstance(value, torch.Tensor):
                raise IllegalAccess(messages.host_tensor(name))
            if isinstance(value, DeviceArray) and value.tensor._device is not self.device:
                raise IllegalAccess(messages.other_device(name, value.tensor._device.index, self.device.index))
        outer, _active = _active, self
        if outer is not None:
            raise FakeGpuError("A kernel cannot launch another kernel in numba: call a device function instead.")
        for counter in _FORMATS:
            scalars.FLOPS[counter].reset()
        self._begin()
        arrays.running = declared = Arrays(self.notes, self.configured.sharedmem)
        try:
            with np.errstate(all="ignore"):
                self._run_blocks(list(map(self._value, names, values, types)), declared, log)
        except OutOfBounds as error:
            raise IllegalAccess(messages.out_of_bounds(error, self.configured.griddim)) from None
        finally:
            _active = None
            self._functions.clear()
            threads.here.threads = []
        for cls, name in _FORMATS.items():
            if scalars.FLOPS[cls].value:
                log.flops(scalars.FLOPS[cls].value, name)
        written = [self._memories[id(site.memory)] for site in self._sites("global") if site.kind != "load"]
        return Ran(
            written=list({id(tensor): tensor for tensor in written}.values()),
            grid=self.configured.griddim,
            threads=prod(self.configured.blockdim),
            shared_bytes=declared.static_bytes + self.configured.sharedmem,
            part=len(self.chosen) / prod(self.configured.griddim),
            races=self.races,
        )

    def _sites(self, space: str) -> list[Any]:
        return [site for site in self.notes.sites if site.memory.space == space]

    def _value(self, name: str, value: Any, to: Any) -> Any:
        """The argument as the kernel sees it."""
        if isinstance(value, DeviceArray):
            inner = value.tensor._inner.detach()
            extents = zip(inner.shape, inner.stride(), strict=True)
            count = 1 + sum((size - 1) * step for size, step in extents) if inner.numel() else 0
            elements = inner.as_strided((count,), (1,)).numpy().view(value.dtype)
            memory = Memory(name, "global", value.tensor.data_ptr(), elements, self.notes)
            self._memories[id(memory)] = value.tensor
            if hasattr(to, "fields"):  # numba's type of a record
                return Record(memory, 0)
            return KernelArray(memory, value.shape, tuple(step // value.dtype.itemsize for step in value.strides))
        if isinstance(value, tuple):
            parts = [self._value(name, one, its) for one, its in zip(value, getattr(to, "types", value), strict=True)]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        return compiling.converted(scalars.Float64(value) if isinstance(value, float) else value, to)

    def _run_blocks(self, args: list[Any], declared: Arrays, log: AccessLog) -> None:
        __tracebackhide__ = True
        grid, block = self.configured.griddim, self.configured.blockdim
        threads.grid_extent.set(grid)
        threads.block_extent.set(block)
        program = partial(self.function(self.configured.dispatcher), *args)
        indices = [(x, y, z) for z, y, x in product(*map(range, reversed(block)))]
        progress = Progress(self.program.__name__, len(self.chosen), "blocks")
        with endless.watched(self.notes.codes):
            for place, number in enumerate(self.chosen.tolist()):
                declared.new_block()
                index = number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1])
                try:
                    threads.run_block(number, index, indices, program, self.notes, self.segments)
                except threads.StuckError as stuck:
                    raise messages.stuck(stuck) from None
                except endless.EndlessError as error:
                    raise messages.endless(messages.line_of(error), threads.here.thread, index) from None
                except threads.NeverEndsError as error:
                    raise messages.endless(error.line, error.thread, index) from None
                except (ArithmeticError, AssertionError, ValueError) as error:
                    messages.raised(error)
                    raise
                if not place:
                    self._check_static(declared.static_bytes)
                if len(self.notes.codes) > _MOST_NOTED:
                    self._note_requests(log)
                progress.reached(place + 1)
        progress.end()
        self._note_requests(log)
        self._report(self.between.race())

    def _check_static(self, static: int) -> None:
        most = self.device.profile.shared_mem_per_block
        if static > most:
            raise messages.too_much_static(self.program.__name__, static, most)
        self._check_limits(static + self.configured.sharedmem)

    def _note_requests(self, log: AccessLog) -> None:
        """Hand what was noted to the log, and look for races."""
        accesses = Accesses(self.notes, self.segments)
        for site, addresses, blocks in accesses.requests():
            space: Space = "shared" if site.memory.space == "shared" else "global"
            log.add(site.kind, space, addresses, site.memory.elements.itemsize, site.line, blocks)
        self._report(accesses.race())
        self.between.add(accesses)

    def _report(self, race: Race | None) -> None:
        if race is not None and not self.races:
            self.races.append(messages.race(race, self.configured.griddim, self.configured.blockdim))
