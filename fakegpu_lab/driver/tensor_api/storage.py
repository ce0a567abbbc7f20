"""Storages of device tensors, as ``t.untyped_storage()`` returns them.

The storage object of a device tensor's inner tensor *is* its device storage: `of` changes the object's class to
`DeviceStorage`, which describes the device memory. So identity, sharing, ``_cdata`` and reference counts need no code:
torch keeps one Python object for a C++ storage as long as that lives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base import current, sync_debug
from fakegpu_lab.driver.base.changes import replaced, wrapped
from fakegpu_lab.driver.base.device_memory import resize_bytes, take_bytes
from fakegpu_lab.driver.base.metadata import sync_metadata
from fakegpu_lab.driver.base.privateuse1 import CUDA_DEVICES
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, inner_of, share, wrap_view
from fakegpu_lab.driver.copies import transfer
from fakegpu_lab.driver.cost.launching import kernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op
    from fakegpu_lab.hardware.buffer import Buffer
    from fakegpu_lab.hardware.device import Device

_Base: Any = torch._C.StorageBase  # torch's stubs have little of it
_Untyped: Any = torch.UntypedStorage
_base_new = _Base.__new__
_base_copy = _Base.copy_


class DeviceStorage(torch.UntypedStorage):
    """The storage of a device tensor: its C++ half has the values, on the host; its methods describe the device.

    Attributes
    ----------
    _buffer
        The device memory.
    _start
        The byte at which this storage begins in it; a slice of a storage shares the memory.
    is_slice
        Whether it is a slice of another storage.
    """

    _buffer: Buffer
    _start = 0
    is_slice = False
    _size: int | None = None

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """``cuda:i``."""
        return CUDA_DEVICES[self._buffer.device.index]

    @property
    def is_cuda(self) -> bool:
        """True."""
        return True

    def data_ptr(self) -> int:
        """The device address."""
        return self._buffer.address + self._start if self.nbytes() else 0

    def is_shared(self) -> bool:
        """True: any CUDA storage can be sent to another process (THPStorage_isShared)."""
        return True

    def cpu(self) -> torch.UntypedStorage:
        """A copy on the host."""
        usable(self)  # also when the machine, and with it the patched `copy_`, is gone
        return _Untyped.cpu(self)  # type: ignore[no-any-return]

    def resize_(self, size: int) -> DeviceStorage:
        """Give the storage `size` bytes; 0 frees its device memory (as FSDP does with a layer's parameters)."""
        usable(self)
        resize_bytes(self._buffer, size)  # the device is asked before the host
        if size > _Base.nbytes(self):
            _Base.resize_(self, size)
        self._size = size  # the host keeps the bytes: tensors that still point at them would read freed memory
        return self

    def nbytes(self) -> int:
        """Its size in bytes."""
        size: int | None = self._size
        return int(_Base.nbytes(self)) if size is None else size

    def size(self) -> int:
        """Its size in bytes."""
        return self.nbytes()

    def __len__(self) -> int:
        return self.nbytes()

    def fill_(self, value: Any) -> DeviceStorage:
        """Set every byte."""
        kernel(usable(self))
        if not is_meta(self):
            _Base.fill_(self, value)
        return self

    def __getitem__(self, index: Any) -> Any:
        device = usable(self)
        if isinstance(index, slice):
            start = self._start + index.indices(self.nbytes())[0]
            part = adopt(_Base.__getitem__(self, index), self._buffer, start)
            part.is_slice = True
            return part
        _need_values(self)
        sync_debug.synchronizing()
        transfer.count_copy(device, None, 1)
        return _Base.__getitem__(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        _need_values(self)
        transfer.count_copy(None, usable(self), 1)
        _Base.__setitem__(self, index, value)

    def _write_file(self, *args: Any, **kwargs: Any) -> None:
        _need_values(self)
        transfer.count_copy(usable(self), None, self.nbytes())
        _Base._write_file(self, *args, **kwargs)

    def _set_from_file(self, *args: Any, **kwargs: Any) -> None:
        transfer.count_copy(None, usable(self), self.nbytes())
        _Base._set_from_file(self, *args, **kwargs)


# For print(type(storage)) and for files, which name the class; on a real card it is torch.storage.UntypedStorage.
DeviceStorage.__name__ = DeviceStorage.__qualname__ = "UntypedStorage"
DeviceStorage.__module__ = "torch.storage"


def of(tensor: FakeCudaTensor) -> DeviceStorage:
    """The storage of a device tensor: ``tensor.untyped_storage()``."""
    storage = tensor._inner.untyped_storage()
    return storage if storage.__class__ is DeviceStorage else adopt(storage, tensor._buffer)


def adopt(storage: torch.UntypedStorage, buffer: Buffer, start: int = 0) -> DeviceStorage:
    """Make `storage`, whose values are on the host, the device storage at byte `start` of `buffer`."""
    storage.__class__ = DeviceStorage
    adopted: DeviceStorage = storage  # type: ignore[assignment]
    adopted._buffer = buffer
    adopted._start = start
    return adopted


def usable(storage: DeviceStorage) -> Device:
    """Its device; raises if the machine is gone."""
    device = storage._buffer.device
    if device.retired:
        raise device_asserts.retired_error(device)
    return device


def is_meta(storage: torch.UntypedStorage) -> bool:
    """Whether there are no values behind it."""
    return bool(_Base.device.__get__(storage).type == "meta")


def _need_values(storage: DeviceStorage) -> None:
    if is_meta(storage):
        raise transfer.no_values("Reading a storage")


def new(cls: type[torch.UntypedStorage], *args: Any, **kwargs: Any) -> torch.UntypedStorage:
    """`torch.UntypedStorage.__new__`, also for ``device="cuda:1"``, which C++ refuses in a CPU build.

    A device storage's type makes storages of the host, too, as it does on CUDA, where all have one type.
    """
    where = kwargs.get("device")
    if where is None or not current.is_ours(where := torch.device(where)):
        cls = torch.UntypedStorage if cls is DeviceStorage else cls
        return _base_new(cls, *args, **kwargs)  # type: ignore[no-any-return]
    device = current.device(where.index)
    del kwargs["device"]
    buffer = take_bytes(device, args[0]) if args and isinstance(args[0], int) else None
    host = _base_new(torch.UntypedStorage, *args, device="meta" if current.meta() else "cpu", **kwargs)
    return adopt(host, buffer if buffer is not None else take_bytes(device, host.nbytes()))


def copy_(self: torch.UntypedStorage, source: Any, non_blocking: bool | None = None) -> torch.UntypedStorage:
    """`UntypedStorage.copy_`, which counts copies to, from and between devices."""
    destination = usable(self) if isinstance(self, DeviceStorage) else None
    origin = usable(source) if isinstance(source, DeviceStorage) else None
    if destination is None and origin is None:
        return _base_copy(self, source, bool(non_blocking))  # type: ignore[no-any-return]
    if (destination is None or origin is None) and not non_blocking:
        sync_debug.synchronizing()
    if is_meta(source):
        if not is_meta(self) and not current.meta():
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        if not is_meta(self):
            raise transfer.no_values("Copying to the host")
    elif not is_meta(self):
        _base_copy(self, source, bool(non_blocking))
    transfer.count_copy(origin, destination, self.nbytes())
    return self


_MISMATCH = (
    'Attempted to set the storage of a tensor on device "{}" to a storage on different device "{}".  '
    "This is no longer allowed; the devices must match."
)


def set_(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``t.set_(storage, …)``, ``t.set_(other)``, ``t.set_()``: give a device tensor another storage."""
    target, *rest = args
    rest += kwargs.values()  # in the schema's order: `source` is never a keyword alone
    source = rest[0] if rest else None
    where = "cpu" if source is None else source.device
    if target.__class__ is not FakeCudaTensor or (source is not None and where != target.device):
        raise RuntimeError(_MISMATCH.format(target.device, where))
    device = transfer.usable(target)._device
    if source is None:
        op.func._op(target._inner)
        buffer = take_bytes(device, 0)
    elif isinstance(source, torch.Tensor):
        source = transfer.usable(source)
        op.func._op(target._inner, source._inner, *rest[1:])
        buffer = source._buffer
    else:
        op.func._op(target._inner, source, *rest[1:])
        buffer = source._buffer
    target._buffer = buffer
    sync_metadata(target)
    share(target, source if source.__class__ is FakeCudaTensor else wrap_view(target._inner, device, buffer))
    return target


_base_set = torch._C.TensorBase.set_


def tensor_set_(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """`Tensor.set_`, which must refuse a device storage for a CPU tensor: its C++ half is a host storage."""
    source = args[0] if args else kwargs.get("source")
    if source.__class__ is torch.storage.TypedStorage:
        source = source._untyped_storage
    if source.__class__ is DeviceStorage and self.__class__ is not FakeCudaTensor:
        raise RuntimeError(_MISMATCH.format(self.device, source.device))
    return _base_set(self, *args, **kwargs)


def untyped_storage(self: FakeCudaTensor) -> DeviceStorage:
    """`Tensor.untyped_storage`."""
    return of(transfer.usable(self))


def is_storage(obj: Any, /) -> bool:
    """`torch.is_storage`, which checks for the exact class."""
    return obj.__class__ is DeviceStorage or _is_storage(obj)


_is_storage = torch.is_storage


def wrapped_storage(self: Any, storage: torch.UntypedStorage) -> Any:
    """`TypedStorage._new_wrapped_storage`, which checks for the exact class."""
    if storage.__class__ is not DeviceStorage:
        return _wrapped(self, storage)
    if type(self) is torch.TypedStorage:
        return torch.TypedStorage(wrap_storage=storage, dtype=self.dtype, _internal=True)  # type: ignore[no-untyped-call]
    return type(self)(wrap_storage=storage)


_wrapped: Any = torch.TypedStorage._new_wrapped_storage


def _of_values(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    """A question about a tensor's storage that is answered by its values, for lazy clones.

    Simplified: the values are copied on the first write, as on CUDA, but a lazy clone takes its device memory at once.
    """
    return lambda tensor: function(inner_of(tensor))


_WHY = "device tensors have device storages"
CHANGES = [
    *(wrapped(f"torch._C.{name}", _of_values, _WHY) for name in ("_is_cow_tensor", "_data_address")),
    replaced("torch.TypedStorage._new_wrapped_storage", wrapped_storage, _WHY),
    replaced("torch.is_storage", is_storage, _WHY),
    replaced("torch.UntypedStorage.__new__", new, _WHY),
    replaced("torch.UntypedStorage.copy_", copy_, _WHY),
    replaced("torch.Tensor.set_", tensor_set_, _WHY),
]
