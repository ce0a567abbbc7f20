"""Expandable segments: one range of addresses for each stream and pool, mapped page by page as needed.

After `find_expandable_block`, `map_block`, `try_allocate_expandable_block`, `unmap_block` and Note [Expandable
Segments] in c10/cuda/CUDACachingAllocator.cpp. The last block of such a segment is unmapped, unless the whole range is
mapped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab.hardware.allocator.blocks import FREE, UNMAPPED, Block, FreeList, Segment
from fakegpu_lab.hardware.allocator.device_memory import ExpandableRange
from fakegpu_lab.hardware.allocator.settings import SMALL_SEGMENT_BYTES

if TYPE_CHECKING:
    from fakegpu_lab.hardware.allocator.state import AllocatorState


def expand(state: AllocatorState, free_list: FreeList, size: int) -> Block | None:
    """Return a free block of at least `size` bytes, with its pages mapped; None if memory is short.

    Pages mapped before memory ran out stay mapped, as in try_allocate_expandable_block.
    """
    candidate = _find(state, free_list, size)
    if candidate.state == UNMAPPED and not _map(state, candidate, min(candidate.size, size)):
        return None
    while candidate.size < size:
        # A free block, followed by an unmapped one: mapping merges the two.
        following = candidate.next
        assert following is not None
        if not _map(state, following, min(size - candidate.size, following.size)):
            return None
        candidate = following
    return candidate


def _find(state: AllocatorState, free_list: FreeList, size: int) -> Block:
    """Return the block at the lowest address with room for `size` bytes, free or unmapped; else a new range."""
    for _, block in free_list.unmapped:
        start = block.prev if block.prev is not None and block.prev.state == FREE else block
        room, at = 0, start
        while at is not None and at.state in (FREE, UNMAPPED) and room < size:
            room += at.size
            at = at.next  # type: ignore[assignment]
        if room >= size:
            return start
    page = SMALL_SEGMENT_BYTES if free_list.pool.is_small else state.settings.large_segment_bytes
    expandable = ExpandableRange(state.device_memory, page)
    segment = Segment(free_list, state.counters.sink, expandable)
    block = Block(expandable.base, expandable.size, 0, None, None, segment)
    segment.first = block
    state.segments[expandable.base] = segment
    free_list.add_unmapped(block)
    return block


def _map(state: AllocatorState, block: Block, size: int) -> bool:
    expandable = block.segment.expandable
    assert expandable is not None
    address, mapped = expandable.pages_over(block.address, size)
    if not state.device_memory.map(mapped):
        return False
    free_list = block.free_list
    free_list.remove_unmapped(block)
    if mapped < block.size:
        rest = Block(address + mapped, block.size - mapped, 0, block, block.next, block.segment)
        _link(block, rest)
        free_list.add_unmapped(rest)
        block.size = mapped
    if block.segment.frames is None:
        block.segment.frames = state.context
    block.state = FREE
    _absorb_neighbours(block, FREE)
    free_list.add(block)
    state.count_reserved(free_list.pool, mapped)
    state.counters.num_device_alloc += 1
    state.trace("segment_map", address, mapped, block)
    return True


def unmap(state: AllocatorState, block: Block) -> None:
    """Give back the whole pages inside a free block, and the range itself once no page of it is mapped."""
    expandable = block.segment.expandable
    assert expandable is not None
    address, unmapped = expandable.pages_inside(block.address, block.size)
    if not unmapped:
        return
    free_list, segment = block.free_list, block.segment
    free_list.remove(block)
    before = address - block.address
    after = block.size - before - unmapped
    if before:
        head = Block(block.address, before, 0, block.prev, block, segment)
        if block.prev is None:
            segment.first = head
        else:
            block.prev.next = head
        block.prev = head
        free_list.add(head)
    if after:
        tail = Block(address + unmapped, after, 0, block, block.next, segment)
        _link(block, tail)
        free_list.add(tail)
    block.address, block.size, block.state = address, unmapped, UNMAPPED
    _absorb_neighbours(block, UNMAPPED)
    free_list.add_unmapped(block)
    state.device_memory.unmap(unmapped)
    state.count_reserved(free_list.pool, -unmapped)
    state.counters.num_device_free += 1
    state.trace("segment_unmap", address, unmapped, block, segment.frames)
    if not block.is_split():
        free_list.remove_unmapped(block)
        del state.segments[expandable.base]


def _link(block: Block, following: Block) -> None:
    """Insert `following` after `block`; its own `prev` and `next` are already set."""
    if block.next is not None:
        block.next.prev = following
    block.next = following


def _absorb_neighbours(block: Block, state: int) -> None:
    """Merge neighbours of the same state into a block that is in no free list (try_merge_blocks)."""
    free_list = block.free_list
    remove = free_list.remove if state == FREE else free_list.remove_unmapped
    before, after = block.prev, block.next
    if before is not None and before.state == state:
        remove(before)
        block.address, block.prev = before.address, before.prev
        block.size += before.size
        if block.prev is None:
            block.segment.first = block
        else:
            block.prev.next = block
    if after is not None and after.state == state:
        remove(after)
        block.size += after.size
        block.next = after.next
        if block.next is not None:
            block.next.prev = block
