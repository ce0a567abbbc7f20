"""How long a launch takes on a card: the slowest of what its blocks need, wave by wave.

A wave is as many blocks as the multiprocessors hold at a time (`occupancy`). The blocks of a wave share DRAM, L2, and
the pipes of their multiprocessors: load/store units with L1 and shared memory, arithmetic, tensor cores. A wave takes
as long as the one that is needed longest; the last wave may have fewer blocks (the tail). DRAM, L2 and arithmetic have
the efficiencies of `hardware.time.roofline`.

Simplified: all blocks are alike; latency shows only as a limit of the bytes that a multiprocessor has under way, which
depends on its warps; integer arithmetic and the instructions between are not counted, so that a kernel of many small
instructions is slower than shown here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fakegpu_lab.hardware.time.access import LaunchTime
from fakegpu_lab.hardware.time.efficiency import products
from fakegpu_lab.hardware.time.roofline import DRAM_OVERHEAD, FLOOR_NS, L2_BANDWIDTH, L2_SHARE, SM_BANDWIDTH

if TYPE_CHECKING:
    from fakegpu_lab.hardware.catalogue.profile import GpuProfile
    from fakegpu_lab.hardware.time.access import Access, Occupancy

LOAD_STORE_UNITS = {(6, 0): 16, (7, 0): 32, (8, 0): 32, (9, 0): 32, (10, 0): 32, (10, 3): 32}
_LOAD_STORE_UNITS = 16
"""Lanes that a multiprocessor's load/store units take in a cycle, by compute capability: 8 for each of the four
partitions of V100, A100 and H100, 4 on the others since Turing (NVIDIA's architecture white papers)."""

GLOBAL_CYCLES = {(7, 0): 2.0, (8, 0): 1.5, (9, 0): 1.5, (10, 0): 1.5, (10, 3): 1.5}
"""Cycles that L1 takes for a request to global memory, also where one would do for its lanes; by compute capability.

Measured: a product of matrices with two such requests for each multiply-add, and none of them to DRAM, reaches 2312
GFLOP/s on a V100 (github.com/jhlee508/matmul-cuda), which are 1.7 cycles a request, and 3116 GFLOP/s on an A100
(github.com/siboehm/SGEMM_CUDA, February 2023), which are 1.6. The narrow products of the CUDA C++ Best Practices Guide
take 2.0 and 2.2 on a V100. NVIDIA names one cycle for the tag stage alone (forums.developer.nvidia.com/t/273699). Later
cards are taken to be like an A100; on the others, the lanes take as long."""

LATENCY_NS = 500.0
UNDER_WAY = 4
"""A load from DRAM takes about `LATENCY_NS` on a busy card, and a warp has about `UNDER_WAY` of them under way: too few
warps cannot keep DRAM busy (Little's law). Estimates: 466 cycles on an A100, 561 on an H100 and 478 on a V100 without
load (arXiv:2208.11174, arXiv:2402.13499, arXiv:1804.06826)."""

ATOMIC_NS = 1.0
"""Between two atomic operations on one address: about one for each cycle of L2 (an estimate)."""


def load_store_units(profile: GpuProfile) -> int:
    """Lanes that go through a multiprocessor's load/store units in a cycle."""
    return LOAD_STORE_UNITS.get(profile.compute_capability, _LOAD_STORE_UNITS)


def launch_time(profile: GpuProfile, access: Access, occupancy: Occupancy) -> LaunchTime:
    """The time of a launch with that traffic, `Access.grid` blocks, and that occupancy."""
    blocks = max(math.prod(access.grid), 1)
    resident = max(occupancy.blocks, 1) * profile.sm_count
    waves, tail = divmod(blocks, resident)
    whole = _wave(profile, access, occupancy, min(resident, blocks), blocks) if waves else {}
    last = _wave(profile, access, occupancy, tail, blocks) if tail else {}
    parts = {name: waves * whole.get(name, 0.0) + last.get(name, 0.0) for name in whole or last}
    ns = waves * max(whole.values(), default=0.0) + max(last.values(), default=0.0)
    if access.atomics_on_one_address:
        parts["atomics"] = access.atomics_on_one_address * ATOMIC_NS
        ns = max(ns, parts["atomics"])
    bound_by = max(parts, key=lambda name: parts[name])
    if parts[bound_by] < FLOOR_NS / 4:
        bound_by = "the launch"
    return LaunchTime(FLOOR_NS + round(ns), parts, bound_by, waves, tail, resident)


def _wave(profile: GpuProfile, access: Access, occupancy: Occupancy, count: int, blocks: int) -> dict[str, float]:
    """The nanoseconds that `count` blocks at a time need of each resource."""
    part = count / blocks
    active = min(count, profile.sm_count)  # multiprocessors
    busiest = -(-count // active) / blocks  # the part of all work that the fullest of them has
    clock = profile.core_clock_mhz / 1e3  # cycles a nanosecond
    lanes = 32 / load_store_units(profile)
    each = max(lanes, GLOBAL_CYCLES.get(profile.compute_capability, lanes))
    pipe = max(access.global_wavefronts, access.requests * each)
    pipe += max(access.shared_wavefronts, access.shared_requests * lanes)
    times = {
        "DRAM": _dram(profile, access, occupancy, active) * part,
        "L2": access.l2_bytes * part * 1e9 / (active * L2_BANDWIDTH),
        "L1 and shared memory": pipe * busiest / clock,
        "arithmetic": 0.0,
        "tensor cores": 0.0,
    }
    for (fmt, tensor_core), flops in (access.flops_by_format or {}).items():
        given = fmt if tensor_core or fmt == "fp64" else "fp32"
        rate = profile.peak(given) / profile.sm_count * products(profile, given) / 1e9
        times["tensor cores" if tensor_core else "arithmetic"] += flops * busiest / rate
    return times


def _dram(profile: GpuProfile, access: Access, occupancy: Occupancy, active: int) -> float:
    """Nanoseconds for all DRAM traffic while `active` multiprocessors work.

    As in `Roofline.streaming`, what fits into L2 is found there, because the program has just used it.
    """
    nbytes = access.dram_bytes
    if not nbytes:
        return 0.0
    through = 1e9 / (active * SM_BANDWIDTH)
    each = 1e9 * DRAM_OVERHEAD / profile.memory_bandwidth + through
    if access.requests:
        request = 32 * access.sectors / access.requests
        under_way = max(occupancy.warps, 1) * UNDER_WAY * request * active
        each = max(each, LATENCY_NS / under_way)
    cached = L2_SHARE * profile.l2_bytes
    missed = min(max(nbytes / cached - 1, 0.0), 1.0)
    return nbytes * (each * missed + min(1e9 / (active * L2_BANDWIDTH), each) * (1 - missed))
