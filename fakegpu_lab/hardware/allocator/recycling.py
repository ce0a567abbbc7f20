"""A block that was freed a moment ago and is asked for again: the loop that makes and drops one tensor a step."""

from __future__ import annotations

from bisect import bisect_left
from sys import getrefcount
from typing import TYPE_CHECKING

from fakegpu_lab.hardware.allocator.blocks import ALLOCATED, FREE
from fakegpu_lab.hardware.allocator.controls import Controls

if TYPE_CHECKING:
    from fakegpu_lab.hardware.allocator.blocks import Block


def _references(thing: object) -> int:
    return getrefcount(thing)


# How many references a function sees to an argument that nobody else holds; it differs between Python
# versions.
ALONE = _references(object())


class Recycling(Controls):
    """See `allocator.CachingAllocator`, which is what to use."""

    __slots__ = ()

    def _again(self, block: Block, nbytes: int, stream: int) -> bool:
        """Give a block that was freed a moment ago to a malloc of the same size, if best fit would choose it.

        A loop that makes and drops one tensor does this at every step. What is counted is what putting the block
        back and taking it again counts; the doubtful cases are left to those.
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
        # The queue, `malloc` and the neighbours hold the block. If somebody else does, a second free of it must
        # not find it alive again.
        if getrefcount(block) > ALONE + 3 + (after is not None):
            return False
        if after is not None and after.state == FREE:
            # it would join `after` and be split off again, if no other free block fits better
            rest = after.size
            if rest < free_list.least_rest or entries[0][2] is not after:
                return False
            if len(entries) > 1 and entries[1] < (rest + size, block.address):
                return False
            level = segment.split_bytes
            if before is None and after.next is None:
                segment.split_blocks.fallen += 1
                segment.split_blocks.risen += 1
                level.fallen += rest
                level.risen += rest
            else:
                level.risen = now = level.risen + size
                if now - level.fallen > level.limit:
                    level.new_high()
                level.fallen += size
        else:
            # it would be a hole of just the size
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
