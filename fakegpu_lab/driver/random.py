"""Random numbers on a device: a generator per device, apart from the host's."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from typing_extensions import Self

    from fakegpu_lab.driver.op import Op
    from fakegpu_lab.hardware.device import Device

DEFAULT_SEED = 67280421310721  # c10/core/GeneratorImpl.h: default_rng_seed_val

_Generator = torch._C.Generator


class CudaGenerator(_Generator):
    """A generator of a device, as ``torch.Generator("cuda")`` makes one.

    In C++ it is torch's CPU generator (Mersenne Twister): deterministic and independent of the host's, but its digits
    are not those of a real card. C++ hands it around without this Python half, so `_all` finds it again.
    """

    _index: int

    def __new__(cls, index: int) -> Self:
        """Make one for that device, with the default seed."""
        self = super().__new__(cls, "cpu")  # type: ignore[call-arg]
        self._index = index
        _all[self._cdata] = self  # type: ignore[attr-defined]
        return self

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Its device, with index."""
        return torch.device("cuda", self._index)

    def clone_state(self) -> CudaGenerator:
        """A new generator in the same state."""
        other = CudaGenerator(self._index)
        other.set_state(self.get_state())
        return other

    def __reduce__(self) -> Any:
        return torch.Generator, (self.device,), (self.initial_seed(), None, self.get_state())

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
        found.manual_seed(DEFAULT_SEED)
    return found


def forget() -> None:
    """Drop all generators: the next machine starts from the default seed."""
    _generators.clear()


def seeded_call(op: Op, device: Device, *args: Any, **kwargs: Any) -> Any:
    """Compute a random op on inner tensors with the device's generator instead of the host's."""
    source = generator(device.index)
    if op.has_generator:
        position = op.position["generator"]
        given = args[position] if position < len(args) else kwargs.get("generator")
        if given is None:
            if position < len(args):
                args = (*args[:position], source, *args[position + 1 :])
            else:
                kwargs["generator"] = source
        elif given._cdata not in _all:
            raise RuntimeError(f"Expected a 'cuda' device type for generator but found '{given.device.type}'")
        return op.func._op(*args, **kwargs)
    host = torch.default_generator
    state = host.get_state()
    host.set_state(source.get_state())
    try:
        return op.func._op(*args, **kwargs)
    finally:
        source.set_state(host.get_state())
        host.set_state(state)
