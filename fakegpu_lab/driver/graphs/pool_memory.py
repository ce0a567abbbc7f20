"""The memory of graphs that share a pool: a replay overwrites what other graphs have at the same addresses.

A tensor that dies during a capture leaves its addresses to the tensors captured next, also to those of the next graph
of the pool. On a card both are the same memory. Here each tensor's values are a CPU tensor of their own. So after a
replay, `overwrite` copies what the graph wrote to the tensors that have those addresses now. That is why graphs of a
pool must be replayed in the order of their captures (notes on CUDA, "Sharing memory across captures").

Simplified: a tensor of a graph that was reset or deleted is no longer overwritten.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import torch

from fakegpu_lab.hardware.allocator.blocks import ALLOCATED, SHARED

if TYPE_CHECKING:
    from fakegpu_lab.driver.base.tensor import FakeCudaTensor
    from fakegpu_lab.hardware.allocator.blocks import Block, PoolId
    from fakegpu_lab.hardware.device import Device


class _Range(NamedTuple):
    """The device memory of a storage, and its values."""

    start: int
    end: int
    block: Block
    storage: torch.UntypedStorage


class PoolMemory:
    """What one graph reads and writes in its pool.

    Attributes
    ----------
    ranges
        By the address of the values.
    written
        Those that it writes, in the order of the last writes.
    """

    def __init__(self, device: Device, pool: PoolId) -> None:
        self._shared_by = device, pool
        self.ranges: dict[int, _Range] = {}
        self.written: dict[int, None] = {}
        self._others: tuple[int, ...] = ()
        self._overlaps: list[tuple[torch.Tensor, torch.Tensor]] = []

    def use(self, tensor: FakeCudaTensor, *, writes: bool) -> None:
        """Note that an op of the graph uses a tensor with values."""
        block, storage = tensor._buffer.block, tensor._inner.untyped_storage()
        nbytes = storage.nbytes()
        if block is None or not nbytes or nbytes != tensor._buffer.nbytes:
            return
        device, pool = self._shared_by
        if tensor._device is not device or block.free_list.pool.id != pool:
            return
        values = storage.data_ptr()
        self.ranges[values] = _Range(block.address, block.address + nbytes, block, storage)
        if writes:
            self.written.pop(values, None)
            self.written[values] = None

    def include(self, child: PoolMemory) -> None:
        """Include what a child graph uses."""
        self.ranges.update(child.ranges)
        for values in child.written:
            self.written.pop(values, None)
            self.written[values] = None

    def share(self) -> None:
        """Let replays of the pool's other graphs overwrite this graph's memory, and the other way around."""
        for key in [key for key, graphs in _graphs.items() if not graphs]:
            del _graphs[key]
        _graphs.setdefault(self._shared_by, weakref.WeakSet()).add(self)

    def overwrite(self) -> None:
        """Copy what a replay has written to the other graphs' tensors at the same addresses."""
        others = [graph for graph in _graphs.get(self._shared_by, ()) if graph is not self]
        known = tuple(sorted(map(id, others)))
        if known != self._others:
            self._others = known
            self._overlaps = self._overlapping(others)
        for source, target in self._overlaps:
            target.copy_(source)

    def _overlapping(self, others: list[PoolMemory]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The values of each overlap, in the order of this graph's writes.

        What this graph writes for another one to read is safe from its own writes before.
        """
        targets = {values: one for other in others for values, one in other.ranges.items() if other.keeps(values)}
        found: defaultdict[int, list[tuple[torch.Tensor, torch.Tensor]]] = defaultdict(list)
        for values in self.written:
            source = self.ranges[values]
            found[values].clear()
            for other, target in targets.items():
                start, end = max(source.start, target.start), min(source.end, target.end)
                if start < end and other != values:
                    pair = (
                        _bytes(source.storage)[start - source.start : end - source.start],
                        _bytes(target.storage)[start - target.start : end - target.start],
                    )
                    found[other].append(pair)
        return [pair for pairs in found.values() for pair in pairs]

    def keeps(self, values: int) -> bool:
        """Whether somebody may read the values before a replay writes them: a living tensor, or the graph itself."""
        return values not in self.written or self.ranges[values].block.state in (ALLOCATED, SHARED)


_graphs: dict[tuple[Device, PoolId], weakref.WeakSet[PoolMemory]] = {}


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    # Not Tensor.set_: the storage's Python object is that of its device, once the program has asked a tensor for it.
    found: torch.Tensor = torch.ops.aten.set_.source_Storage(torch.empty(0, dtype=torch.uint8), storage)
    return found
