"""Loads, stores and atomic operations of many programs: on the host's memory, within the bounds of the tensors."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from triton._C.libtriton import interpreter as _native

from fakegpu_lab.kernels.launch import IllegalAccess
from fakegpu_lab.kernels.triton_programs.running import now, user_line
from fakegpu_lab.user_code.frames import place

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.kernels.pointers import Stretch
    from fakegpu_lab.kernels.triton_programs.running import Running

Array = Any


def aligned(array: Array, dims: int) -> Array:
    """An array with axes of length 1 at its end, for as many axes as a block has."""
    return array.reshape(array.shape + (1,) * (dims - array.ndim)) if array.ndim < dims else array


class _Access(NamedTuple):
    """An access within the bounds of the tensors.

    `places` are numbers of elements in `values`, those of the stretch `one`; None if the access is to several tensors,
    or not aligned: then `host` has addresses of the host.
    """

    one: Stretch | None
    mask: Array | None
    places: Array | None
    values: Array
    host: Array


_NOTHING = np.zeros(0)


def _prepared(kind: str, pointers: Array, mask: Array | None, dtype: Any, origin: str) -> _Access:
    """Note an access, and find the memory of the host. Raises `IllegalAccess`."""
    running = now[-1]
    itemsize = dtype.itemsize
    addresses = pointers.view(np.int64)
    if running.memory.tried:
        addresses = running.memory.inside(addresses, origin)
    if mask is not None:
        mask = aligned(mask, addresses.ndim)
        if mask.all():
            mask = None
        else:
            addresses, mask = np.broadcast_arrays(addresses, mask)
    running.accessed(kind, addresses, mask, itemsize)
    if mask is None:
        lowest, highest = int(addresses.min()), int(addresses.max())
    elif mask.any():
        lowest = int(addresses.min(initial=1 << 62, where=mask))
        highest = int(addresses.max(initial=0, where=mask))
    else:
        return _Access(None, mask, np.zeros(addresses.shape, np.int64), np.zeros(1, dtype), _NOTHING)
    one = running.memory.at(lowest)
    given = running.memory.given.get(origin, one)
    if one is not None and given is not None and highest + itemsize <= one.end and given.start == one.start:
        if kind != "load":
            running.written.add(running.memory.stretches.index(one))
        offsets = addresses - one.start
        if (lowest - one.start) % itemsize == 0 == (highest - one.start) % itemsize:
            places = offsets >> (itemsize.bit_length() - 1)
            if mask is not None:
                places = np.where(mask, places, 0)
            if kind != "store":
                running.touched(kind, one, places, mask, itemsize)
            return _Access(one, mask, places, one.values(dtype), _NOTHING)
        return _Access(one, mask, None, _NOTHING, offsets + one.host)
    return _Access(None, mask, None, _NOTHING, _in_several(running, kind, addresses, mask, itemsize, origin))


def _in_several(running: Running, kind: str, addresses: Array, mask: Array | None, itemsize: int, origin: str) -> Array:
    """Addresses of the host for an access to several tensors."""
    on = np.True_ if mask is None else mask
    given = running.memory.given.get(origin)
    owners = running.memory.owners(addresses, itemsize)
    if given is None and ((owners < 0) & on).any():
        running.memory.add_others()
        owners = running.memory.owners(addresses, itemsize)
    stretches = running.memory.stretches
    wrong = owners < 0
    named = [place for place, stretch in enumerate(stretches) if given is not None and stretch.start == given.start]
    if named:
        wrong = owners != named[0]
    wrong = wrong & on
    if wrong.any():
        raise IllegalAccess(_sentence(running, kind, addresses, wrong, itemsize, origin))
    if kind != "load":
        running.written.update(int(owner) for owner in np.unique(owners[np.broadcast_to(on, owners.shape)]))
    shifts = np.array([stretch.host - stretch.start for stretch in stretches], dtype=np.int64)
    return addresses + shifts[np.where(on, owners, 0)]


def _sentence(running: Running, kind: str, addresses: Array, wrong: Array, itemsize: int, origin: str) -> str:
    """Which program accesses what outside its tensors, at which line."""
    where = np.argwhere(wrong)[0]
    address = int(addresses[tuple(where)])
    program = running.place_of(int(running.ids[where[0] if len(addresses) > 1 else 0]))
    extents = [extent for extent in running.grid if extent > 1] or [1]
    name = str(program[0]) if len(extents) == 1 and running.grid[0] > 1 else f"({', '.join(map(str, program))})"
    if running.grid == (1, 1, 1):
        name = "0"
    stretch = running.memory.given.get(origin) or running.memory.nearest(address)
    line = place("{}:{}".format(*user_line()))
    verb = {"load": "loads", "store": "stores", "atomic": "updates"}[kind]
    many = int(wrong.sum())
    more = f" ({many - 1:,} more elements are outside, too)" if many > 1 else ""
    if stretch is None:
        return f"Program {name} {verb} from address {address:#x}, which belongs to no tensor, at {line.label}."
    begin = stretch.pointer or stretch.start
    index = (address - begin) // stretch.itemsize
    first, last = ((one - begin) // stretch.itemsize for one in (stretch.start, stretch.end - 1))
    why = "is the mask missing or too wide, or does the block begin in the wrong place?"
    if index < first - 2**28:
        why = "did an index overflow int32? Compute it in 64 bits: tl.program_id(0).to(tl.int64)."
    elif addresses.ndim > 2:
        why = "is the mask missing or too wide, or a stride wrong?"
    return (
        f"Program {name} {verb} {stretch.name}[{index}] at {line.label}: {line.text}. {stretch.name}'s memory has "
        f"elements {first} to {last}{more}: {why}"
    )


def _on(mask: Array | None, shape: tuple[int, ...]) -> Array:
    return np.ones(shape, np.bool_) if mask is None else np.ascontiguousarray(np.broadcast_to(mask, shape))


def load(pointers: Array, mask: Array | None, other: Array | None, dtype: Any, origin: str) -> Array:
    """Load blocks; elements that are masked off have the value of `other`, or 0."""
    access = _prepared("load", pointers, mask, dtype, origin)
    mask = access.mask
    shape = pointers.shape if mask is None else mask.shape
    others = np.zeros(1, dtype) if other is None else aligned(other, len(shape)).astype(dtype, copy=False)
    if access.places is not None:
        found = access.values[access.places]
        return found if mask is None else np.where(mask, found, others)
    filled = np.ascontiguousarray(np.broadcast_to(others, shape))
    host = np.ascontiguousarray(access.host).view(np.uint64)
    return np.asarray(_native.load(host, _on(mask, shape), filled, dtype))


def store(pointers: Array, values: Array, mask: Array | None, origin: str) -> None:
    """Store blocks; of programs that store to the same element, the last one wins."""
    together = len(now[-1].ids)
    if len(pointers) == 1 and together > 1:
        pointers = np.broadcast_to(pointers, (together, *pointers.shape[1:]))
    now[-1].changed()
    access = _prepared("store", pointers, mask, values.dtype, origin)
    mask = access.mask
    shape = pointers.shape if mask is None else mask.shape
    values = np.broadcast_to(values, shape)
    if access.places is not None:
        places = access.places.ravel() if mask is None else access.places[mask]
        values = values.ravel() if mask is None else values[mask]
        before = access.values[places]
        if together > 1:
            now[-1].stored(partial(_put, access.values, places, before))
        _put(access.values, places, values)
        if access.one is not None and now[-1].races is not None:
            changed = _differ(before, values) | _differ(access.values[places], values)
            now[-1].touched("store", access.one, access.places, mask, values.dtype.itemsize, changed)
        return
    host, on = np.ascontiguousarray(access.host).view(np.uint64), _on(mask, shape)
    if together > 1:
        before = _native.load(host, on, np.zeros(shape, values.dtype), values.dtype)
        now[-1].stored(partial(_native.store, host, before, on))
    _native.store(host, np.ascontiguousarray(values), on)


def _differ(left: Array, right: Array) -> Array:
    """Where two arrays differ; nan does not differ from nan."""
    return (left != right) & ((left == left) | (right == right))


def _put(memory: Array, places: Array, values: Array) -> None:
    memory[places] = values


def update(operation: Callable[..., Array], pointers: Array, values: Array, mask: Array | None, origin: str) -> Array:
    """An atomic operation, in the order of the programs; returns the values before."""
    together = len(now[-1].ids)
    shape = np.broadcast_shapes((together,) + (1,) * (pointers.ndim - 1), pointers.shape, values.shape)
    access = _prepared("atomic", np.broadcast_to(pointers, shape), mask, values.dtype, origin)
    on = _on(access.mask, shape)
    if access.places is not None:
        host = access.places * values.dtype.itemsize + access.values.ctypes.data
    else:
        host = access.host
    host = np.ascontiguousarray(host).view(np.uint64)
    before = _native.load(host, on, np.zeros(shape, values.dtype), values.dtype)
    if together > 1:
        now[-1].stored(partial(_native.store, host, before, on))
    old = operation(host, np.ascontiguousarray(np.broadcast_to(values, shape)), on)
    if not np.array_equal(_native.load(host, on, np.zeros(shape, values.dtype), values.dtype), before):
        now[-1].changed()
    return old
