"""Pinned (page-locked) host memory: how CPU tensors get it, and which have it.

Nothing is really locked; what matters is which copies may overlap with kernels, and how long pinning keeps the host
busy (`hardware.transfers.pinned_memory`). A storage is pinned if its Python object has a block of pinned memory: views
share it, and it lives as long as the storage.
"""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import begun, replaced, wrapped
from fakegpu_lab.driver.base.device_memory import sparse_parts
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.hardware.time.clock import here
from fakegpu_lab.hardware.transfers.pinned_memory import copy_ns

if TYPE_CHECKING:
    from collections.abc import Callable


_BLOCK = "_pinned"

# Factories that document the argument pin_memory.
_FACTORIES = (
    "empty", "empty_strided", "empty_permuted", "empty_like", "zeros", "zeros_like", "ones", "ones_like", "full",
    "full_like", "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm", "arange", "eye",
    "linspace", "logspace", "scalar_tensor", "tensor",
)  # fmt: skip
_METHODS = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros", "new_tensor")

_base_pin_memory = torch._C.TensorBase.pin_memory
_sparse_coo: Callable[..., torch.Tensor] = torch.sparse_coo_tensor
_sparse_compressed: Callable[..., torch.Tensor] = torch.sparse_compressed_tensor
_REFUSAL = "Only dense CPU tensors can be pinned"


def is_pinned_tensor(tensor: torch.Tensor) -> bool:
    """Whether `tensor` is a CPU tensor in pinned memory."""
    if tensor.__class__ is FakeCudaTensor or tensor.device.type != "cpu":
        return False
    return _BLOCK in _storage(tensor).__dict__ or (bool(registered) and _is_registered(tensor))


registered: dict[int, int] = {}
"""Memory that ``cudaHostRegister`` has pinned: bytes, by address."""


def _is_registered(tensor: torch.Tensor) -> bool:
    address = _storage(tensor).data_ptr()
    return any(start <= address < start + nbytes for start, nbytes in registered.items())


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    """The storage of a CPU tensor; that of its values, if it is sparse."""
    if tensor.layout is not torch.strided:
        tensor = sparse_parts(tensor)[-1]
    return tensor.untyped_storage()


def pin(tensor: torch.Tensor, *, filled: bool = False) -> torch.Tensor:
    """Put a new CPU tensor into pinned memory, for which the host pays, and for filling it; returns the tensor."""
    host, machine = here.host, current.machine
    assert machine is not None, "without a machine, nothing is patched"
    if machine.devices:
        current.device(None).first_uses.context()  # cudaHostAlloc
    began = host.now
    setattr(tensor.untyped_storage(), _BLOCK, machine.pinned_memory.take(host, tensor.nbytes))
    if filled:
        host.work(copy_ns(tensor.nbytes))
    recorder = machine.devices[0].timeline.recorder if machine.devices else None
    if recorder is not None and host.now > began:
        recorder.worked(host, began, "pin_memory")
    return tensor


def copies_until(tensor: torch.Tensor, time: int) -> None:
    """Note that an asynchronous copy uses a pinned tensor until a time."""
    block = _storage(tensor).__dict__.get(_BLOCK)
    if block is not None:  # not registered memory, which the program frees itself
        block.used(time)


def is_pinned(self: torch.Tensor, device: Any = None) -> bool:
    """`Tensor.is_pinned`."""
    if device is not None:
        _deprecated("is_pinned")
    return is_pinned_tensor(self)


def pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
    """`Tensor.pin_memory`: the tensor itself if it is pinned, else a pinned copy."""
    if self.__class__ is FakeCudaTensor or self.device.type != "cpu":
        return _base_pin_memory(self)  # raises CUDA's error
    if device is not None:
        _deprecated("pin_memory")
    if is_pinned_tensor(self):
        return self
    if self.layout is not torch.strided:
        return _pin_sparse(self)
    with torch._C.DisableTorchFunction():
        copy = torch.empty_strided(self.size(), self.stride(), dtype=self.dtype)
    return pin(copy.copy_(self), filled=True)


def _pin_sparse(tensor: torch.Tensor) -> torch.Tensor:
    parts: list[Any] = [pin_memory(part.detach()) for part in sparse_parts(tensor)]
    if tensor.layout is torch.sparse_coo:
        coalesced = tensor.is_coalesced()
        return _sparse_coo(*parts, tensor.shape, is_coalesced=coalesced, check_invariants=False)
    return _sparse_compressed(*parts, tensor.shape, layout=tensor.layout, check_invariants=False)


def _deprecated(method: str) -> None:
    warnings.warn(
        f"The argument 'device' of Tensor.{method}() is deprecated. Please do not pass this argument.",
        DeprecationWarning,
        stacklevel=3,
    )


def _pinning(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which now takes ``pin_memory=True``: C++ refuses that without CUDA's host allocator."""

    @functools.wraps(function)
    def factory(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if not kwargs:  # the most frequent call; an empty ** would cost a tenth of it
            return function(*args)
        if not kwargs.get("pin_memory"):
            return function(*args, **kwargs)
        tensor = function(*args, **{**kwargs, "pin_memory": False})
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
            raise RuntimeError(_REFUSAL)
        return pin(tensor)

    return factory


_PINNED = "factories and methods pin their result"
CHANGES = [
    begun(registered.clear, "no memory is registered yet"),
    replaced("torch.Tensor.is_pinned", is_pinned, "pinning is simulated"),
    replaced("torch.Tensor.pin_memory", pin_memory, "pinning is simulated"),
    *(wrapped(f"torch.{name}", _pinning, _PINNED) for name in _FACTORIES),
    *(wrapped(f"torch.Tensor.{name}", _pinning, _PINNED) for name in _METHODS),
]
