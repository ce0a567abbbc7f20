"""TorchScript: `torch.jit.save` and `torch.jit.load` of models on a device, and moving them.

C++ writes the files. It writes the name of our C++ device where a CUDA machine writes ``cuda``, and reads the tensors'
C++ halves, which have no values. So it gets the values while it saves, and the records are corrected afterwards. When
it loads, it makes C++ halves on the storages of tensors that it moved to the device; they get their values afterwards.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.jit import _serialization
from torch.utils._python_dispatch import TorchDispatchMode

from fakegpu_lab.driver.base import live_objects
from fakegpu_lab.driver.base.changes import replaced, wrapped
from fakegpu_lab.driver.base.privateuse1 import NAME
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.tensor_api import storage
from fakegpu_lab.driver.tensor_api.constructors import with_index

if TYPE_CHECKING:
    from collections.abc import Callable


_own_storage = torch._C.TensorBase.untyped_storage


def _shadows() -> dict[int, FakeCudaTensor]:
    """All device tensors by the storages of their C++ halves, the only way to find the constants in a graph."""
    tensors = [tensor for tensor in live_objects.live([FakeCudaTensor]) if tensor.layout is torch.strided]
    return {_own_storage(tensor)._cdata: tensor for tensor in tensors}


def _renamed(name: str, record: bytes) -> bytes:
    """A record of the archive, with ``cuda:1`` in place of our C++ device's name."""
    ours = NAME.encode()
    if name.endswith(".pkl"):  # BINUNICODE: the length precedes the text

        def string(match: re.Match[bytes]) -> bytes:
            device = b"cuda" + match[1]
            return b"X" + len(device).to_bytes(4, "little") + device

        return re.sub(rb"X[\x07-\x0a]\x00\x00\x00" + ours + rb"(:\d+|)", string, record)
    if name.endswith(".py"):  # padded to the same length, because the debug records count its bytes
        return re.sub(rb'"' + ours + rb'(:\d+|)"\)', rb'"cuda\1")' + b" " * (len(ours) - len("cuda")), record)
    return record


def _saved(save: Callable[..., bytes]) -> Callable[..., bytes]:
    """A ``save_to_buffer`` whose result names CUDA devices."""

    def save_to_buffer(self: Any, *args: Any, **kwargs: Any) -> bytes:
        storage.shadows.update(_shadows())
        try:
            data = save(self, *args, **kwargs)
        finally:
            storage.shadows.clear()
        return _rewritten(data)

    return save_to_buffer


def _rewritten(archive: bytes) -> bytes:
    reader = torch._C.PyTorchFileReader(io.BytesIO(archive))
    records = {name: reader.get_record(name) for name in reader.get_all_records()}
    corrected = {name: _renamed(name, record) for name, record in records.items()}
    if corrected == records:
        return archive
    buffer = io.BytesIO()
    writer = torch._C.PyTorchFileWriter(buffer)
    for name, record in corrected.items():
        if name not in ("version", ".data/serialization_id"):  # the writer's own
            writer.write_record(name, record, len(record))
    writer.write_end_of_file()
    return buffer.getvalue()


def _to_file(save_to_buffer: Callable[..., bytes]) -> Callable[..., None]:
    def save(self: Any, f: Any, _extra_files: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if _extra_files is not None:
            kwargs["_extra_files"] = _extra_files
        data = save_to_buffer(self, **kwargs)
        Path(f).write_bytes(data)

    return save


class _FillValues(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives values to the device tensors that the unpickler makes (rebuildTensor in torch/csrc/jit/serialization).

    The unpickler moves a flat tensor with a storage's values to the device, then sets storage, sizes and strides of
    empty tensors in C++, below the dispatcher, and detaches them. The storage identifies the flat tensor.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._flat: dict[
            int, FakeCudaTensor
        ] = {}  # by the address of the C++ half's storage, which the tensor keeps alive

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if args and type(args[0]) is FakeCudaTensor:
            self._fill(args[0])
        result = func(*args, **(kwargs or {}))
        if type(result) is FakeCudaTensor:
            self._flat[_own_storage(result)._cdata] = result
        return result

    def _fill(self, tensor: FakeCudaTensor) -> None:
        inner = tensor._inner
        flat = self._flat.get(_own_storage(tensor)._cdata)
        if flat is not None and (inner.shape != tensor.shape or inner.stride() != tensor.stride()):
            tensor._inner = flat._inner.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
            tensor._buffer = flat._buffer


def _loaded(load: Callable[..., Any]) -> Callable[..., Any]:
    """An ``import_ir_module`` whose device tensors have values."""

    def import_ir_module(*args: Any, **kwargs: Any) -> Any:
        with _FillValues():
            return load(*args, **kwargs)

    return import_ir_module


def apply(self: Any, fn: Any, recurse: bool = True) -> Any:
    """`ScriptModule._apply`, which gives C++ the new C++ tensor of a moved parameter (`conversion.become`)."""
    parameters = list(self._parameters.items())
    _apply(self, fn, recurse)  # type: ignore[no-untyped-call]
    for name, parameter in parameters:
        self._c.setattr(name, parameter)
    return self


_apply = torch.nn.Module._apply


def validate_map_location(map_location: Any = None) -> Any:
    """`torch.jit`'s check, with an index for ``cuda``, for which C++ would call the missing CUDA device guard."""
    return with_index(_validate_map_location(map_location))  # type: ignore[no-untyped-call]


_validate_map_location = _serialization.validate_map_location


def _saving(cls: Any) -> Callable[[Any], Any]:
    """`save` is C++'s own: it does not call the changed `save_to_buffer`."""
    return lambda original: _to_file(_saved(cls.save_to_buffer))


CHANGES = [
    *(
        row
        for cls in (torch._C.ScriptModule, torch._C.ScriptFunction)
        for row in (
            wrapped(f"torch._C.{cls.__name__}.save", _saving(cls), "files name CUDA"),
            wrapped(f"torch._C.{cls.__name__}.save_to_buffer", _saved, "files name CUDA"),
        )
    ),
    *(
        wrapped(f"torch._C.{name}", _loaded, "files of CUDA can be loaded")
        for name in ("import_ir_module", "import_ir_module_from_buffer")
    ),
    replaced("torch.jit.ScriptModule._apply", apply, "scripted modules move to the device"),
    replaced("torch.jit._serialization.validate_map_location", validate_map_location, "CUDA is a place to load to"),
]
