"""What one malloc and free cost, in nanoseconds: ``python benchmarks/allocator.py``.

The pair is on the path of every simulated op and may take 1,600 ns on the machine it is developed on.
"""

from __future__ import annotations

import timeit
from typing import TYPE_CHECKING

from fakegpu_lab.hardware.allocator.caching_allocator import CachingAllocator

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 2**20


def best_ns(gpu: CachingAllocator, nbytes: int, count: int = 3_000) -> float:
    """The pair's time, the fastest of many short runs: other programs disturb some of them."""
    names = {"malloc": gpu.malloc, "free": gpu.free, "n": nbytes}
    return min(timeit.repeat("free(malloc(n))", globals=names, number=count, repeat=100)) / count * 1e9


def empty_pool(gpu: CachingAllocator) -> None:
    """Nothing lives: a whole segment is split and made whole again."""


def warm_pool(gpu: CachingAllocator) -> None:
    """Some blocks live in front of the rest of the segment."""
    for i in range(10):
        gpu.malloc(1000 + i)


def fragmented_pool(gpu: CachingAllocator) -> None:
    """40 holes of 5,000 bytes between blocks that live."""
    holes = []
    for _ in range(40):
        holes.append(gpu.malloc(5000))
        gpu.malloc(512)
    for hole in holes:
        gpu.free(hole)


PATTERNS: tuple[tuple[str, Callable[[CachingAllocator], None], int], ...] = (
    ("small, split from and merged into a whole segment", empty_pool, 1000),
    ("small, split from and merged into the rest of one", warm_pool, 1000),
    ("small, exact fit among 40 holes", fragmented_pool, 5000),
    ("small, split from a hole among 40", fragmented_pool, 1000),
    ("large, whole segment", empty_pool, 12 * MIB),
    ("large, split from and merged into a segment", empty_pool, 2 * MIB),
)


def main() -> None:
    """Print a line for each pattern."""
    for name, prepare, nbytes in PATTERNS:
        gpu = CachingAllocator(0, 16 * 2**30)
        prepare(gpu)
        print(f"{name:55s}{best_ns(gpu, nbytes):8.0f} ns")


if __name__ == "__main__":
    main()
