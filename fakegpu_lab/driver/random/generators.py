"""The devices' generators: a seed and an offset each, as CUDA's (aten/src/ATen/cuda/CUDAGeneratorImpl.cpp).

One difference: a device's default generator starts from the seed 67280421310721, where CUDA draws a seed from the
system. So a program that sets no seed gives the same numbers every time.

To C++ a device's generator is a CPU generator (`CudaGenerator`), and an op on the host would accept it. The wrappers at
the end refuse it with CUDA's error; calls without a generator cost one more dictionary look-up.
"""

from __future__ import annotations

import functools
import os
import struct
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fakegpu_lab.driver.base import cuda_messages, graph_capture
from fakegpu_lab.driver.base.changes import wrapped

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from fakegpu_lab.hardware.device import Device


DEFAULT_SEED = 67280421310721  # c10/core/GeneratorImpl.h: default_rng_seed_val

_Generator = torch._C.Generator
_STATE = struct.Struct("=QQ")


class State:
    """Seed and offset: `CUDAGeneratorState`. Generators may share one (`graphsafe_set_state`)."""

    __slots__ = ("offset", "seed")

    def __init__(self, seed: int, offset: int = 0) -> None:
        self.seed = seed
        self.offset = offset


class CudaGenerator(_Generator):
    """A generator of a device, as ``torch.Generator("cuda")`` makes one.

    Its C++ half is a CPU generator that never draws. C++ passes it around without this Python half, which `of` looks
    up.
    """

    state: State
    _index: int | None

    def __new__(cls, index: int | None, state: State | None = None) -> Self:
        """Make a generator for that device (None: any device), with the default seed."""
        self = super().__new__(cls, "cpu")  # type: ignore[call-arg]
        self._index = index
        self.state = State(DEFAULT_SEED) if state is None else state
        _all[self._cdata] = self  # type: ignore[attr-defined]
        return self

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Its device, with the index that `torch.Generator` got."""
        return torch.device("cuda") if self._index is None else torch.device("cuda", self._index)

    def advance(self, increment: int) -> int:
        """Reserve `increment` numbers for each thread, rounded up to a multiple of 4; returns their offset."""
        if graph_capture.underway:
            captured = graph_capture.advance(self.state, increment)
            if captured is not None:
                return captured
        offset = self.state.offset
        self.state.offset = (offset + (increment + 3) // 4 * 4) % 2**64
        return offset

    def manual_seed(self, seed: int) -> Self:
        """Restart from `seed`."""
        if graph_capture.underway:
            self._keep_seed(seed)
        super().manual_seed(seed)  # raises if the seed is invalid
        self.state.seed, self.state.offset = super().initial_seed(), 0
        return self

    def _keep_seed(self, seed: int) -> None:
        if cuda_messages.TORCH_VERSION < (2, 13):
            graph_capture.assert_not_capturing("Cannot call CUDAGeneratorImpl::set_current_seed")
        if graph_capture.current_capture() is not None and seed % 2**64 != self.state.seed:
            raise RuntimeError(
                "CUDAGeneratorImpl::set_current_seed can be called during stream capture only if new seed is the same "
                "as the original seed."
            )

    def seed(self) -> int:
        """Restart from a seed of the system, of 53 bits as on CUDA."""
        graph_capture.assert_not_capturing("Cannot call CUDAGeneratorImpl::seed")
        self.manual_seed(int.from_bytes(os.urandom(8), "little") % 2**53)
        return self.state.seed

    def initial_seed(self) -> int:
        """The seed."""
        graph_capture.assert_not_capturing("Cannot call CUDAGeneratorImpl::current_seed")
        return self.state.seed

    def get_offset(self) -> int:
        """The numbers that a thread has drawn so far."""
        graph_capture.assert_not_capturing("Cannot call CUDAGeneratorImpl::get_offset")
        return self.state.offset

    def set_offset(self, offset: int) -> Self:
        """Continue at `offset`."""
        graph_capture.assert_not_capturing("Cannot call CUDAGeneratorImpl::set_offset")
        if isinstance(offset, bool) or not isinstance(offset, (int, np.integer)):
            raise RuntimeError(f"manual_offset expected a long, but got {type(offset).__name__}")
        if offset % 4:
            raise RuntimeError("offset must be a multiple of 4")
        self.state.offset = int(offset) % 2**64
        return self

    def get_state(self) -> torch.Tensor:
        """Seed and offset, 8 bytes each."""
        graph_capture.assert_not_capturing("Cannot call CUDAGeneratorImpl::current_seed")
        return torch.from_numpy(np.frombuffer(_STATE.pack(self.state.seed, self.state.offset), dtype=np.uint8).copy())

    def set_state(self, state: torch.Tensor) -> Self:
        """Continue from a result of `get_state`; 8 bytes are only a seed."""
        graph_capture.assert_not_capturing(
            "Please ensure to utilize the CUDAGeneratorImpl::set_state_index method during capturing."
        )
        if not isinstance(state, torch.Tensor):
            raise TypeError(f"expected a torch.ByteTensor, but got {type(state).__name__}")
        if state.layout is not torch.strided or state.device.type != "cpu" or state.dtype is not torch.uint8:
            raise TypeError("RNG state must be a torch.ByteTensor")
        if not state.is_contiguous():
            raise RuntimeError("RNG state must be contiguous")
        if state.numel() not in (8, 16):
            raise RuntimeError("RNG state is wrong size")
        content = bytes(state.tolist())
        seed, offset = _STATE.unpack(content.ljust(16, b"\0"))
        if offset % 4:
            raise RuntimeError("offset must be a multiple of 4")
        self.state.seed, self.state.offset = seed, offset
        return self

    def clone_state(self) -> CudaGenerator:
        """A new generator in the same state."""
        return CudaGenerator(self._index, State(self.state.seed, self.state.offset))

    def graphsafe_get_state(self) -> CudaGenerator:
        """A generator that shares this one's state."""
        return CudaGenerator(self._index, self.state)

    def graphsafe_set_state(self, generator: torch._C.Generator) -> Self:
        """From now on, share the state of `generator`."""
        if not isinstance(generator, _Generator):
            raise TypeError(f"expected a Generator, but got {type(generator).__name__}")
        if not isinstance(generator, CudaGenerator):
            raise RuntimeError("Expected a CUDA Generator")
        self.state = generator.state
        return self

    def __reduce__(self) -> Any:
        return torch.Generator, (self.device,), (self.initial_seed(), self.get_offset(), self.get_state())

    def __setstate__(self, state: tuple[int, int | None, torch.Tensor]) -> None:
        self.set_state(state[2])

    def __repr__(self) -> str:
        return f"<torch._C.Generator object at {id(self):#x}>"


CudaGenerator.__name__ = CudaGenerator.__qualname__ = "Generator"
CudaGenerator.__module__ = "torch._C"

_all: weakref.WeakValueDictionary[int, CudaGenerator] = weakref.WeakValueDictionary()
"""Every CudaGenerator, by the address of its C++ half."""
_generators: dict[int, CudaGenerator] = {}


def generator(index: int) -> CudaGenerator:
    """The default generator of ``cuda:index``."""
    found = _generators.get(index)
    if found is None:
        found = _generators[index] = CudaGenerator(index)
    return found


def draw_seed(device: Device, increment: int) -> int:
    """A seed for a dropout mask, from the device generator's seed and offset; advances the offset by `increment`."""
    seed, offset = draw_position(device, increment)
    return (seed * 6364136223846793005 + offset * 1442695040888963407) % 2**62


def draw_position(device: Device, increment: int) -> tuple[int, int]:
    """The seed and the offset at which a kernel draws `increment` numbers from the device's generator."""
    source = generator(device.index)
    offset = source.advance(increment)
    return source.state.seed, offset


def of(given: torch._C.Generator | None, index: int) -> CudaGenerator:
    """The CudaGenerator of an op on ``cuda:index``: `given`, or the device's default generator if None."""
    if given is None:
        return generator(index)
    found = _all.get(given._cdata)  # type: ignore[attr-defined]
    if found is None:
        raise RuntimeError(f"Expected a 'cuda' device type for generator but found '{given.device.type}'")
    return found


def generators() -> dict[int, CudaGenerator]:
    """The default generators of this process, or of the running rank."""
    return _generators


def use(generators: dict[int, CudaGenerator]) -> None:
    """Make these the default generators: another rank runs now."""
    global _generators
    _generators = generators


def forget() -> None:
    """Drop all generators: the next machine starts from the default seed."""
    _generators.clear()


_FUNCTIONS = ("rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson", "binomial")
_IN_PLACE = (
    "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_", "uniform_",
)  # fmt: skip
_METHODS = ("bernoulli", "multinomial")


def _refuse(result: Any) -> None:
    if isinstance(result, torch.Tensor) and result.device.type == "cpu":
        raise RuntimeError("Expected a 'cpu' device type for generator but found 'cuda'")


def _is_empty_permutation(function: Callable[..., Any], result: Any) -> bool:
    """``randperm(0)`` looks at no generator (cuda/Randperm.cu, TensorFactories.cpp)."""
    return function.__name__ == "randperm" and not len(result)


def _looking(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, then a check: its result shows on which device it ran."""

    @functools.wraps(function)
    def looking(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        result = function(*args, **kwargs)
        if (
            kwargs
            and kwargs.get("generator").__class__ is CudaGenerator
            and not _is_empty_permutation(function, result)
        ):
            _refuse(result)
        return result

    return looking


def _looking_first(method: Callable[..., Any]) -> Callable[..., Any]:
    """A check, then `method`, which writes to its tensor."""

    @functools.wraps(method)
    def looking(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if kwargs and kwargs.get("generator").__class__ is CudaGenerator:
            _refuse(self)
        return method(self, *args, **kwargs)

    return looking


_WHY = "a generator of another device is refused"
CHANGES = [
    *(wrapped(f"torch.{name}", _looking, _WHY) for name in _FUNCTIONS),
    *(wrapped(f"torch.Tensor.{name}", _looking, _WHY) for name in _METHODS),
    *(wrapped(f"torch.Tensor.{name}", _looking_first, _WHY) for name in _IN_PLACE),
]
