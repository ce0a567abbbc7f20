"""A shortcut of malloc: the block freed last goes straight to a request of the same size."""

from __future__ import annotations

from bisect import bisect_left
from sys import getrefcount
from typing import TYPE_CHECKING

from fakegpu_lab.hardware.allocator.blocks import ALLOCATED, FREE
from fakegpu_lab.hardware.allocator.controls import MemoryControls

if TYPE_CHECKING:
    from fakegpu_lab.hardware.allocator.blocks import Block


def _references(thing: object) -> int:
    return getrefcount(thing)


# How many references a function sees to an argument that nothing else holds; it differs between Python versions.
UNSHARED = _references(object())


class Recycling(MemoryControls):
    """Part of `caching_allocator.CachingAllocator`."""

    __slots__ = ()

    def _reuse(self, block: Block, nbytes: int, stream: int) -> bool:
        """Give the block freed last to a malloc of the same size, if best fit would choose it; else return False.

        A loop that makes and drops one tensor does this at every step. The counters end up as if the block had been put
        back and taken again; unclear cases are left to that way. Like malloc, this is on the path of every op, so the
        counting is written out.
        """
        segment = block.segment
        free_list = segment.free_list
        size = block.size
        if free_list is not (self._small_lists if size <= 1048576 else self._large_lists).get(stream):
            return False
        entries = free_list.entries
        before = block.prev
        after = block.next
        if before is not None and before.state == FREE:
            return False
        # The queue, `malloc` and the neighbours hold the block. If anything else does, that handle could be freed a
        # second time, which must stay an error.
        if getrefcount(block) > UNSHARED + 3 + (after is not None):
            return False
        if after is not None and after.state == FREE:
            # It would merge with `after` and be split off again, if no other free block fits better.
            remainder = after.size
            if remainder < free_list.min_remainder or entries[0][2] is not after:
                return False
            if len(entries) > 1 and entries[1] < (remainder + size, block.address):
                return False
            level = segment.split_bytes
            if before is None and after.next is None:
                segment.split_blocks.fallen += 1
                segment.split_blocks.risen += 1
                level.fallen += remainder
                level.risen += remainder
            else:
                level.risen = now = level.risen + size
                if now - level.fallen > level.limit:
                    level.new_high()
                level.fallen += size
        else:
            # It would be a hole of exactly this size.
            i = bisect_left(entries, (size,))
            if i < len(entries) and entries[i] < (size, block.address):
                return False
            if before is not None or after is not None:
                level = segment.split_blocks
                level.risen = now = level.risen + 1
                if now - level.fallen > level.limit:
                    level.new_high()
                level.fallen += 1
                level = segment.split_bytes
                level.risen = now = level.risen + size
                if now - level.fallen > level.limit:
                    level.new_high()
                level.fallen += size
        free_list.blocks.fallen += 1
        free_list.blocks.risen += 1
        free_list.bytes.fallen += size
        free_list.bytes.risen += size
        level = free_list.requested
        level.fallen += block.requested
        level.risen = now = level.risen + nbytes
        if now - level.fallen > level.limit:
            level.new_high()
        block.requested = nbytes
        block.state = ALLOCATED
        return True
