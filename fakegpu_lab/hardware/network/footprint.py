"""What a collective takes from its card while it runs: multiprocessors, and the bandwidth of the card's memory.

NCCL launches one thread block for each channel, which has a multiprocessor to itself: two where cards meet over PCI
Express, 24 on eight A100 or H100 (github.com/NVIDIA/nccl/issues/689; the count is that of connect.cc and enqueue.cc of
NCCL 2.27, the threads those of device.h and the thresholds those of comm.h).

Simplified: sends and receives, and what is made of them, count as a ring with the protocol "Simple".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab.hardware.network import nccl

if TYPE_CHECKING:
    from fakegpu_lab.hardware.network.nccl import Line, Paths, Protocol

MOST_BLOCKS = 32
"""MAXCHANNELS."""

NVLS_BLOCKS = (0, 0, 16, 24)
NVLS_BLOCKS_BETWEEN = (0, 0, 16, 32)
"""By generation, on one node and between nodes: NVLS_NCHANNELS_SM90, NVLS_NCHANNELS_SM100_NVL and
NVLS_NCHANNELS_SM100 (transport/nvls.cc)."""

_BYTES_PER_BLOCK: dict[Protocol, int] = {"LL": 512 * 8, "LL128": 640 * 8, "Simple": 512 * 64}
"""A block's threads times the bytes that each must have for NCCL to use another block (ncclTopoTuneModel). A ring with
LL needs this for each rank."""

MEMORY_PER_BUS_BYTE = 3.0
"""Bytes read or written in a card's memory for each byte that its links carry: what arrives is stored in a buffer and
read again, and the caller's data is read or written ("it can be 3x", github.com/NVIDIA/nccl/issues/1428). NVLS moves a
seventh more on eight cards (six for each byte of the tensor, which count as 1.75 on the links: all_reduce.h)."""


def blocks(line: Line, paths: Paths, nbytes: int) -> int:
    """The thread blocks, and so the multiprocessors, that a collective of `nbytes` bytes uses on each card.

    >>> paths = nccl.Paths(8, 1, "nvlink", nccl.HOPPER, 370.8, nvls=True)
    >>> [blocks(nccl.fastest("all_reduce", paths, size), paths, size) for size in (4, 1 << 20, 1 << 30)]
    [1, 24, 16]
    """
    if line.algorithm in ("nvls", "nvls_tree"):
        return (NVLS_BLOCKS if line.algorithm == "nvls" else NVLS_BLOCKS_BETWEEN)[paths.generation]
    count = channels(paths)
    needed = _BYTES_PER_BLOCK[line.protocol]
    if line.algorithm == "ring" and line.protocol == "LL":
        needed *= paths.ranks
    return max(min(count, nbytes // needed), 1)


def channels(paths: Paths) -> int:
    """The channels of a communicator: those of the search, twice (ncclTopoPostset)."""
    if paths.nodes == 1:
        return min(2 * nccl.channels(paths.intra, paths.generation)[0], MOST_BLOCKS)
    count = min(2 * max(paths.nics, 1), MOST_BLOCKS)
    return 2 * count if paths.generation >= nccl.HOPPER and count < 16 else count


def memory_traffic(bus_bandwidth: float) -> float:
    """Bytes per second in a card's memory, for a bus bandwidth as nccl-tests reports it."""
    return MEMORY_PER_BUS_BYTE * bus_bandwidth
