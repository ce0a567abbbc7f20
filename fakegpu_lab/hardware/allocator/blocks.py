"""Blocks, the segments they are cut from, and the lists of free blocks.

A *segment* is one range of memory taken from the device by cudaMalloc. It is cut into *blocks*, a doubly linked list
in address order; two free neighbours are always merged into one. Free blocks wait in the *free list* of their stream
and pool, sorted by size and then address, so that the first one large enough is the best fit (BlockComparatorSize in
c10/cuda/CUDACachingAllocator.cpp).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final

from fakegpu_lab.hardware.allocator.settings import MIN_BLOCK_BYTES, SMALL_LIMIT_BYTES

if TYPE_CHECKING:
    from fakegpu_lab.hardware.allocator.device_memory import ExpandableRange
    from fakegpu_lab.hardware.allocator.statistics import Counters

PoolId = tuple[int, int]
"""A memory pool's id in torch (MempoolId_t)."""

DEFAULT_POOL: Final[PoolId] = (0, 0)

# A block's state. Plain integers: the hot path compares them.
FREE: Final = 0  # in a free list
ALLOCATED: Final = 1
SHARED: Final = 2  # allocated, and used on other streams too (record_stream)
QUEUED: Final = 3  # freed, but not in a free list yet (or a handle whose block was merged into a neighbour)
PENDING: Final = 4  # freed, but other streams may still use it
UNMAPPED: Final = 5  # addresses of an expandable segment with no memory behind them
NULL: Final = 6  # the answer to a request of zero bytes: no memory


class Block:
    """A range of device memory, handed out or free.

    Attributes
    ----------
    address, size
        In bytes; the size is rounded.
    requested
        The bytes that the program asked for.
    state
        One of FREE, ALLOCATED, SHARED, QUEUED, PENDING, UNMAPPED, NULL.
    prev, next
        Its neighbours in the segment.
    uses, events, gc_base, frames
        Set only where they are needed (blocks used on several streams, garbage collection, a recorded history):
        setting them at every malloc would make it a tenth slower.
    """

    __slots__ = (
        "address",
        "events",
        "frames",
        "gc_base",
        "next",
        "prev",
        "requested",
        "segment",
        "size",
        "state",
        "uses",
    )

    uses: set[int]
    events: int
    gc_base: int
    frames: list[dict[str, object]]

    def __init__(
        self,
        address: int,
        size: int,
        requested: int,
        prev: Block | None,
        next_: Block | None,
        segment: Segment,
    ) -> None:
        self.address = address
        self.size = size
        self.requested = requested
        self.prev = prev
        self.next = next_
        self.segment = segment
        self.state = ALLOCATED

    @property
    def free_list(self) -> FreeList:
        """The free list of its pool and stream."""
        return self.segment.free_list

    @property
    def stream(self) -> int:
        """The stream that it was allocated on."""
        return self.segment.free_list.stream

    @property
    def size_when_grown(self) -> int:
        """Its size and that of the unmapped pages behind it."""
        following = self.next
        return self.size + (following.size if following is not None and following.state == UNMAPPED else 0)

    def is_split(self) -> bool:
        """Whether its segment has other blocks, too."""
        return self.prev is not None or self.next is not None

    def __repr__(self) -> str:
        return f"<Block {self.address:#x} {self.size} bytes, state {self.state}>"


class Segment:
    """A range of addresses taken from the device.

    Attributes
    ----------
    first
        Its first block.
    split_blocks, split_bytes
        The counters of its inactive split blocks. Those of an expandable segment count into a sink that nothing
        reads: its free pages can always be given back (free_block's comment on inactive_split).
    expandable
        The range that it grows in, if it is expandable; else None.
    frames
        The stack frames of the call that made it, while a history is recorded.
    """

    __slots__ = ("expandable", "first", "frames", "free_list", "split_blocks", "split_bytes")

    first: Block

    def __init__(self, free_list: FreeList, counters: Counters, expandable: ExpandableRange | None = None) -> None:
        self.free_list = free_list
        self.split_blocks = counters.split_blocks
        self.split_bytes = counters.split_bytes
        self.expandable = expandable
        self.frames: list[dict[str, object]] | None = None

    def blocks(self) -> list[Block]:
        """Its blocks in address order."""
        found: list[Block] = []
        block: Block | None = self.first
        while block is not None:
            found.append(block)
            block = block.next
        return found


class FreeList:
    """The free blocks of one pool and stream.

    Attributes
    ----------
    entries
        (size, address, block), sorted. Addresses are unique, so blocks themselves are never compared.
    unmapped
        (address, block), sorted: ranges of expandable segments that could be mapped.
    blocks, bytes, requested
        The pool's counters.
    min_remainder
        A block is split if at least this many bytes remain (should_split), under default settings.
    """

    __slots__ = ("blocks", "bytes", "entries", "min_remainder", "pool", "requested", "stream", "unmapped")

    def __init__(self, pool: BlockPool, stream: int) -> None:
        self.pool = pool
        self.stream = stream
        counters = pool.counters
        self.blocks, self.bytes, self.requested = counters.blocks, counters.bytes, counters.requested
        self.entries: list[tuple[int, int, Block]] = []
        self.unmapped: list[tuple[int, Block]] = []
        self.min_remainder = MIN_BLOCK_BYTES if pool.is_small else SMALL_LIMIT_BYTES + 1

    def index(self, block: Block) -> int:
        """The position of a free block in `entries`."""
        key: tuple[int, int] = (block.size, block.address)
        return bisect_left(self.entries, key)  # a shorter tuple sorts before its extension

    def add(self, block: Block) -> None:
        """Add a free block."""
        block.state = FREE
        block.gc_base = self.pool.gc_calls
        insort(self.entries, (block.size, block.address, block))

    def remove(self, block: Block) -> None:
        """Remove a free block."""
        del self.entries[self.index(block)]

    def add_unmapped(self, block: Block) -> None:
        """Add a range that could be mapped."""
        block.state = UNMAPPED
        insort(self.unmapped, (block.address, block))

    def remove_unmapped(self, block: Block) -> None:
        """Remove such a range."""
        del self.unmapped[bisect_left(self.unmapped, (block.address,))]


class BlockPool:
    """The small or the large blocks of a pool; one free list for each stream."""

    __slots__ = ("counters", "gc_calls", "is_small", "lists", "private")

    def __init__(self, *, is_small: bool, counters: Counters, private: PrivatePool | None = None) -> None:
        self.is_small = is_small
        self.counters = counters
        self.private = private
        self.gc_calls = 0  # get_free_blocks_call_count
        self.lists: dict[int, FreeList] = {}

    @property
    def id(self) -> PoolId:
        """The id of the pool that it belongs to."""
        return self.private.id if self.private is not None else DEFAULT_POOL

    def free_list(self, stream: int) -> FreeList:
        """The free list of a stream."""
        found = self.lists.get(stream)
        if found is None:
            found = self.lists[stream] = FreeList(self, stream)
        return found

    def free_blocks(self) -> list[Block]:
        """All free blocks, in the order of the C++ set: by stream, size, address."""
        return [entry[2] for _, free in sorted(self.lists.items()) for entry in free.entries]


class PrivatePool:
    """A memory pool of a CUDA graph or of a torch.cuda.MemPool (PrivatePool).

    Attributes
    ----------
    users
        How many graphs or MemPool objects hold it; its segments can be given back once none does.
    reserved_bytes
        The bytes of its segments.
    """

    __slots__ = ("id", "large", "reserved_bytes", "small", "users")

    def __init__(self, pool_id: PoolId, small: Counters, large: Counters) -> None:
        self.id = pool_id
        self.users = 1
        self.reserved_bytes = 0
        self.small = BlockPool(is_small=True, counters=small, private=self)
        self.large = BlockPool(is_small=False, counters=large, private=self)

    def free_bytes(self) -> int:
        """The free bytes in its segments."""
        return sum(block.size for pool in (self.small, self.large) for block in pool.free_blocks())
