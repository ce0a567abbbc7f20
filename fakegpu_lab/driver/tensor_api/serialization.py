"""Pickles and copies device tensors, into what a CUDA machine would write, without a trace of the simulation.

A file names only torch's own functions and the location ``cuda:i``. Loading needs almost nothing: torch restores a
storage with ``storage.to(device="cuda:i")``, and its checks call `torch.cuda`.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import torch

from fakegpu_lab.driver.base.changes import replaced
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, set_conj_neg_bits
from fakegpu_lab.driver.tensor_api import user_subclasses
from fakegpu_lab.driver.tensor_api.conversion import STORAGE_ATTRIBUTES

_OURS = {*STORAGE_ATTRIBUTES, "_is_param"}


def user_state(tensor: FakeCudaTensor) -> dict[str, Any]:
    """The attributes that users gave the tensor."""
    return {name: value for name, value in tensor.__dict__.items() if name not in _OURS}


def reduce_ex(self: FakeCudaTensor, protocol: Any) -> tuple[Any, ...]:
    """`Tensor.__reduce_ex__` or `Parameter.__reduce_ex__`, according to what the tensor is on CUDA."""
    state = user_state(self)
    if isinstance(self, torch.nn.Parameter):
        rest: tuple[Any, ...] = (self.detach(), self.requires_grad, OrderedDict())
        if state:
            return torch._utils._rebuild_parameter_with_state, (*rest, state)
        return torch._utils._rebuild_parameter, rest
    function, arguments = _reduce(self, protocol)
    cls = user_subclasses.on_host(type(self))
    if cls is FakeCudaTensor:
        cls = torch.Tensor
    if state or cls is not torch.Tensor:
        return torch._tensor._rebuild_from_type_v2, (function, cls, arguments, state)
    return function, arguments


def _reduce(self: FakeCudaTensor, protocol: Any) -> tuple[Any, ...]:
    if self.layout is not torch.strided:
        rebuild, (layout, parts) = self._reduce_ex_internal(protocol)  # type: ignore[no-untyped-call]
        # The parts share one block here; torch would take them for views with different dtypes, so they are copied.
        return rebuild, (layout, tuple(p.clone() if isinstance(p, torch.Tensor) else p for p in parts))
    torch.utils.hooks.warn_if_has_hooks(self)
    metadata = torch._utils.get_tensor_metadata(self._inner)  # type: ignore[no-untyped-call]
    arguments: tuple[Any, ...] = (
        self.storage_offset(), tuple(self.size()), self.stride(), self.requires_grad, OrderedDict(),
    )  # fmt: skip
    if self.dtype in torch.storage._new_dtypes():
        arguments = (self.untyped_storage(), *arguments, self.dtype)
        rebuild = torch._utils._rebuild_tensor_v3
    else:
        arguments = (self._typed_storage(), *arguments)  # type: ignore[no-untyped-call]
        rebuild = torch._utils._rebuild_tensor_v2
    return rebuild, (*arguments, metadata) if metadata else arguments


def deepcopy(self: FakeCudaTensor, memo: dict[int, Any]) -> FakeCudaTensor:
    """`Tensor.__deepcopy__` and `Parameter.__deepcopy__`."""
    if id(self) in memo:
        return memo[id(self)]  # type: ignore[no-any-return]
    if isinstance(self, torch.nn.Parameter):
        # As in torch: no gradient, no attributes, and views no longer share memory.
        clone = self.detach().clone(memory_format=torch.preserve_format)
        new = memo[id(self)] = torch.nn.Parameter(clone, self.requires_grad)
        return new  # type: ignore[return-value]
    if not self.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.  "
            "If you were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage, "
            "see https://github.com/pytorch/pytorch/pull/103001"
        )
    with torch.no_grad():
        twin = _deep(self, memo) if self.layout is torch.strided else self.clone()
        twin.requires_grad_(self.requires_grad)
        if self.grad is not None:
            twin.grad = copy.deepcopy(self.grad, memo)
        if user_subclasses.on_host(type(self)) is not FakeCudaTensor:
            twin = twin.as_subclass(type(self))
        twin.__dict__.update(copy.deepcopy(user_state(self), memo))
    memo[id(self)] = twin
    return twin  # type: ignore[return-value]


def _deep(self: FakeCudaTensor, memo: dict[int, Any]) -> torch.Tensor:
    """A tensor on a copy of the storage; tensors in `memo` that share a storage share the copy."""
    storage = copy.deepcopy(self.untyped_storage(), memo)
    new = torch.empty(0, dtype=self.dtype, device=self.device)
    new.set_(storage, self.storage_offset(), self.size(), self.stride())
    if self.is_conj():
        new = new.conj_physical()
    return new.neg() if self.is_neg() else new


def set_tensor_metadata(tensor: torch.Tensor, metadata: dict[str, bool]) -> None:
    """`torch._utils.set_tensor_metadata`, which sets the conj and neg bits on the inner tensor."""
    if tensor.__class__ is FakeCudaTensor:
        _set_tensor_metadata(tensor._inner, metadata)  # type: ignore[no-untyped-call]
        set_conj_neg_bits(tensor)
    else:
        _set_tensor_metadata(tensor, metadata)  # type: ignore[no-untyped-call]


_set_tensor_metadata = torch._utils.set_tensor_metadata


CHANGES = [replaced("torch._utils.set_tensor_metadata", set_tensor_metadata, "loaded tensors keep their metadata")]
