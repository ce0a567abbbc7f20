"""Recognises a host tensor that is sent to a device again; used while `lab.record` is on."""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.tensor import FakeCudaTensor

if TYPE_CHECKING:
    from fakegpu_lab.hardware.time.clock import Host

_MOST = 10_000
_numbers = itertools.count(1)
_known: dict[tuple[Any, ...], tuple[weakref.ref[torch.Tensor], int]] = {}


def tensor_number(host: Host) -> int:
    """A number for the host tensor of the copy that a thread is running: equal for the same, unchanged tensor.

    A view is identified by its base and its place in it. 0 without such a tensor.
    """
    if host.op is None:
        return 0
    found = [a for a in host.op[1] if isinstance(a, torch.Tensor) and not isinstance(a, FakeCudaTensor)]
    if len(found) != 1:
        return 0
    tensor = found[0]
    base = tensor._base if tensor._base is not None else tensor
    key = (id(base), tensor.storage_offset(), tuple(tensor.shape), tensor.dtype, tensor._version)
    known = _known.get(key)
    if known is not None and known[0]() is base:
        return known[1]
    if len(_known) >= _MOST:
        _known.clear()
    number = next(_numbers)
    _known[key] = weakref.ref(base), number
    return number
