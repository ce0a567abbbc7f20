"""`AccessLog` collects what one launch accesses; `AccessLog.summary` is the `Access` that people read.

One row of addresses is one instruction of one warp: 32 lanes, −1 for a lane that is masked off. From the rows follow
the 32-byte sectors that the card moves, the bank conflicts of shared memory, and, with a model of the caches, the bytes
that reach DRAM.

>>> import numpy as np
>>> log = AccessLog()
>>> lanes = np.arange(32)
>>> log.add("load", "global", 4 * lanes[None], 4)  # neighbours read neighbours
>>> log.add("load", "global", 128 * lanes[None], 4)  # each lane reads another line
>>> [line.sectors_per_request for line in log.summary().lines]
[18.0]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from fakegpu_lab.hardware.kernel_model.caches import Caches
from fakegpu_lab.hardware.kernel_model.shared_banks import wavefronts
from fakegpu_lab.hardware.time.access import Access, LineAccess

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Kind = Literal["load", "store", "atomic"]
    Space = Literal["global", "shared"]
    Addresses = NDArray[np.int64]

WARP = 32
SECTOR_BITS = 5
"""A sector has 32 bytes: the unit in which L2 and DRAM are read and written since Maxwell."""
_LINE_BITS = 7 - SECTOR_BITS

_LAST = np.iinfo(np.int64).max


class AccessLog:
    """What one launch reads and writes, and its arithmetic.

    Parameters
    ----------
    l2_bytes
        The bytes of L2 that the launch's data may stay in.

    Attributes
    ----------
    floating
        FLOPs by (format, whether tensor cores compute them); the format is a name such as ``"fp32"``.
    """

    def __init__(self, l2_bytes: int = 40 * 2**20) -> None:
        self.floating: dict[tuple[str, bool], float] = {}
        self._caches = Caches(l2_bytes)
        self._lines: dict[tuple[tuple[str, int], str, str], LineAccess] = {}

    def add(
        self,
        kind: Kind,
        space: Space,
        addresses: Addresses,
        itemsize: int,
        line: tuple[str, int] = ("", 0),
        who: int | NDArray[np.int64] = 0,
    ) -> None:
        """Log the requests of some warps.

        Parameters
        ----------
        kind, space
            What the instruction does, and where.
        addresses
            int64, shape (requests, 32): the first byte that each lane accesses, −1 for a lane that is masked off. In
            shared memory, byte 0 is where the block's own memory begins.
        itemsize
            Bytes that a lane accesses: 1 to 16 (a vector access such as ``float4`` has 16).
        line
            The user's file and line.
        who
            The number of the block (Triton: the program) that issued each request; one number if it issued all.
        """
        addresses = np.ascontiguousarray(addresses, dtype=np.int64).reshape(-1, WARP)
        active = addresses >= 0
        lanes = int(np.count_nonzero(active))
        if not lanes:
            return
        whole = lanes == active.size
        if not whole:
            some = active.any(axis=1)
            if not some.all():
                addresses, active = addresses[some], active[some]
                who = who if isinstance(who, int) else who[some]
        entry = self._lines.get((line, kind, space))
        if entry is None:
            entry = self._lines[line, kind, space] = LineAccess(line, kind, space)
        if not entry.example or -1 in entry.example:
            entry.example, entry.itemsize = tuple(addresses[int(active.sum(axis=1).argmax())].tolist()), itemsize
        entry.requests += len(addresses)
        entry.nbytes += lanes * itemsize
        if space == "shared":
            ways = wavefronts(addresses, active, itemsize)
            entry.wavefronts += int(ways.sum())
            entry.conflicts += int(ways.sum() - len(ways) * max(itemsize // 4, 1))
            return
        self._global(entry, addresses, None if whole else active, itemsize, who)

    def flops(self, count: float, dtype: str = "fp32", *, tensor_core: bool = False) -> None:
        """Count floating-point operations: a multiply-add is two."""
        key = dtype, tensor_core
        self.floating[key] = self.floating.get(key, 0.0) + count

    def _global(
        self,
        entry: LineAccess,
        addresses: Addresses,
        active: NDArray[np.bool_] | None,
        itemsize: int,
        who: int | NDArray[np.int64],
    ) -> None:
        first = addresses >> SECTOR_BITS
        last = (addresses + (itemsize - 1)) >> SECTOR_BITS
        sectors = first if np.array_equal(first, last) else np.concatenate((first, last), axis=1)
        if active is not None:
            both = active if sectors is first else np.concatenate((active, active), axis=1)
            sectors = np.where(both, sectors, _LAST)
        if (sectors[:, 1:] < sectors[:, :-1]).any():
            sectors = np.sort(sectors, axis=1)
        distinct = np.ones(sectors.shape, dtype=bool)
        np.not_equal(sectors[:, 1:], sectors[:, :-1], out=distinct[:, 1:])
        if active is not None:
            distinct &= sectors != _LAST
        lines = sectors >> _LINE_BITS
        new_line = distinct.copy()
        new_line[:, 1:] &= lines[:, 1:] != lines[:, :-1]
        counts = distinct.sum(axis=1)
        flat = sectors[distinct]
        entry.sectors += len(flat)
        # One line, and one quarter of the lanes' bytes at most, goes through L1 in a cycle.
        entry.wavefronts += int(np.maximum(new_line.sum(axis=1), -(-counts // 4)).sum())
        by_whom = np.full(len(flat), who) if isinstance(who, int) else np.repeat(np.asarray(who), counts)
        if entry.kind == "load":
            self._caches.load(flat, by_whom)
        else:
            self._caches.store(flat, atomic=entry.kind == "atomic")
        if entry.kind == "atomic":
            self._caches.contended(addresses if active is None else addresses[active])

    def summary(self, part: float = 1.0) -> Access:
        """What has been logged.

        Parameters
        ----------
        part
            The fraction of the launch's blocks that was logged: all figures are divided by it.
        """
        self._caches.flush()
        lines = [line.scaled(1 / part) for line in self._lines.values()]
        caches = self._caches
        return Access(
            lines=tuple(lines),
            l2_bytes=round(caches.l2_sectors * 32 / part),
            dram_read_bytes=round(caches.read_sectors * 32 / part),
            dram_written_bytes=round(caches.written_sectors * 32 / part),
            atomics_on_one_address=round(caches.most_contended / part),
            flops_by_format={key: count / part for key, count in self.floating.items()},
            sampled=part,
        )
