"""Loads, stores and atomic operations of many programs: on the host's memory, within the bounds of the tensors."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from triton._C.libtriton import interpreter as _native

from fakegpu_lab.kernels.launch import IllegalAccess
from fakegpu_lab.kernels.triton_programs.running import now, user_line
from fakegpu_lab.user_code.lines import place

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fakegpu_lab.kernels.triton_programs.running import Running

    Array = NDArray[Any]


def aligned(array: Array, dims: int) -> Array:
    """An array with axes of length 1 at its end, for as many axes as a block has."""
    return array.reshape(array.shape + (1,) * (dims - array.ndim)) if array.ndim < dims else array


def _prepared(
    kind: str, pointers: Array, mask: Array | None, itemsize: int, origin: str
) -> tuple[Running, Array, Array]:
    """Note an access; return host addresses and the mask, of one shape. Raises `IllegalAccess`."""
    running = now[-1]
    addresses = pointers.view(np.int64)
    if mask is not None:
        mask = aligned(mask, addresses.ndim)
        if mask.all():
            mask = None
        else:
            addresses, mask = np.broadcast_arrays(addresses, mask)
    running.accessed(kind, addresses, mask, itemsize)
    on = np.True_ if mask is None else mask
    if mask is not None and not mask.any():
        return running, addresses, np.broadcast_to(on, addresses.shape)
    stretches = running.memory.stretches
    lowest = int(addresses.min(initial=1 << 62, where=on))
    highest = int(addresses.max(initial=0, where=on))
    one = running.memory.at(lowest)
    if one is not None and highest + itemsize <= one.end and origin in ("", one.name):
        if kind != "load":
            running.written.add(stretches.index(one))
        host = addresses + (one.host - one.start)
    else:
        owners = running.memory.owners(addresses, itemsize)
        wrong = owners < 0
        if origin:
            named = [place for place, stretch in enumerate(stretches) if stretch.name == origin]
            if named:
                wrong = owners != named[0]
        wrong = wrong & on
        if wrong.any():
            raise IllegalAccess(_sentence(running, kind, addresses, wrong, itemsize, origin))
        shifts = np.array([stretch.host - stretch.start for stretch in stretches], dtype=np.int64)
        host = addresses + shifts[np.where(on, owners, 0)]
        if kind != "load":
            running.written.update(int(owner) for owner in np.unique(owners[np.broadcast_to(on, owners.shape)]))
    return running, host, np.broadcast_to(on, addresses.shape)


def _sentence(running: Running, kind: str, addresses: Array, wrong: Array, itemsize: int, origin: str) -> str:
    """Which program accesses what outside its tensors, at which line."""
    where = np.argwhere(wrong)[0]
    address = int(addresses[tuple(where)])
    program = running.place_of(int(running.ids[where[0] if len(addresses) > 1 else 0]))
    extents = [extent for extent in running.grid if extent > 1] or [1]
    name = str(program[0]) if len(extents) == 1 and running.grid[0] > 1 else f"({', '.join(map(str, program))})"
    if running.grid == (1, 1, 1):
        name = "0"
    named = next((one for one in running.memory.stretches if one.name == origin), None)
    stretch = named or running.memory.nearest(address)
    line = place("{}:{}".format(*user_line()))
    verb = {"load": "loads", "store": "stores", "atomic": "updates"}[kind]
    many = int(wrong.sum())
    more = f" ({many - 1:,} more elements are outside, too)" if many > 1 else ""
    if stretch is None:
        return f"Program {name} {verb} from address {address:#x}, which belongs to no tensor, at {line.label}."
    index = (address - stretch.start) // stretch.itemsize
    last = (stretch.end - stretch.start) // stretch.itemsize - 1
    return (
        f"Program {name} {verb} {stretch.name}[{index}] at {line.label}: {line.text}. {stretch.name}'s memory has "
        f"elements 0 to {last}{more}: is the mask missing or too wide?"
    )


def load(pointers: Array, mask: Array | None, other: Array | None, dtype: Any, origin: str) -> Array:
    """Load blocks; elements that are masked off have the value of `other`, or 0."""
    _, host, on = _prepared("load", pointers, mask, dtype.itemsize, origin)
    if other is None:
        other = np.zeros(host.shape, dtype)
    found: Array = _native.load(
        np.ascontiguousarray(host).view(np.uint64),
        np.ascontiguousarray(on),
        np.ascontiguousarray(np.broadcast_to(aligned(other, host.ndim), host.shape)),
        dtype,
    )
    return found


def store(pointers: Array, values: Array, mask: Array | None, origin: str) -> None:
    """Store blocks; of programs that store to the same element, the last one wins."""
    running = now[-1]
    together = len(running.ids)
    if len(pointers) == 1 and len(values) > 1:
        pointers = np.broadcast_to(pointers, (together, *pointers.shape[1:]))
    running, host, on = _prepared("store", pointers, mask, values.dtype.itemsize, origin)
    shape = np.broadcast_shapes(host.shape, values.shape)
    where = np.ascontiguousarray(np.broadcast_to(host, shape)).view(np.uint64)
    on = np.ascontiguousarray(np.broadcast_to(on, shape))
    if together > 1:
        before = _native.load(where, on, np.zeros(shape, values.dtype), values.dtype)
        running.stored(partial(_native.store, where[::-1], before[::-1], on[::-1]))
    _native.store(where, np.ascontiguousarray(np.broadcast_to(values, shape)), on)


def update(operation: Callable[..., Array], pointers: Array, values: Array, mask: Array | None, origin: str) -> Array:
    """An atomic operation, in the order of the programs; returns the values before."""
    together = len(now[-1].ids)
    shape = np.broadcast_shapes((together,) + (1,) * (pointers.ndim - 1), pointers.shape, values.shape)
    pointers = np.broadcast_to(pointers, shape)
    running, host, on = _prepared("atomic", pointers, mask, values.dtype.itemsize, origin)
    where = np.ascontiguousarray(host).view(np.uint64)
    on = np.ascontiguousarray(np.broadcast_to(on, shape))
    if together > 1:
        before = _native.load(where, on, np.zeros(shape, values.dtype), values.dtype)
        running.stored(partial(_native.store, where, before, on))
    return operation(where, np.ascontiguousarray(np.broadcast_to(values, shape)), on)
