"""The roofline model: a kernel's nanoseconds on a card, from its FLOPs, its bytes, and how well it fills the card.

A kernel takes a minimum time, plus the longer of its arithmetic and its memory traffic (the roofline). Neither runs at
the data sheet's peak; the efficiencies below are the model's only constants, the same for every card, each with its
source. Matrix products are cut into tiles that the multiprocessors process in waves, as in cuBLAS: a product whose
tiles fill the last wave badly, or are too few to fill the card, is slower than its FLOPs suggest.

Not modelled: clocks that fall under load, data that stays in L2, the choice of an algorithm by trial (cuDNN's benchmark
mode).

>>> from fakegpu_lab.hardware.catalogue.lookup import gpu
>>> a100 = Roofline(gpu("a100"))
>>> round(2 * 8192**3 / a100.gemm("bf16", 8192, 8192, 8192) / 1e3)  # TFLOP/s of 312
254
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fakegpu_lab.hardware.catalogue.profile import GpuProfile

FLOOR_NS = 2_000
"""The shortest kernel: what profilers show for an add of a few numbers (1.5 to 2.5 µs on V100, A100 and H100)."""

DRAM_EFFICIENCY = 0.80
"""The fraction of the data sheet's bandwidth that streaming kernels and copies on the device get: these copies reach
1153 of 1555 GB/s on an A100-40GB, 713 of 900 on a V100, 234 of 320 on a T4 (NVIDIA's bandwidthTest, reads and writes
counted); BabelStream's triad 85 to 90 %."""

GATHER_EFFICIENCY = 0.40
"""The same for kernels that read or write rows or elements by index."""

MATH_EFFICIENCY = 0.82
"""The fraction of peak that large matrix products get: 87 % on an A100 SXM in BF16, 81 % on an A100 PCIe, 80 % on an
H100 (their mean is 0.826)."""

CONVOLUTION_EFFICIENCY = 0.70
"""The same for convolutions as implicit matrix products (cuDNN's tensor-core kernels on ResNet's 3×3 layers)."""

DIRECT_EFFICIENCY = 0.20
"""The fraction of fp32 peak that depthwise convolutions get: PyTorch's direct kernel has one thread for each output,
and loads for each multiply-add (an estimate)."""

ATTENTION_EFFICIENCY = {
    "flash": ((0.65, 0.55), (0.38, 0.34)),
    "cudnn": ((0.65, 0.55), (0.60, 0.50)),
    "efficient": ((0.35, 0.25), (0.20, 0.15)),
}
"""The same for fused attention, by kernel: before Hopper and since, forward and backward. FlashAttention-2 reaches 200
and 175 of 312 TFLOP/s on an A100, CUTLASS's memory-efficient kernel half as much (arXiv:2307.08691, figures 4
to 6); on an H100 it reaches 35 to 40 % of 989, and cuDNN's kernel some 600 TFLOP/s (arXiv:2407.08608, figures 5, 6)."""

UNALIGNED = 0.5
"""The factor for rows that are not a multiple of 16 bytes, so that tensor cores are fed by narrow loads (NVIDIA,
"Matrix Multiplication Background": alignment)."""

SOLVER_EFFICIENCY = 0.05
"""The fraction of peak that factorisations get: their panels are sequential."""

TILES = ((256, 128, 1.0), (128, 128, 0.95), (128, 64, 0.80), (64, 64, 0.60), (64, 32, 0.40))
"""Tiles (rows, columns), and their efficiency relative to the largest: smaller tiles load more bytes for each FLOP."""

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
    ns_per_byte
        Of a kernel that streams.
    known
        The driver's cache of kernels' times; at most `REMEMBERED` entries.
    """

    __slots__ = ("_full_grid", "floor", "known", "ns_per_byte", "one_block", "profile")

    def __init__(self, profile: GpuProfile) -> None:
        self.profile = profile
        self.floor = FLOOR_NS
        self.one_block = 1.0 / profile.sm_count
        self.ns_per_byte = 1e9 / (profile.memory_bandwidth * DRAM_EFFICIENCY)
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
        return FLOOR_NS + int(nbytes * self.ns_per_byte)

    def gather(self, nbytes: int) -> int:
        """A kernel that reads or writes `nbytes` bytes by index."""
        return FLOOR_NS + round(nbytes * self.ns_per_byte * DRAM_EFFICIENCY / GATHER_EFFICIENCY)

    def share(self, elements: int) -> float:
        """The fraction of the card that an elementwise kernel over this many elements fills."""
        share = elements / self._full_grid
        return 1.0 if share > 1.0 else max(share, self.one_block)

    def arithmetic(self, fmt: str, flops: float, nbytes: int = 0, efficiency: float = MATH_EFFICIENCY) -> int:
        """A kernel of evenly spread FLOPs in a number format that moves `nbytes` bytes."""
        compute = flops / (self.profile.peak(fmt) * efficiency) * 1e9
        return FLOOR_NS + round(max(compute, nbytes * self.ns_per_byte))

    def gemm(
        self,
        fmt: str,
        m: int,
        n: int,
        k: int,
        batch: int = 1,
        *,
        nbytes: int = 0,
        aligned: bool = True,
        efficiency: float = MATH_EFFICIENCY,
    ) -> int:
        """`batch` products of m×k and k×n matrices that together move `nbytes` bytes.

        Parameters
        ----------
        fmt
            The format of the factors: ``"fp32"``, ``"tf32"``, ``"fp16"``, ``"bf16"``, ….
        aligned
            Whether rows begin at multiples of 16 bytes.
        """
        rate = self._per_ns(fmt) * efficiency * (1.0 if aligned else UNALIGNED)
        return FLOOR_NS + round(max(self._tiled(m, n, k, batch, rate), nbytes * self.ns_per_byte))

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
