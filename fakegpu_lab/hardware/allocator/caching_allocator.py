"""PyTorch's caching allocator in pure Python: the fast paths of malloc and free.

>>> gpu = CachingAllocator(0, 16 * 2**30)
>>> one = gpu.malloc(1)
>>> one.size, gpu.allocated_bytes, gpu.reserved_bytes
(512, 512, 2097152)
>>> gpu.free(one)
>>> gpu.empty_cache()
>>> gpu.reserved_bytes
0

It does what DeviceCachingAllocator in c10/cuda/CUDACachingAllocator.cpp does, down to which block is taken and what is
counted; comments name the function there. `malloc` and `free` are on the path of every simulated op, so the usual case
is written out in one piece, the counting included (`Level.add`). Unusual cases (a recorded history, blocks shared
between streams, settings other than the defaults) go through `slow_path` first and then take the same steps; `segments`
takes memory from the device.

`free` is called from ``__del__``, which the garbage collector may run in the middle of `malloc`, on this thread or on
another one. So `free` only queues the block, and the next call that reads the allocator puts it back first. The result
is the same, `free` never waits for a lock, and no list changes during a `malloc`.
"""

from __future__ import annotations

import sys
import time
from bisect import bisect_left, insort
from contextlib import suppress
from sys import getrefcount
from typing import TYPE_CHECKING

from fakegpu_lab.hardware.allocator.blocks import ALLOCATED, FREE, QUEUED, Block
from fakegpu_lab.hardware.allocator.history import merge_snapshots
from fakegpu_lab.hardware.allocator.oom_figures import DeviceOutOfMemory
from fakegpu_lab.hardware.allocator.record_stream import StreamClock
from fakegpu_lab.hardware.allocator.recycling import UNSHARED, Recycling
from fakegpu_lab.hardware.allocator.settings import AllocatorSettings
from fakegpu_lab.user_code import interrupts

if TYPE_CHECKING:
    from fakegpu_lab.hardware.allocator.blocks import PoolId

__all__ = ["AllocatorSettings", "Block", "CachingAllocator", "DeviceOutOfMemory", "StreamClock", "merge_snapshots"]


class CachingAllocator(Recycling):
    """The memory of one device.

    Parameters
    ----------
    device
        Its CUDA ordinal.
    total_bytes
        The card's memory.
    context_bytes
        What the process holds outside the allocator (the CUDA context); `device_memory.context_bytes` may change
        later.
    settings
        PYTORCH_CUDA_ALLOC_CONF; PyTorch's defaults if None.
    clock
        The simulated streams: they decide when a block used on several of them is free. By default, every stream has
        always finished.
    """

    __slots__ = ()

    def malloc(self, nbytes: int, stream: int = 0, pool: PoolId | None = None) -> Block:
        """Allocate memory on a stream; zero bytes get a null block at address 0.

        Raises
        ------
        DeviceOutOfMemory
            If the device cannot hold another segment, after all that PyTorch tries.
        """
        if nbytes <= 0:
            return self._null_block(nbytes, stream)
        gate = self._gate
        try:
            del gate[0]
        except IndexError:
            self._wait_for_gate()
        try:
            queue = self._queue
            slow = self._slow
            if slow:
                self._drain()
                if not self.caching:
                    return self._uncached_block(nbytes, stream)
            elif queue:
                if len(queue) == 1 and pool is None:
                    block = queue[0]
                    if block.size == (nbytes + 511) & -512 and self._reuse(block, nbytes, stream):
                        queue.popleft()
                        return block
                while queue:
                    self._put_back(queue.popleft())
            if slow or pool is not None:
                free_list, size, i, min_remainder = self.prepare(nbytes, stream, pool)
                entries = free_list.entries
                found_size, address, block = entries[i]
            else:
                size = (nbytes + 511) & -512  # round_size
                try:
                    free_list = (self._small_lists if size <= 1048576 else self._large_lists)[stream]
                except KeyError:
                    free_list = self.list_for(size, stream)
                entries = free_list.entries
                min_remainder = free_list.min_remainder
                # Best fit (get_free_block). The first entry is the smallest: if it fits, it is the one.
                i = 0
                try:
                    found_size, address, block = entries[0]
                except IndexError:
                    found_size = 0
                if found_size < size:
                    i = bisect_left(entries, (size,))
                    if i == len(entries):
                        i = free_list.index(self.grow(free_list, size, nbytes))
                    found_size, address, block = entries[i]
            before = block.prev
            remainder = found_size - size
            if remainder >= min_remainder:
                # alloc_found_block, split: the low part is handed out, the block itself stays free with the remainder.
                segment = block.segment
                if self._spare:  # what Block() does, written out
                    given = self._spare.pop()
                    given.address = address
                    given.size = size
                    given.requested = nbytes
                    given.prev = before
                    given.next = block
                    given.segment = segment
                    given.state = ALLOCATED
                else:
                    given = Block(address, size, nbytes, before, block, segment)
                address += size
                entry = (remainder, address, block)
                if i == 0 or entries[i - 1] < entry:
                    entries[i] = entry
                else:
                    del entries[i]
                    insort(entries, entry, 0, i)
                if before is not None:
                    before.next = given
                    segment.split_bytes.fallen += size
                else:
                    segment.first = given
                    if block.next is not None:
                        segment.split_bytes.fallen += size
                    else:
                        level = segment.split_blocks
                        level.risen = now = level.risen + 1
                        if now - level.fallen > level.limit:
                            level.new_high()
                        level = segment.split_bytes
                        level.risen = now = level.risen + remainder
                        if now - level.fallen > level.limit:
                            level.new_high()
                block.prev = given
                block.address = address
                block.size = remainder
            else:
                del entries[i]
                given = block
                given.requested = nbytes
                given.state = ALLOCATED
                size = found_size
                if before is not None or block.next is not None:
                    segment = block.segment
                    segment.split_blocks.fallen += 1
                    segment.split_bytes.fallen += found_size
            level = free_list.blocks
            level.risen = now = level.risen + 1
            if now - level.fallen > level.limit:
                level.new_high()
            level = free_list.bytes
            level.risen = now = level.risen + size
            if now - level.fallen > level.limit:
                level.new_high()
            level = free_list.requested
            level.risen = now = level.risen + nbytes
            if now - level.fallen > level.limit:
                level.new_high()
            if slow:
                self.finish(given, block)
        finally:
            gate.append(None)
        return given

    def free(self, block: Block) -> None:
        """Free memory. Never waits; ``__del__`` may call it at any moment."""
        if block.state == ALLOCATED and not self._slow:
            block.state = QUEUED
            self._queue.append(block)
        else:
            self.slow_free(block)

    def _put_back(self, block: Block) -> None:
        """free_block: put a block into its free list, merged with its free neighbours."""
        segment = block.segment
        free_list = segment.free_list
        size = block.size
        free_list.blocks.fallen += 1
        free_list.bytes.fallen += size
        free_list.requested.fallen += block.requested
        entries = free_list.entries
        before = block.prev
        after = block.next
        if after is not None and after.state == FREE:
            if before is not None and before.state == FREE:
                # [before block after] becomes before
                del entries[free_list.index(after)]
                i = free_list.index(before)
                before.size = new = before.size + size + after.size
                before.next = further = after.next
                if further is not None:
                    further.prev = before
                del entries[i]
                insort(entries, (new, before.address, before), i)
                # Two split blocks become one, or none if the segment is whole again.
                segment.split_blocks.subtract(1)
                if further is None and before.prev is None:
                    segment.split_blocks.subtract(1)
                    segment.split_bytes.subtract(new - size)
                else:
                    segment.split_bytes.add(size)
                return
            # [block after] becomes after; `before` is in use or None
            new = after.size + size
            address = block.address
            entry = (new, address, after)
            if entries[-1][2] is after:
                entries[-1] = entry
            else:
                i = 0 if entries[0][2] is after else bisect_left(entries, (after.size, after.address))
                if entries[i + 1] > entry:
                    entries[i] = entry
                else:
                    del entries[i]
                    insort(entries, entry, i)
            after.prev = before
            after.address = address
            after.size = new
            if before is not None:
                before.next = after
            else:
                segment.first = after
                if after.next is None:
                    segment.split_blocks.fallen += 1
                    segment.split_bytes.fallen += new - size
                    if getrefcount(block) == UNSHARED:
                        self._spare.append(block)
                    return
        elif before is not None and before.state == FREE:
            # [before block] becomes before
            i = bisect_left(entries, (before.size, before.address))
            before.size = new = before.size + size
            entry = (new, before.address, before)
            if i + 1 == len(entries) or entries[i + 1] > entry:
                entries[i] = entry
            else:
                del entries[i]
                insort(entries, entry, i)
            before.next = after
            if after is not None:
                after.prev = before
            elif before.prev is None:
                segment.split_blocks.fallen += 1
                segment.split_bytes.fallen += new - size
                return
        else:
            block.state = FREE
            insort(entries, (size, block.address, block))
            if before is not None or after is not None:
                level = segment.split_blocks
                level.risen = now = level.risen + 1
                if now - level.fallen > level.limit:
                    level.new_high()
                level = segment.split_bytes
                level.risen = now = level.risen + size
                if now - level.fallen > level.limit:
                    level.new_high()
            return
        level = segment.split_bytes
        level.risen = now = level.risen + size
        if now - level.fallen > level.limit:
            level.new_high()
        if getrefcount(block) == UNSHARED:
            self._spare.append(block)

    def _wait_for_gate(self, entry: int = 1) -> None:
        """Wait until another thread's call is over, and take the lock.

        A finalizer that allocates while its own thread is inside the allocator would wait forever. The stack shows this
        case: the allocator's frames stand above the method that needs the lock, which is `entry` frames up.
        """
        frame = sys._getframe(entry + 1)
        while frame is not None:
            if frame.f_code in _OWN_CODE and frame.f_locals.get("self") is self:
                raise RuntimeError("device memory was requested by code that ran inside the allocator")
            frame = frame.f_back  # type: ignore[assignment]
        while True:
            _let_others_continue()
            with suppress(IndexError):
                del self._gate[0]
                return


@interrupts.interruptible
def _let_others_continue() -> None:
    time.sleep(0)


_OWN_CODE = {
    function.__code__
    for cls in CachingAllocator.__mro__
    for function in vars(cls).values()
    if hasattr(function, "__code__")
}
