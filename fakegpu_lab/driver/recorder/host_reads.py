"""Finds uses on the host of a tensor that an asynchronous copy from a device may still be filling.

``y = x.to("cpu", non_blocking=True)`` returns before the copy is done: on a GPU, ``y`` may hold garbage until the host
has waited for the copy. While recording, such a tensor has the class `FillingTensor`, so torch tells us of every
function that is called with it; all other tensors cost nothing.

Simplified: found are uses by torch's functions of the tensor that the copy filled, and of views made of it since. Not
found are views and NumPy arrays from before the copy, storages and addresses, parameters, and copies that a CUDA graph
replays. Sending the tensor back to a device is no use by the host, and is not checked. The values that the simulation
returns are always the right ones.
"""

from __future__ import annotations

import sys
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, tensors_of
from fakegpu_lab.driver.copies import pinned_memory
from fakegpu_lab.hardware.time.clock import here
from fakegpu_lab.hardware.time.happens_before import HOST, Use
from fakegpu_lab.hardware.time.recorder import UNKNOWN_NOTE

if TYPE_CHECKING:
    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.time.records import Note

_set_class: Any = object.__dict__["__class__"].__set__

_KEY = "_filled_by"
_READ_BY_PYTHON = frozenset({
    "__array__", "__deepcopy__", "__dlpack__", "__reduce_ex__", "__repr__", "__str__", "numpy", "tolist",
})  # fmt: skip
"""Functions that read a tensor without an op."""
_ONLY_SHAPES = ("_like", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros")
_called: dict[str, Any] = {}
"""By the names of functions, stand-ins for an op in `Host.op`: a recorder's note has the name."""


class _Filling:
    """The copy that fills a storage: its use of the device, which ends when the storage is filled."""

    def __init__(self, device: Device, use: Use) -> None:
        self.device = device
        self.use = use

    def done(self) -> bool:
        """Whether the calling thread knows that the copy is done."""
        return bool(here.host.seen.get(self.use.stream, -1) >= self.use.end)


class FillingTensor(torch.Tensor):
    """A host tensor that a copy may still be filling; the next function after that makes it a plain tensor again."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function with plain tensors, and report it if it uses values that may not be there yet."""
        kwargs = kwargs or {}
        tensors = [tensor for tensor in tensors_of((args, kwargs)) if tensor.__class__ is cls]
        for tensor in tensors:
            _set_class(tensor, torch.Tensor)
        tensors = [tensor for tensor in tensors if _filling(tensor) is not None]
        if not tensors:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "a function")
        uses = _Uses()
        if name in _READ_BY_PYTHON:
            uses.found = {id(filling): (filling, False) for filling in map(_filling, tensors)}
        try:
            with uses:
                result = func(*args, **kwargs)
        finally:
            for tensor in tensors:
                _watch(tensor)
        for filling, is_write in uses.found.values():
            _report(filling, name, args, sys._getframe(1), is_write)
        for made in tensors_of(result):
            if made.__class__ is torch.Tensor and _filling(made) is not None:
                _watch(made)  # a view
        return result


FillingTensor.__name__ = FillingTensor.__qualname__ = "Tensor"
FillingTensor.__module__ = "torch"

_watched: weakref.WeakValueDictionary[int, torch.Tensor] = weakref.WeakValueDictionary()
"""By their ids: a dictionary of tensors would compare them."""


def _watch(tensor: torch.Tensor) -> None:
    if tensor.__class__ is torch.Tensor:
        _set_class(tensor, FillingTensor)
        _watched[id(tensor)] = tensor


class _Uses(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects the copies that are still filling what ops on the host use; `found` says whether an op writes to it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[int, tuple[Any, bool]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the op."""
        kwargs = kwargs or {}
        if not (func.is_view or func._opname.endswith(_ONLY_SHAPES) or _on_device(args, kwargs)):
            arguments = func._schema.arguments
            for argument, value in [*zip(arguments, args, strict=False), *((None, value) for value in kwargs.values())]:
                for tensor in tensors_of(value):
                    filling = _filling(tensor)
                    if filling is not None:
                        is_write = argument is None or argument.alias_info is not None
                        self.found.setdefault(id(filling), (filling, is_write))
        return func(*args, **kwargs)


def _on_device(args: Any, kwargs: dict[str, Any]) -> bool:
    where = kwargs.get("device")
    return current.is_ours(where) or any(tensor.__class__ is FakeCudaTensor for tensor in tensors_of((args, kwargs)))


def _filling(tensor: torch.Tensor) -> _Filling | None:
    """The copy that may still be filling a tensor."""
    if tensor.__class__ is FakeCudaTensor or tensor.layout is not torch.strided or tensor.is_meta:
        return None
    known = tensor.untyped_storage().__dict__
    filling: _Filling | None = known.get(_KEY)
    if filling is not None and (filling.done() or filling.device.timeline.recorder is None):
        del known[_KEY]
        return None
    return filling


def _report(filling: _Filling, name: str, args: Any, frame: Any, is_write: bool) -> None:
    op = _called.setdefault(name, SimpleNamespace(_schema=SimpleNamespace(name=name)))
    host = here.host
    before = host.op, host.note
    host.op, host.note = (op, args, frame), None
    try:
        recorder = filling.device.timeline.recorder
        while recorder is not None:
            use = Use(HOST, filling.use.end, recorder.notes.get(recorder.note(host), UNKNOWN_NOTE))
            kind = "write after write" if is_write else "read after write"
            recorder.race(kind, filling.device.index, filling.use, use)
            recorder = recorder.outer
    finally:
        host.op, host.note = before


def follow(args: tuple[Any, ...], kwargs: dict[str, Any], result: torch.Tensor, note: Note) -> None:
    """Watch the host tensor that a copy from a device has just been launched to fill, if that is asynchronous."""
    source = next((value for value in args if value.__class__ is FakeCudaTensor), None)
    asynchronous = kwargs.get("non_blocking") or (len(args) > 2 and args[2])
    if source is None or not asynchronous or not result.numel() or not pinned_memory.is_pinned_tensor(result):
        return
    stream = here.host.streams[source._device]
    if stream.capture is None:
        setattr(result.untyped_storage(), _KEY, _Filling(source._device, Use(stream, stream.end, note)))
        _watch(result)


def forget() -> None:
    """Make all watched tensors plain again: nobody records any more."""
    for tensor in list(_watched.values()):
        if tensor.__class__ is FillingTensor:
            _set_class(tensor, torch.Tensor)
    _watched.clear()
