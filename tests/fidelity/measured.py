"""What real cards were measured to do, with where it was written, and how the simulation is asked for the same.

``python benchmarks/fidelity_time.py`` prints the table; `test_time` holds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import torch

import fakegpu_lab as lab
from fakegpu_lab.hardware.catalogue import gpu
from fakegpu_lab.hardware.fabric import Fabric
from fakegpu_lab.hardware.links import Links
from fakegpu_lab.hardware.roofline import Roofline
from fakegpu_lab.hardware.spec import parse_spec
from tests.fidelity.training import bert, resnet50

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DLE = "NVIDIA/DeepLearningExamples, PyTorch/"
RESNET = DLE + "Classification/ConvNets/resnet50v1.5/README.md; configs.yml"
BERT_2022 = DLE + "LanguageModeling/BERT/README.md, A100 80GB; dgxa100-80g_8gpu_amp and _tf32"
BERT_2020 = DLE + "LanguageModeling/BERT/README.md of July 2020, container 20.06"
BANDWIDTH_TEST = "published runs of NVIDIA's bandwidthTest (on the device, reads and writes counted)"
NCCL_TESTS = "nccl-tests' all_reduce_perf, float32: tests/fidelity/all_reduce_8x*.csv, which have all sizes"
GEMM = "published ceilings of cuBLAS on large products"

FULL = 0.25
"""Of Wikipedia's sequences for length 512, over half of all tokens are padding (arXiv:2107.02027). The data of 2022
comes in bins of 64: let a quarter of the batches be full, and the others have the 170 tokens that make half, padded to
192."""


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes
    ----------
    real, unit
        What the card did.
    simulated
        What the simulation does, in the same unit.
    within
        The relative error that is held. More than a quarter where software of 2020 is compared with PyTorch's of today.
    """

    what: str
    card: str
    real: float
    unit: str
    source: str
    simulated: Callable[[], float]
    within: float = 0.25

    @property
    def id(self) -> str:
        """For people and pytest."""
        return f"{self.what}, {self.card}"


def product(card: str, fmt: str, n: int = 8192) -> float:
    """TFLOP/s of a large square product."""
    return 2 * n**3 / Roofline(gpu(card)).gemm(fmt, n, n, n) / 1e3


def copy_on_device(card: str, nbytes: int = 2**28) -> float:
    """GB/s of a copy on the device, read and written."""
    return 2 * nbytes / Roofline(gpu(card)).streaming(2 * nbytes)


def copy_to_host(card: str, *, to_device: bool, pinned: bool, nbytes: int = 2**28) -> float:
    """GB/s of a copy between host and device."""
    return nbytes / Links(parse_spec(card)).host_ns(0, nbytes, to_device=to_device, pinned=pinned)


def all_reduce(machine: str, nbytes: int) -> float:
    """GB/s of bus bandwidth of an all-reduce on eight GPUs."""
    return Fabric(parse_spec(machine)).cost("all_reduce", range(8), nbytes).bus_bandwidth / 1e9


def throughput(card: str, program: Callable[[], Iterator[None]], items: int) -> float:
    """Items a second of a training program's steady step, by CUDA events."""
    lab.enable(card, compute="meta")
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        steps = program()
        list(islice(steps, 2))  # the first makes gradients and the optimizer's state
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        next(steps)
        end.record()
        torch.cuda.synchronize()
        return items * 1e3 / start.elapsed_time(end)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
        lab.disable()


def image_training(card: str, batch: int, *, amp: bool) -> float:
    """Images a second of ResNet-50."""
    return throughput(card, partial(resnet50, batch, amp=amp), batch)


def text_training(card: str, batch: int, length: int, *, amp: bool) -> float:
    """Sequences a second of BERT-large, all padded to `length`."""
    masked = 20 if length == 128 else round(0.15 * length)
    return throughput(card, partial(bert, batch, length, masked, amp=amp, every=10_000), batch)


def binned_text_training(card: str, batch: int, *, amp: bool) -> float:
    """The same for length 512 where a batch is only as long as its bin."""
    full, short = (text_training(card, batch, length, amp=amp) for length in (512, 192))
    return 1 / (FULL / full + (1 - FULL) / short)


QUICK = [
    Row(f"BF16 product, {name}", card, real, "TFLOP/s", GEMM, partial(product, card, "bf16"))
    for name, card, real in (("SXM", "a100", 271), ("PCIe", "a100-pcie-80gb", 253), ("SXM", "h100", 794.5))
]
QUICK.append(Row("FP8 product, SXM", "h100", 1403, "TFLOP/s", GEMM, partial(product, "h100", "fp8")))
QUICK += [
    Row("Copy on the device", card, real, "GB/s", BANDWIDTH_TEST, partial(copy_on_device, card))
    for card, real in (("a100-40gb", 1153), ("v100", 713), ("t4", 234))
]
QUICK += [
    Row(
        f"{'Host to device' if to_device else 'Device to host'}, {'pinned' if pinned else 'pageable'}", "a100", real,
        "GB/s", BANDWIDTH_TEST, partial(copy_to_host, "a100", to_device=to_device, pinned=pinned),
    )
    for to_device, pinned, real in ((True, True, 25.7), (True, False, 10.0), (False, True, 25.8), (False, False, 10.8))
]  # fmt: skip
QUICK += [
    Row(f"All-reduce, 8 GPUs, {size}", card, nbytes / us * 1.75 / 1e3, "GB/s", NCCL_TESTS,
        partial(all_reduce, f"dgx-{card}", nbytes))
    for card, size, nbytes, us in (
        ("a100", "1 MiB", 1 << 20, 37.3), ("a100", "16 MiB", 1 << 24, 220.5), ("a100", "1 GiB", 1 << 30, 8213),
        ("h100", "1 MiB", 1 << 20, 27.4), ("h100", "16 MiB", 1 << 24, 123.8), ("h100", "1 GiB", 1 << 30, 4029),
    )
]  # fmt: skip

TRAINING = [
    Row(f"ResNet-50, {how}, batch 256", "a100", real, "images/s", RESNET, partial(image_training, "a100", 256, amp=amp))
    for how, amp, real in (("TF32, NCHW", False, 938), ("AMP, NHWC", True, 2470))
]
TRAINING += [
    Row(
        f"BERT-large, 128, {how}", "a100", real, "seq/s", BERT_2022, partial(text_training, "a100", batch, 128, amp=amp)
    )
    for how, amp, batch, real in (("TF32", False, 128, 317), ("AMP", True, 256, 580))
]
TRAINING += [
    Row(f"BERT-large, 512, {how}", "a100", real, "seq/s", BERT_2022,
        partial(binned_text_training, "a100", batch, amp=amp))
    for how, amp, batch, real in (("TF32", False, 16, 110), ("AMP", True, 32, 210))
]  # fmt: skip

OLDER = [
    Row(f"BERT-large, {length}, {how}, 2020", card, real, "seq/s", BERT_2020,
        partial(text_training, card, batch, length, amp=amp), within=0.30)
    for card, length, how, amp, batch, real in (
        ("a100-40gb", 128, "TF32", False, 54, 234), ("a100-40gb", 128, "AMP", True, 64, 415),
        ("a100-40gb", 512, "TF32", False, 8, 41), ("a100-40gb", 512, "AMP", True, 16, 78),
        ("v100", 128, "FP32", False, 8, 42), ("v100", 128, "AMP", True, 16, 173),
        ("v100", 512, "FP32", False, 2, 10), ("v100", 512, "AMP", True, 4, 36),
    )
]  # fmt: skip

ROWS = [*QUICK, *TRAINING, *OLDER]
