"""The roofline model: a kernel's nanoseconds on a card, from its FLOPs, its bytes, and how well it fills the card.

A kernel takes a minimum time, plus the longer of its arithmetic and its memory traffic (the roofline). Neither runs at
the data sheet's peak; the constants below and in `efficiency` are the model's only ones, the same for every card, each
with its source. Matrix products are cut into tiles that the multiprocessors process in waves, as in cuBLAS: a product
whose tiles fill the last wave badly, or are too few to fill the card, is slower than its FLOPs suggest.

Not modelled: the choice of an algorithm by trial (cuDNN's benchmark mode), and what earlier kernels have left in L2: a
kernel that moves little enough finds all of it there.

>>> from fakegpu_lab.hardware.catalogue.lookup import gpu
>>> a100 = Roofline(gpu("a100"))
>>> round(2 * 8192**3 / a100.gemm("bf16", 8192, 8192, 8192) / 1e3)  # TFLOP/s of 312
229
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.hardware.time.efficiency import products

if TYPE_CHECKING:
    from fakegpu_lab.hardware.catalogue.profile import GpuProfile

FLOOR_NS = 2_000
"""The shortest kernel: what profilers show for an add of a few numbers (1.5 to 2.5 µs on V100, A100 and H100)."""

DRAM_OVERHEAD = 1.02
SM_BANDWIDTH = 70e9
"""A byte from or to memory takes ``DRAM_OVERHEAD / bandwidth`` and, on its way through one of the multiprocessors,
``1 / (multiprocessors · SM_BANDWIDTH)``: a card with much bandwidth for each multiprocessor uses less of it. Streaming
kernels get 89% of a V100's (11 GB/s for each), 90% of an L40's (6), 85% of an A100's (19) and 66% of an H200's
(36): github.com/te42kyfo/gpu-benches, gpu-stream; RTX 3090 Ti 85% (12): github.com/mli/transformers-benchmarks."""

L2_BANDWIDTH = 45e9
L2_SHARE = 0.7
"""Bytes per second of each multiprocessor from L2, and the fraction of L2 that a kernel's traffic may have to find
itself there; from there to twice as much, less and less (github.com/te42kyfo/gpu-benches, gpu-l2-cache: 5.4 TB/s on an
A100 up to 28 MB, 3.0 at 37 MB, 1.9 at 63 MB; 5.2 TB/s on an L40, 7.0 on an H100 PCIe)."""

GATHER_FACTOR = 2.0
"""How much longer a byte takes in kernels that read or write rows or elements by index."""

DIRECT_EFFICIENCY = 0.15
"""The fraction of fp32 peak that depthwise convolutions get: PyTorch's direct kernel has one thread for each output,
and loads for each multiply-add (an estimate)."""

ATTENTION_EFFICIENCY = {
    "flash": ((0.65, 0.55), (0.38, 0.34)),
    "cudnn": ((0.65, 0.55), (0.60, 0.50)),
    "efficient": ((0.35, 0.25), (0.20, 0.15)),
}
"""The same for fused attention, by kernel: before Hopper and since, forward and backward. FlashAttention-2 reaches 200
and 175 of 312 TFLOP/s on an A100, CUTLASS's memory-efficient kernel half as much (arXiv:2307.08691, figures 4
to 6); on an H100 it reaches 35 to 40% of 989, and cuDNN's kernel some 600 TFLOP/s (arXiv:2407.08608, figures 5, 6)."""

ATTENTION_TILE = (128, 64)
"""Rows and columns of the scores that fused attention computes at a time: shorter lengths cost as much as these
(flash_fwd_launch_template.h of FlashAttention)."""


def attention_width(width: int) -> int:
    """The head's width that fused attention computes: the next multiple of 32, above 128 of 64 (flash_api.cpp).

    >>> [attention_width(width) for width in (40, 64, 80, 160)]
    [64, 64, 96, 192]
    """
    step = 32 if width <= 128 else 64
    return -(-width // step) * step


UNALIGNED = {8: 0.7, 4: 0.5}
"""The factor for rows that begin at multiples of 8 or 4 bytes, not of 16, so that tensor cores are fed by narrow
loads (NVIDIA, "Matrix Multiplication Background": alignment). With rows of 140 halves, an A100 gets 86 instead of 132
TFLOP/s, a part of it because the sum is cut into pieces of 32 (pytorch#83272)."""

ODD = 340
"""FLOPs of a multiprocessor in a clock cycle for 16-bit rows of odd length. Loads of two bytes cannot be asynchronous
(PTX ISA: ``cp.async`` copies 4, 8 or 16), so cuBLAS takes a kernel of Turing's, however fast the tensor cores are
(``cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1``: 107 to 116 TFLOP/s on an RTX 4090, 156 with even rows;
pytorch#181718). That is 0.7 of an RTX 4090's rate, 0.22 of an A100's and 0.11 of an H100's."""

SOLVER_EFFICIENCY = 0.05
"""The fraction of peak that factorisations get: their panels are sequential."""

TILES = (
    (256, 128, 1.0), (128, 128, 0.95), (128, 64, 0.80), (64, 64, 0.60), (64, 32, 0.40),
    (256, 32, 0.53), (256, 16, 0.28), (256, 8, 0.14),
)  # fmt: skip
"""Tiles (rows, columns), and their efficiency relative to the largest: smaller tiles load more bytes for each FLOP. The
narrow ones serve results of few columns, such as the groups of a ResNeXt's convolutions: the last ones go down with
rows · columns / (rows + columns), to the 8 columns of ``mma.m16n8k16`` (PTX ISA)."""

TILE_NS = 1_000
"""A tile's cost on top of its FLOPs: the first loads, and writing the result."""

MIN_SPLIT = 256
"""A product with too few tiles is also split along the sum, into parts of at least this length (split-K)."""

REMEMBERED = 4096
"""Number of kernels whose time is cached: a program multiplies the same few shapes over and over."""

ELEMENTS_PER_THREAD = 4
"""Elements for each thread of PyTorch's elementwise kernels (CUDALoops.cuh)."""


class Roofline:
    """The times of kernels on one card.

    Parameters
    ----------
    profile
        The card.

    Attributes
    ----------
    floor
        The time of the shortest kernels, ns.
    one_block
        The fraction of the card that a kernel of one block fills.
    ns_per_byte, ns_per_cached_byte
        Of a kernel that streams more than `uncached` bytes, and one that streams less than `cached`.
    dram_part
        The part of `ns_per_byte` that is spent in memory; the rest is the way through the multiprocessors.
    known
        The driver's cache of kernels' times; at most `REMEMBERED` entries.
    """

    __slots__ = (
        "_full_grid", "cached", "dram_part", "floor", "known", "ns_per_byte", "ns_per_cached_byte", "one_block",
        "profile", "uncached",
    )  # fmt: skip

    def __init__(self, profile: GpuProfile) -> None:
        self.profile = profile
        self.floor = FLOOR_NS
        self.one_block = 1.0 / profile.sm_count
        through_sms = 1e9 / (profile.sm_count * SM_BANDWIDTH)
        self.ns_per_byte = 1e9 * DRAM_OVERHEAD / profile.memory_bandwidth + through_sms
        self.dram_part = 1 - through_sms / self.ns_per_byte
        self.ns_per_cached_byte = min(1e9 / (profile.sm_count * L2_BANDWIDTH), self.ns_per_byte)
        self.cached = int(L2_SHARE * profile.l2_bytes)
        self.uncached = 2 * self.cached
        self.known: dict[Any, Any] = {}
        self._full_grid = profile.sm_count * profile.max_threads_per_sm * ELEMENTS_PER_THREAD

    def remember(self, key: Any, work: Any) -> Any:
        """Keep `work` in `known`, which is emptied when it is full."""
        if len(self.known) >= REMEMBERED:
            self.known.clear()
        self.known[key] = work
        return work

    def streaming(self, nbytes: int) -> int:
        """A kernel that reads and writes `nbytes` contiguous bytes."""
        if nbytes <= self.cached:
            return FLOOR_NS + int(nbytes * self.ns_per_cached_byte)
        if nbytes >= self.uncached:
            return FLOOR_NS + int(nbytes * self.ns_per_byte)
        missed = nbytes / self.cached - 1
        return FLOOR_NS + int(nbytes * (self.ns_per_byte * missed + self.ns_per_cached_byte * (1 - missed)))

    def gather(self, nbytes: int) -> int:
        """A kernel that reads or writes `nbytes` bytes by index."""
        return FLOOR_NS + round(nbytes * self.ns_per_byte * GATHER_FACTOR)

    def share(self, elements: int) -> float:
        """The fraction of the card that an elementwise kernel over this many elements fills."""
        share = elements / self._full_grid
        return 1.0 if share > 1.0 else max(share, self.one_block)

    def arithmetic(self, fmt: str, flops: float, nbytes: int = 0, efficiency: float = 1.0) -> int:
        """A kernel of evenly spread FLOPs in a number format that moves `nbytes` bytes, at a fraction of peak."""
        compute = flops / (self.profile.peak(fmt) * min(efficiency, products(self.profile, fmt))) * 1e9
        return max(FLOOR_NS + round(compute), self.streaming(nbytes))

    def gemm(
        self,
        fmt: str,
        m: int,
        n: int,
        k: int,
        batch: int = 1,
        *,
        nbytes: int = 0,
        alignment: int = 16,
        efficiency: float | None = None,
    ) -> int:
        """`batch` products of m×k and k×n matrices that together move `nbytes` bytes.

        Parameters
        ----------
        fmt
            The format of the factors: ``"fp32"``, ``"tf32"``, ``"fp16"``, ``"bf16"``, ….
        alignment
            The bytes at whose multiples rows begin: 16 if that is 16 or more.
        efficiency
            The fraction of peak that a large product gets; without it, `efficiency.products`.
        """
        if efficiency is None:
            efficiency = products(self.profile, fmt)
        rate = self._per_ns(fmt) * efficiency * UNALIGNED.get(alignment, 1.0)
        if alignment < 4:
            rate = min(rate, ODD * self.profile.core_clock_mhz / 1e3)
        return max(FLOOR_NS + round(self._tiled(m, n, k, batch, rate)), self.streaming(nbytes))

    def gemm_share(self, m: int, n: int, batch: int = 1) -> float:
        """The fraction of the card that such products fill, with one tile of 128×64 on each multiprocessor."""
        return min(1.0, -(-m // 128) * -(-n // 64) * batch * self.one_block)

    def _per_ns(self, fmt: str) -> float:
        """The FLOPs of one multiprocessor in a nanosecond, at peak."""
        return self.profile.peak(fmt) / self.profile.sm_count / 1e9

    def _tiled(self, m: int, n: int, k: int, batch: int, rate: float) -> float:
        """Nanoseconds of the busiest multiprocessor, for the best tile size, at `rate` FLOPs a nanosecond."""
        sms = self.profile.sm_count
        best = float("inf")
        for rows, columns, efficiency in TILES:
            blocks = max(-(-m // rows) * -(-n // columns) * batch, 1)
            parts = max(min(sms // blocks, k // MIN_SPLIT), 1)
            waves = -(-blocks * parts // sms)
            ns = waves * (TILE_NS + 2.0 * rows * columns * (k / parts) / (rate * efficiency))
            if parts > 1:  # each part writes fp32 sums, which a second pass adds up
                ns += 8.0 * m * n * batch * parts * self.ns_per_byte
            best = min(best, ns)
        return best
