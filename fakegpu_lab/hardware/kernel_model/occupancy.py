"""Occupancy: how many blocks of a kernel a multiprocessor holds at a time, and what limits them.

The rules are those of NVIDIA's occupancy calculator: registers are given to warps in units of 256, shared memory to
blocks in units of 128 bytes (256 before compute capability 8.0), and from 8.0 on each block has 1 KiB more, which the
system keeps (CUDA C++ Programming Guide, "Compute Capabilities"; Ampere Tuning Guide).

>>> from fakegpu_lab.hardware.catalogue.lookup import gpu
>>> occupancy(gpu("a100"), threads=1024, registers=64).limited_by
'registers'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab.hardware.time.access import Occupancy

if TYPE_CHECKING:
    from fakegpu_lab.hardware.catalogue.profile import GpuProfile

_REGISTER_UNIT = 256
_RESERVED = 1024


def occupancy(profile: GpuProfile, threads: int, registers: int = 0, shared_bytes: int = 0) -> Occupancy:
    """The occupancy of a kernel on a card.

    Parameters
    ----------
    threads
        Threads of a block.
    registers
        Registers of a thread; 0 if unknown: then they limit nothing.
    shared_bytes
        Bytes of shared memory of a block.
    """
    warps = -(-threads // profile.warp_size)
    max_warps = profile.max_threads_per_sm // profile.warp_size
    limits = {"blocks": profile.max_blocks_per_sm, "threads": max_warps // max(warps, 1)}
    if registers:
        for_a_warp = -(-registers * profile.warp_size // _REGISTER_UNIT) * _REGISTER_UNIT
        # A multiprocessor has four partitions, each with its own registers for its own warps.
        limits["registers"] = profile.regs_per_sm // 4 // for_a_warp * 4 // max(warps, 1)
    modern = profile.compute_capability >= (8, 0)
    unit = 128 if modern else 256
    needed = -(-shared_bytes // unit) * unit + (_RESERVED if modern else 0)
    if shared_bytes:
        limits["shared memory"] = profile.shared_mem_per_sm // needed
    limit = min(limits, key=lambda name: limits[name])
    blocks = limits[limit]
    return Occupancy(blocks, min(blocks * warps, max_warps), max_warps, limit, limits)
