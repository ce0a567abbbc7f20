"""Device tensors in other processes: CUDA IPC, with shared memory of the host behind the device's.

On CUDA a tensor that is sent to another process is not copied. The sender exports a handle to its memory, and the
receiver opens it: both work on the same bytes, which stay the sender's. `torch.multiprocessing.reductions` does this
with two functions of C++, which are here: `share` exports, `open_shared` opens. The values of the sender's storage move
to a file in shared memory, which torch itself makes and removes; the handle is its name.

The receiver's storage takes no memory of the receiver's device. What is simpler than on CUDA: the sender's device
memory is free as soon as the sender drops its last tensor, also if a receiver still has one, whose values stay valid.
"""

from __future__ import annotations

import itertools
import multiprocessing.queues
import types
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.multiprocessing import reductions

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import added, item, recoded, replaced
from fakegpu_lab.driver.base.tensor import DEVICE_TENSORS, FakeCudaTensor
from fakegpu_lab.driver.tensor_api import storage as storages
from fakegpu_lab.hardware.buffer import ReceivedBuffer

if TYPE_CHECKING:
    from fakegpu_lab.driver.tensor_api.storage import DeviceStorage

_Untyped: Any = torch.UntypedStorage
_reduce_tensor: Any = types.FunctionType(reductions.reduce_tensor.__code__, vars(reductions))
_handles = itertools.count(1)
_WITHOUT_VALUES = b"meta"


def move(storage: DeviceStorage) -> tuple[bytes, bytes, int]:
    """Move the values to shared memory, if they are not there yet; return the address of its keeper, and its name."""
    return _Untyped._share_filename_cpu_(storage)  # type: ignore[no-any-return]


def share(storage: DeviceStorage) -> tuple[Any, ...]:
    """`UntypedStorage._share_cuda_`: a handle to its memory, as a tuple that `open_shared` takes in another process."""
    device = storages.usable(storage)
    if isinstance(storage._buffer, ReceivedBuffer):
        raise RuntimeError(
            "Attempted to send CUDA tensor received from another process; this is not currently supported. Consider "
            "cloning before sending."
        )
    if storage.is_slice:
        raise NotImplementedError(
            "A slice of a storage cannot be sent to another process in the simulation: send a tensor over the whole "
            "storage, or a clone."
        )
    size = storage.nbytes()
    handle = None  # nothing to open
    if size and storages.is_meta(storage):
        handle = b"\0".join((_WITHOUT_VALUES, b"%d" % next(_handles)))
    elif size:
        manager, name, _ = move(storage)
        _Untyped._shared_incref(storage)  # the receiver's, who takes it over
        handle = b"\0".join((manager, name))
    return device.index, handle, size, 0, handle, 0, b"", False


def open_shared(index: int, handle: bytes, size: int, *rest: object) -> torch.UntypedStorage:
    """`UntypedStorage._new_shared_cuda`: on device `index`, the storage that another process shares."""
    device = current.device(index)
    manager, name = handle.split(b"\0")
    if manager == _WITHOUT_VALUES:
        host = _Untyped(size, device="meta")
    else:
        host = _Untyped._new_shared_filename_cpu(manager, name, size)
        host._shared_decref()
    return storages.adopt(host, ReceivedBuffer(device, size))


def release(handle: bytes, offset: int) -> None:
    """`UntypedStorage._release_ipc_counter_cuda`: the receiver has the storage already and needs no second count."""
    if not handle.startswith(_WITHOUT_VALUES):
        reductions.storage_from_cache(torch.UntypedStorage, (handle, offset))._shared_decref()  # type: ignore[no-untyped-call]


def reduce_tensor(tensor: torch.Tensor) -> Any:
    """`torch.multiprocessing.reductions.reduce_tensor`, with the type that a device tensor has on CUDA."""
    function, arguments = _reduce_tensor(tensor)
    if function is reductions.rebuild_cuda_tensor and tensor.__class__ is FakeCudaTensor:
        cls = torch.nn.Parameter if isinstance(tensor, torch.nn.Parameter) else torch.Tensor
        return function, (cls, *arguments[1:])
    return function, arguments


def _reduce(tensor: torch.Tensor) -> Any:
    # This code is put into torch's function, which does not know this module's names.
    from fakegpu_lab.driver.tensor_api.interprocess import reduce_tensor

    return reduce_tensor(tensor)


def move_all(value: Any) -> None:
    """Move the values of all tensors in `value`."""
    if value.__class__ is FakeCudaTensor:
        if value.layout is torch.strided and not isinstance(value._buffer, ReceivedBuffer):
            storage = storages.of(value)
            if storage.nbytes() and not storage.is_slice and not storages.is_meta(storage):
                move(storage)
    elif isinstance(value, torch.nn.Module):
        for tensor in (*value.parameters(), *value.buffers()):
            move_all(tensor)
    elif isinstance(value, dict):
        for each in value.values():
            move_all(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            move_all(each)


def put(queue: Any, value: Any, block: bool = True, timeout: float | None = None) -> None:
    """`multiprocessing.Queue.put`: its own thread pickles, and must not move values that this one computes with."""
    move_all(value)
    _put(queue, value, block, timeout)


_put = multiprocessing.queues.Queue.put


def _refuse_host(storage: torch.UntypedStorage) -> NoReturn:
    """The check of THPStorage_shareCuda (torch/csrc/StorageSharing.cpp)."""
    raise RuntimeError("_share_cuda_: only available on CUDA")


_WHY = "a device tensor is sent to another process as on a card"
CHANGES = [
    replaced("torch.UntypedStorage._share_cuda_", _refuse_host, _WHY),
    replaced("torch.UntypedStorage._new_shared_cuda", staticmethod(open_shared), _WHY),
    replaced("torch.UntypedStorage._release_ipc_counter_cuda", staticmethod(release), _WHY),
    added(f"{storages.__name__}.DeviceStorage._share_cuda_", share, _WHY),
    replaced("multiprocessing.queues.Queue.put", put, _WHY),
    recoded("torch.multiprocessing.reductions.reduce_tensor", _reduce, "programs import it before there is a machine"),
    *(
        item("multiprocessing.reduction.ForkingPickler._extra_reducers", cls, lambda _: reductions.reduce_tensor, _WHY)
        for cls in DEVICE_TENSORS
    ),
]
