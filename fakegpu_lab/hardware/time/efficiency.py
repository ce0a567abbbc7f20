"""How much of a card's arithmetic peak kernels get, by number format and architecture.

The constants were chosen on the rows of tests/fidelity/published.csv that are not set aside, many rows for each; the
documentation (docs/fidelity.md) shows what they miss.

>>> from fakegpu_lab.hardware.catalogue.lookup import gpu
>>> products(gpu("a100"), "bf16"), round(products(gpu("l4"), "bf16"), 2), products(gpu("rtx3090"), "bf16")
(0.74, 0.44, 1.05)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fakegpu_lab.hardware.catalogue.profile import GpuProfile

TENSOR = 0.74
"""Of the tensor cores' peak, by large matrix products: 736 to 797 of 989 TFLOP/s on an H100, 97 of 125 on a V100, 230
to 271 of 312 on an A100; products in a training step get somewhat less than one that is repeated."""

TENSOR_HALF_RATE = 1.05
"""The same on GeForce cards from Turing on, whose tensor cores run at half rate when they add in float32: memory keeps
up with them, and the cards boost above the clock that their peak is rated at (81 of 80 TFLOP/s on an RTX 3090 Ti, 224
of 210 on an RTX 5090)."""

VECTOR = 0.90
SHARED_VECTOR = 0.74
"""The same without tensor cores. From GA10x on, half of a multiprocessor's 128 float32 lanes share their path with
integer work, and get less (14.4 of 15.7 TFLOP/s on a V100, 8.6 of 9.3 on a P100; 24.4 of 34.1 on an RTX 3080 Ti, 51.8
of 67 on an H100)."""

PICOJOULES = {
    "volta": 2.7, "turing": 2.7, "ampere": 2.8, "a100": 1.2, "ada": 1.35, "hopper": 0.75, "blackwell": 0.6,
}  # fmt: skip
"""Energy of a float16 operation in a large product, with what feeds it: a card's power limit bounds its rate. It is the
limit of an L4 (72 W: 54 to 59 of 121 TFLOP/s), an A10, an RTX A6000 (300 W: 95 of 155) and an H100 PCIe (350 W: 493 of
756)."""

PICOJOULES_FP32 = {"turing": 16.0, "ampere": 12.0, "ada": 7.6}
"""The same of a float32 operation without tensor cores, on the architectures whose economical cards are limited by it
(github.com/zzc0721/torch-performance-test-data, database.md): 4.2 to 4.4 TFLOP/s on a T4 (70 W), 23.9 on an RTX A6000
(300 W), 11.9 on an RTX A4000 (140 W), 36 to 37 on an L20 (275 W), 46.9 on an L40S (350 W)."""

_ENERGY = {"fp16": 1.0, "bf16": 1.0, "tf32": 2.0, "fp8": 0.5, "int8": 0.5, "fp4": 0.25, "int4": 0.25}

CONVOLUTION = 0.50
"""Of what the multiprocessors' tensor cores could do (`_MMA`), by cuDNN's convolutions as implicit matrix products."""

_MMA = {(8, 0): 1024, (9, 0): 2048, (10, 0): 4096, (10, 3): 4096}
_MMA_ELSE = 512
"""Float16 multiply-adds of a multiprocessor in a clock cycle, by compute capability."""

WINOGRAD = 1.6
"""A 3×3 convolution of stride 1 in float32 needs 2.25 times fewer multiplications by Winograd's algorithm
(arXiv:1509.09308); its transforms cost a part of that."""


def products(profile: GpuProfile, fmt: str) -> float:
    """The fraction of peak in a number format that large matrix products get."""
    capability = profile.compute_capability
    if fmt == "fp64":
        return VECTOR
    family = "a100" if capability == (8, 0) else profile.architecture
    if fmt == "fp32" or capability < (7, 0) or fmt not in profile.peak_flops.given():
        most = VECTOR if capability < (8, 6) else SHARED_VECTOR
        energy = PICOJOULES_FP32.get(family, 0.0)
    else:
        most = TENSOR_HALF_RATE if profile.segment in ("consumer", "laptop") else TENSOR
        energy = PICOJOULES.get(family, PICOJOULES["blackwell"]) * _ENERGY.get(fmt, 0.0)
    return min(most, profile.power_limit_w / (energy * 1e-12) / profile.peak(fmt)) if energy else most


def convolutions(profile: GpuProfile, fmt: str) -> float:
    """The same for convolutions as implicit matrix products."""
    most = products(profile, fmt)
    if fmt not in _ENERGY or profile.compute_capability < (7, 0):
        return most
    rate = _MMA.get(profile.compute_capability, _MMA_ELSE) * 2.0 * profile.sm_count * profile.core_clock_mhz * 1e6
    return min(most, CONVOLUTION * rate / profile.peak("fp16"))
