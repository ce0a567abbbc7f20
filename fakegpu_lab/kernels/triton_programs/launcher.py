"""What Triton calls to launch a compiled kernel: here its programs are run on the CPU."""

from __future__ import annotations

import math
import operator
import os
import re
import sys
import threading
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from fakegpu_lab.driver.base import current, graph_capture
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.graphs.capture import borrowed
from fakegpu_lab.hardware.errors import with_notes
from fakegpu_lab.hardware.kernel_model.accesses import AccessLog
from fakegpu_lab.kernels import sampling
from fakegpu_lab.kernels.fused_loops import kept, writing
from fakegpu_lab.kernels.fused_loops.values import NotHere, Values
from fakegpu_lab.kernels.launch import GRID_LIMITS, Ran, access_of, launch
from fakegpu_lab.kernels.pointers import Memory, Stretch, stretch
from fakegpu_lab.kernels.races import Watch
from fakegpu_lab.kernels.triton_programs import semantics
from fakegpu_lab.kernels.triton_programs.builder import builder, semantic
from fakegpu_lab.kernels.triton_programs.programs import run_all
from fakegpu_lab.kernels.triton_programs.rewriting import may_order
from fakegpu_lab.kernels.triton_programs.running import Running

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.time.access import Access


_BY_PROGRAMS = "FAKEGPU_LAB_COMPILED_VALUES"
"""The environment variable that lets the programs of compiled kernels compute: ``triton``, for comparisons."""
_ENOUGH = 1 << 16
"""Elements of the largest tensor whose programs are tried, to see what a compiled kernel accesses."""
_BLOCK = re.compile(r"\bBLOCK_([MNK])\s*:\s*tl\.constexpr\s*=\s*(\d+)")
_one_at_a_time = threading.Lock()
"""Threads launch at the same time; Triton's tensors are changed for all of them while a kernel runs."""


def product(source: str) -> tuple[int, int, int] | None:
    """The block of the result that a program of Inductor's templates for products makes, and its step along k."""
    blocks = {letter: int(size) for letter, size in _BLOCK.findall(source)}
    return (blocks["M"], blocks["N"], blocks["K"]) if len(blocks) == 3 else None


class Launcher:
    """Launches one compiled kernel: Triton calls it with the grid, the stream and the arguments."""

    def __init__(self, src: Any, metadata: Any) -> None:
        self.kernel = src.fn
        self.signature = dict(src.signature)
        self.metadata = metadata
        self._loops = writing.of(src.fn.src) if "torch._inductor" in sys.modules else None
        self._accesses: dict[tuple[Any, ...], Access] = {}

    def __call__(
        self,
        x: int,
        y: int,
        z: int,
        stream: Any,
        function: Any,
        packed: Any,
        about: Any,
        enter: Any,
        leave: Any,
        *args: Any,
    ) -> None:
        """Run the kernel on a grid."""
        __tracebackhide__ = True
        x, y, z = map(operator.index, (x, y, z))  # as PyArg_ParseTuple in Triton's driver.c
        device = current.device()
        given = _Arguments(device)
        values = {
            name: given.passed(value, self.signature.get(name, "constexpr"), name)
            for name, value in zip(self.kernel.arg_names, args, strict=True)
        }
        if enter is not None:
            enter(about)
        if any(one > most for one, most in zip((x, y, z), GRID_LIMITS, strict=True)):
            raise _too_large((x, y, z))
        if x * y * z:
            self._launch(device, given, values, (x, y, z), function)
        if leave is not None:
            leave(about)

    def _launch(
        self, device: Device, given: _Arguments, values: dict[str, Any], grid: tuple[int, int, int], function: Any
    ) -> None:
        __tracebackhide__ = True
        loops = self._loops if os.environ.get(_BY_PROGRAMS) != "triton" else None
        registers = getattr(function, "registers", 0)
        programs = partial(self._programs, device, values, grid, registers)

        def run(log: AccessLog) -> Ran:
            if loops is None and current.meta():
                written = [one.name for one in given.stretches if "out_ptr" in one.name]
                return Ran(given.named(written), grid, access=tried())
            if loops is None:
                races = None if may_order(self.kernel) else Watch()
                return programs(log, Memory(given.stretches, device), sampling.chosen(total), races)
            if not current.meta():
                try:
                    given.compute(loops)
                except (NotHere, RuntimeError, IndexError):  # such as an index out of bounds: its program says so
                    return programs(log, Memory(given.stretches, device), np.arange(total))
            return Ran(given.named(loops.written), grid, access=tried())

        def tried() -> Access:
            where = *(one.pointer % 32 for one in given.stretches), *(one.end - one.start for one in given.stretches)
            key = device.profile.id, grid, *given.sizes.values(), *where
            if key not in self._accesses:
                compiled = self.metadata.num_warps, self.metadata.shared, registers
                about = device.profile, grid, given.sizes, where, compiled, self.kernel.src, triton.__version__
                self._accesses[key] = kept.remembered(
                    self.kernel.src, about, lambda: self._tried(given, programs, total)
                )
            return self._accesses[key]

        total = grid[0] * grid[1] * grid[2]
        tensors, given.tensors = given.tensors, []  # a captured graph keeps `run`
        needed = loops is None and (product(self.kernel.src) is None or "torch._inductor" not in sys.modules)
        launch(device, self.metadata.name, tensors, run, values=needed)

    def trial(self, grid: tuple[int, int, int], registers: int, *args: Any) -> Access:
        """What a launch would do to the hardware: some programs run on memory of their own, and nothing is launched."""
        device = current.device()
        given = _Arguments(device)
        values = {
            name: given.passed(value, self.signature.get(name, "constexpr"), name)
            for name, value in zip(self.kernel.arg_names, args, strict=True)
        }
        return self._tried(given, partial(self._programs, device, values, grid, registers), math.prod(grid))

    def _tried(self, given: _Arguments, programs: Callable[..., Ran], total: int) -> Access:
        device = given.device
        log = AccessLog(device.roofline.cached)
        memory, _held = zip(*(one.tried() for one in given.stretches), strict=True)
        some = sampling.middle(total, max(total * _ENOUGH // given.elements, 1))
        return access_of(device, log, programs(log, Memory(memory, device, tried=True), some), given.nbytes)

    def _programs(
        self,
        device: Device,
        values: dict[str, Any],
        grid: tuple[int, int, int],
        registers: int,
        log: AccessLog,
        memory: Memory,
        chosen: NDArray[np.int64],
        races: Watch | None = None,
    ) -> Ran:
        threads = self.metadata.num_warps * device.profile.warp_size
        cores = device.profile.compute_capability >= (8, 0)
        running = Running(memory, log, grid, threads, tensor_cores=cores)
        running.races = races
        program = semantics.function_of(self.kernel)
        with _one_at_a_time, semantics.in_force(), np.errstate(all="ignore"):
            builder.options = replace(builder.options, debug=bool(getattr(self.metadata, "debug", False)))
            arguments = {name: value() if callable(value) else value for name, value in values.items()}
            run_all(running, lambda: program(**arguments), self.metadata.name, chosen)
        written = [memory.stretches[place].tensor for place in sorted(running.written)]
        return Ran(
            [tensor for tensor in written if tensor is not None],
            grid,
            threads,
            registers or None,
            self.metadata.shared,
            shared_counted=False,
            part=len(chosen) / math.prod(grid),
            races=list(races.found.values()) if races is not None else [],
        )


class _Arguments:
    """The arguments of a launch, as the kernel sees them.

    Attributes
    ----------
    tensors, stretches
        The device tensors among them, and all memory.
    sizes
        The integers among them, by name.
    numbers
        The numbers among them, by name, each with its type in the signature.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.tensors: list[FakeCudaTensor] = []
        self.stretches: list[Stretch] = []
        self.sizes: dict[str, int] = {}
        self.numbers: dict[str, tuple[float, str]] = {}

    @property
    def elements(self) -> int:
        """The elements of the largest tensor."""
        return max((one.tensor._inner.numel() for one in self.stretches if one.tensor is not None), default=1) or 1

    @property
    def nbytes(self) -> int:
        """The bytes of all memory, each once."""
        return sum({one.start: one.end - one.start for one in self.stretches}.values())

    def compute(self, loops: writing.Printed) -> None:
        """Run what the kernel computes on the tensors as a whole."""
        loops.values(Values({one.name: one.tensor._inner for one in self.stretches}, self.sizes, self.numbers))

    def named(self, names: Sequence[str]) -> list[FakeCudaTensor]:
        """The tensors that arguments point to."""
        tensors = {one.name: one.tensor for one in self.stretches}
        return [tensors[name] for name in names]

    def passed(self, value: Any, kind: Any, name: str) -> Any:
        """A value, or a function that makes one once Triton's tensors compute."""
        if (kind == "constexpr" and not isinstance(value, (int, float))) or value is None:
            return value
        if isinstance(value, TensorDescriptor):
            return self._descriptor(value, name)
        if hasattr(value, "data_ptr"):
            address, element = self._address(value, name), _element(value.dtype)
            return lambda: semantics.pointer(address, f"*{element}", name)
        if isinstance(value, tuple):
            kinds = kind if isinstance(kind, tuple) else ("i64",) * len(value)
            parts = [
                self.passed(one, its, f"{name}[{i}]") for i, (one, its) in enumerate(zip(value, kinds, strict=True))
            ]
            return lambda: triton.language.tuple([one() if callable(one) else one for one in parts])
        if isinstance(value, int):
            self.sizes[name] = int(value)
        if kind == "constexpr":
            return value
        self.numbers[name] = value, str(kind)
        return lambda: semantics.number(value, str(kind))

    def _address(self, value: Any, name: str) -> int:
        tensor = value.base if isinstance(value, triton.runtime.jit.TensorWrapper) else value
        if tensor.__class__ is not FakeCudaTensor and isinstance(tensor, torch.Tensor):
            tensor = tensor.data if isinstance(getattr(tensor, "data", None), FakeCudaTensor) else tensor
        address = tensor.data_ptr()
        if not address:
            return 0
        if isinstance(tensor, FakeCudaTensor) and tensor._device is self.device:
            self.tensors.append(tensor)
            captured = graph_capture.current_capture() is not None  # a graph keeps this launch, and not its memory
            self.stretches.append(stretch(name, borrowed(tensor) if captured else tensor))
        elif isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu" and tensor.is_pinned():
            self.stretches.append(Stretch(name, address, address + tensor.nbytes, address, tensor.element_size()))
        else:
            raise _inaccessible(len(self.stretches), name, str(tensor.device), self.device.index)
        return int(address)

    def _descriptor(self, value: Any, name: str) -> Any:
        address, element = self._address(value.base, name), _element(value.base.dtype)

        def make() -> Any:
            strides = [semantics.number(int(one), "i64") for one in value.strides[:-1]]
            return semantic.make_tensor_descriptor(
                semantics.pointer(address, f"*{element}", name),
                [semantics.number(int(one), "i32") for one in value.shape],
                [*strides, triton.language.constexpr(1)],
                [triton.language.constexpr(one) for one in value.block_shape],
                value.padding,
            )

        return make


def _element(dtype: Any) -> str:
    return str(triton.runtime.jit.type_canonicalisation_dict[str(dtype).rpartition(".")[2]])


@lru_cache(maxsize=1)
def _sentence() -> str:
    """Triton's own words, which its C code has: they differ between versions."""
    source = Path(triton.__file__).parent / "backends" / "nvidia" / "driver.c"
    found = re.search(
        r'"(Pointer argument[^"]*cannot be accessed[^"]*)"\s*"([^"]*)"', source.read_text(encoding="utf-8")
    )
    return found[1] + found[2] if found else "Pointer argument cannot be accessed from Triton (cpu tensor?)"


def _too_large(grid: tuple[int, int, int]) -> Exception:
    """Triton's error, with a sentence below it that says which limit it is."""
    if grid[0] > GRID_LIMITS[0]:  # PyArg_ParseTuple in Triton's driver.c
        return OverflowError("signed integer is greater than maximum")
    error = RuntimeError("Triton Error [CUDA]: invalid argument")
    return with_notes(
        error, f"A grid of {grid} programs is too large: along its second and third axis it can have 65,535 at most."
    )


def _inaccessible(place: int, name: str, where: str, here: int) -> ValueError:
    """Triton's error, with a sentence below it that says which argument it is, and where."""
    error = ValueError(_sentence().replace("%d", str(place)))
    return with_notes(error, f"The argument {name} is on {where}, but the kernel was launched on cuda:{here}.")
