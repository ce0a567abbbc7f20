"""Copies between host and devices and between devices, and reads of a value by the host.

A transfer copies: the two sides never share storage. A dtype is converted on the source before the copy
(aten/src/ATen/native/cuda/Copy.cu), so a transfer counts the bytes of the destination's dtype.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.asserts import device_asserts, domain_edges
from fakegpu_lab.driver.base import current, graph_capture, sync_debug
from fakegpu_lab.driver.base.device_memory import storage_bytes, take_bytes
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, wrap
from fakegpu_lab.driver.copies import pinned_memory
from fakegpu_lab.driver.cost.launching import kernel, queue
from fakegpu_lab.driver.cost.work import Work, nbytes_of
from fakegpu_lab.hardware.time.clock import here
from fakegpu_lab.hardware.transfers import copies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fakegpu_lab.driver.cost.op import Op
    from fakegpu_lab.hardware.device import Device


_to: Callable[..., torch.Tensor] = torch._C.TensorBase.to


class NoValuesError(RuntimeError):
    """A value was read from a tensor that has none, because the machine computes only shapes and memory."""


def no_values(what: str) -> NoValuesError:
    """The error for reading `what` under ``compute="meta"``."""
    return NoValuesError(
        f'{what} needs values, and this machine was enabled with compute="meta", which keeps shapes, memory and times '
        "but no numbers. Do without the value here, or, in a program of your own, enable the machine with "
        'compute="real" (on the command line, --compute real).'
    )


class _Thread(threading.local):
    """What this thread's next reads of a value return if there are no values (`meta.assumed_values`)."""

    answers: Iterator[Any] = iter(())


thread = _Thread()


def usable(tensor: torch.Tensor) -> FakeCudaTensor:
    """`tensor`, if its device can be used; else raises the device's error."""
    if tensor._device.retired:  # type: ignore[attr-defined]
        raise device_asserts.retired_error(tensor._device)  # type: ignore[attr-defined]
    return tensor  # type: ignore[return-value]


def count_copy(
    source: Device | None, destination: Device | None, nbytes: int, *, pinned: bool = False, non_blocking: bool = False
) -> None:
    """Count one copy and its time; None stands for the host, whose memory may be `pinned`."""
    if graph_capture.capture_copy(source, destination, nbytes, pinned=pinned, non_blocking=non_blocking):
        return
    if source is None and destination is not None:
        copies.to_device(here.host, destination, nbytes, pinned=pinned, non_blocking=non_blocking)
    elif source is not None and destination is None:
        copies.to_host(here.host, source, nbytes, pinned=pinned, non_blocking=non_blocking)
    elif source is not None and destination is not None:
        if source is destination:
            moved = 2 * nbytes
            kernel(source, Work(source.roofline.streaming(moved), 0, moved, source.roofline.share(nbytes // 4)))
        else:
            copies.to_peer(here.host, source, destination, nbytes)


def copy_(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``dst.copy_(src)`` between any two devices, or host and device."""
    target, source = args[0], args[1]
    non_blocking = args[2] if len(args) > 2 else False
    if source.__class__ in _NUMBERS:  # `x.copy_(2.0)`: it comes from the host
        source = torch.tensor(source, dtype=_NUMBERS[source.__class__], device="cpu")
    destination = usable(target)._device if target.__class__ is FakeCudaTensor else None
    origin = usable(source)._device if source.__class__ is FakeCudaTensor else None
    target_inner = target if destination is None else target._inner
    source_inner = source if origin is None else source._inner
    if source_inner.is_meta or target_inner.is_meta:
        source_inner = _on_meta(source_inner, target_inner, from_host=origin is None)
    crosses = (origin is None) is not (destination is None)  # between host and device
    if crosses and not non_blocking:
        if sync_debug.mode and target.numel():
            sync_debug.synchronizing()
        device_asserts.check(destination or origin)  # type: ignore[arg-type]
    if origin is not None:  # a copy to the host converts on the device, too (cuda/Copy.cu, copy_kernel_cuda)
        source_inner = _as_integer(source_inner, target.dtype)
    target_inner.copy_(source_inner)
    if crosses and origin is None:
        target._buffer.kind = "input"
        if target._device.timeline.recorder is not None:
            _record_shape(target)
    if target.numel():
        on_host = source if origin is None else target
        pinned = crosses and pinned_memory.is_pinned_tensor(on_host)
        count_copy(origin, destination, nbytes_of(target_inner), pinned=pinned, non_blocking=non_blocking)
        if pinned and non_blocking:
            pinned_memory.copies_until(on_host, here.host.streams[origin or destination].end)
    return target


def _record_shape(target: FakeCudaTensor) -> None:
    """Tell a recording what came into a block that `.to` has allocated, which is no op's result."""
    recorder, block = target._device.timeline.recorder, target._buffer.block
    while recorder is not None and block is not None:
        recorder.made(block.address, target.shape, target.dtype)
        recorder = recorder.outer


_NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}


def _on_meta(source: torch.Tensor, target: torch.Tensor, *, from_host: bool) -> torch.Tensor:
    """`source` on meta, for `copy_` between tensors of which at least one has no values."""
    if source.is_meta and from_host:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    if not target.is_meta:
        raise no_values("Copying to the host")
    return source.to("meta")


def to_copy(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``.to(...)`` that has to copy: to another device, dtype or memory format."""
    source = usable(args[0])
    dtype = kwargs.get("dtype")
    if len(kwargs) == 1 and dtype is not None and dtype is not source._inner.dtype and not source._unusual:
        return _convert(source, dtype)
    options = {k: v for k, v in kwargs.items() if v is not None and k in ("dtype", "layout", "memory_format")}
    if source._inner.layout is not torch.strided:  # to C++, the wrapper is strided
        options.pop("layout", None)
    where = kwargs.get("device")
    if where is None:
        return _to_device(source, source._device, options)
    if current.is_ours(where):
        return _to_device(source, current.device(where.index), options)
    if where.type == "meta":
        return torch.ops.aten._to_copy.default(source._inner, device=where, **options)
    return _to_host(source, where, options, non_blocking=bool(kwargs.get("non_blocking")))


def _to_device(source: FakeCudaTensor, destination: Device, options: dict[str, Any]) -> FakeCudaTensor:
    """A copy of `source` on `destination`, with the dtype, layout and memory format in `options`."""
    if destination.retired:
        raise device_asserts.retired_error(destination)
    dense = source._inner.layout is torch.strided
    nbytes = source._inner.numel() * (options.get("dtype") or source.dtype).itemsize if dense else 0
    buffer = take_bytes(destination, nbytes)  # the parts of a sparse tensor get theirs in `wrap`
    inner = torch.ops.aten._to_copy.default(_as_integer(source._inner, options.get("dtype")), **options)
    nbytes = nbytes or storage_bytes(inner)
    if nbytes:
        count_copy(source._device, destination, nbytes)
    return wrap(inner, destination, buffer)


def _to_host(
    source: FakeCudaTensor, where: torch.device, options: dict[str, Any], *, non_blocking: bool
) -> torch.Tensor:
    """A copy of `source` on the host; asynchronous, it lands in pinned memory (`_to_copy`, TensorConversions.cpp)."""
    if source._inner.is_meta:
        raise no_values("Copying to the host")
    if not non_blocking:
        if sync_debug.mode and source.numel():
            sync_debug.synchronizing()
        device_asserts.check(source._device)
    values = _as_integer(source._inner, options.get("dtype"))
    inner: torch.Tensor = torch.ops.aten._to_copy.default(values, device=where, **options)
    asynchronous = non_blocking and inner.layout is torch.strided
    if asynchronous:
        pinned_memory.pin(inner)
    if inner.numel():
        count_copy(source._device, None, storage_bytes(inner), pinned=asynchronous, non_blocking=asynchronous)
    if asynchronous:
        pinned_memory.copies_until(inner, here.host.streams[source._device].end)
    return inner


def _convert(source: FakeCudaTensor, dtype: torch.dtype) -> FakeCudaTensor:
    """Only another dtype, as in autocast's casts: the tensor's method is twice as fast as the op."""
    device, inner = source._device, source._inner
    elements = inner.numel()
    nbytes = elements * dtype.itemsize
    moved = inner.nbytes + nbytes
    if not dtype.is_floating_point:
        inner = _as_integer(inner, dtype)
    buffer = take_bytes(device, nbytes)
    if nbytes:
        roofline = device.roofline
        queue(device, (roofline.streaming(moved), roofline.share(elements), 0, moved))
    return wrap(_to(inner, dtype), device, buffer)


def _as_integer(source: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    """`source`, converted as CUDA converts floats to integers if `dtype` is an integer; else itself."""
    if dtype is None or dtype.is_floating_point or not source.is_floating_point():
        return source
    return domain_edges.to_integer(source, dtype)


def local_scalar_dense(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``.item()``: one element to the host."""
    source = usable(args[0])
    graph_capture.forbid_wait((here.host.streams[source._device],))
    sync_debug.synchronizing()
    if source._inner.is_meta:
        answer = next(thread.answers, None)
        if answer is None:
            raise no_values("Reading a tensor's value (item, bool, int, float)")
        count_copy(source._device, None, source.element_size())
        return answer
    device_asserts.check(source._device)
    count_copy(source._device, None, source.element_size())
    return torch.ops.aten._local_scalar_dense.default(source._inner)


def is_pinned(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Device memory is never pinned host memory."""
    return False


def pin_memory(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Raises CUDA's error."""
    raise RuntimeError(f"cannot pin '{args[0].type()}' only dense CPU tensors can be pinned")


def record_stream(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """After the tensor is freed, do not reuse its block until that stream has reached this point."""
    source = usable(args[0])
    if source._buffer.block is not None:
        source._device.allocator.record_stream(source._buffer.block, args[1].stream_id)


def pack_padded_sequence(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Pack a padded batch; lengths and batch sizes stay on the host (PackedSequence.cpp)."""
    source, lengths = args[0], args[1]
    if lengths.device.type != "cpu" or lengths.dtype is not torch.int64 or lengths.dim() != 1:
        kind = lengths.type().rpartition(".")[2].removesuffix("Tensor")
        raise RuntimeError(
            "'lengths' argument should be a 1D CPU int64 tensor, but got "
            f"{lengths.dim()}D {lengths.device} {kind} tensor"
        )
    device = usable(source)._device
    packed, batch_sizes = op.func._op(source._inner, *args[1:], **kwargs)
    kernel(device)
    return wrap(packed, device, take_bytes(device, packed.nbytes)), batch_sizes
