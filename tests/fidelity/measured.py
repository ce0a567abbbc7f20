"""Times: what real cards were measured to do, where that was written, and how the simulation is asked for the same."""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from fakegpu_lab.hardware.catalogue.lookup import gpu
from fakegpu_lab.hardware.catalogue.spec import parse_spec
from fakegpu_lab.hardware.network.fabric import Fabric
from fakegpu_lab.hardware.network.links import Links
from fakegpu_lab.hardware.time.roofline import Roofline
from tests.fidelity.fact import Fact, enabled
from tests.fidelity.training import bert, resnet50

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DLE = "NVIDIA/DeepLearningExamples, PyTorch/"
RESNET = DLE + "Classification/ConvNets/resnet50v1.5/README.md; configs.yml"
BERT_2022 = DLE + "LanguageModeling/BERT/README.md, A100 80GB; dgxa100-80g_8gpu_amp and _tf32"
BERT_2020 = DLE + "LanguageModeling/BERT/README.md of July 2020, container 20.06"
BANDWIDTH_TEST = "published runs of NVIDIA's bandwidthTest (on the device, reads and writes counted)"
NCCL_TESTS = "nccl-tests' all_reduce_perf, float32, out of place (tests/fidelity/all_reduce_8x*.csv)"
GEMM = "published ceilings of cuBLAS on large products"

FULL = 0.25
"""Of Wikipedia's sequences for length 512, over half of all tokens are padding (arXiv:2107.02027). The data of 2022
comes in bins of 64: let a quarter of the batches be full, and the others have the 170 tokens that make half, padded to
192."""


CLOSE = 0.25
"""The relative error that is held."""

OLD = 0.30
"""The same where software of 2020 is compared with PyTorch's of today."""


def product(fmt: str, card: str, n: int = 8192) -> float:
    """TFLOP/s of a large square product."""
    return 2 * n**3 / Roofline(gpu(card)).gemm(fmt, n, n, n) / 1e3


def copy_on_device(card: str, nbytes: int = 2**28) -> float:
    """GB/s of a copy on the device, read and written."""
    return 2 * nbytes / Roofline(gpu(card)).streaming(2 * nbytes)


def copy_to_host(card: str, *, to_device: bool, pinned: bool, nbytes: int = 2**28) -> float:
    """GB/s of a copy between host and device."""
    return nbytes / Links(parse_spec(card)).host_ns(0, nbytes, to_device=to_device, pinned=pinned)


def all_reduce_table(cards: str) -> list[tuple[int, float]]:
    """Bytes, and the microseconds that an all-reduce of them took on eight of these cards."""
    with (Path(__file__).parent / f"all_reduce_8x{cards}.csv").open() as file:
        return [(int(row["bytes"]), float(row["time_us"])) for row in csv.DictReader(file)]


def all_reduce(nbytes: int, card: str) -> float:
    """Microseconds of an all-reduce on eight GPUs."""
    return Fabric(parse_spec(f"dgx-{card}")).cost("all_reduce", range(8), nbytes).ns / 1e3


def throughput(card: str, program: Callable[[], Iterator[None]], items: int) -> float:
    """Items a second of a training program's steady step, by CUDA events."""
    before = torch.backends.cuda.matmul.allow_tf32
    with enabled(card, compute="meta"):
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            steps = program()
            next(steps)  # the first makes gradients and the optimizer's state
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            next(steps)
            end.record()
            torch.cuda.synchronize()
            return items * 1e3 / start.elapsed_time(end)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before


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


def size(nbytes: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes} {unit}"
        nbytes //= 1024
    return f"{nbytes} GiB"


KERNELS = [
    Fact(f"{fmt.upper()} product of 8192×8192", card, real, GEMM, partial(product, fmt), "TFLOP/s", CLOSE)
    for fmt, card, real in (
        ("bf16", "a100", 271),
        ("bf16", "a100-pcie-80gb", 253),
        ("bf16", "h100", 794.5),
        ("fp8", "h100", 1403),
    )
]
KERNELS += [
    Fact("copy on the device, 256 MiB", card, real, BANDWIDTH_TEST, copy_on_device, "GB/s", CLOSE)
    for card, real in (("a100-40gb", 1153), ("v100", 713), ("t4", 234))
]

TRANSFERS = [
    Fact(
        f"{'host to device' if to_device else 'device to host'}, {'pinned' if pinned else 'pageable'}, 256 MiB",
        "a100",
        real,
        BANDWIDTH_TEST,
        partial(copy_to_host, to_device=to_device, pinned=pinned),
        "GB/s",
        CLOSE,
    )
    for to_device, pinned, real in ((True, True, 25.7), (True, False, 10.0), (False, True, 25.8), (False, False, 10.8))
]

COLLECTIVES = [
    Fact(f"all-reduce on 8 GPUs, {size(nbytes)}", card, us, NCCL_TESTS, partial(all_reduce, nbytes), "µs", CLOSE)
    for card in ("a100", "h100")
    for nbytes, us in all_reduce_table(card.upper())
]

TRAINING = [
    Fact(
        f"ResNet-50, {how}, batch 256",
        "a100",
        real,
        RESNET,
        partial(image_training, batch=256, amp=amp),
        "images/s",
        CLOSE,
    )
    for how, amp, real in (("TF32, NCHW", False, 938), ("AMP, NHWC", True, 2470))
]
TRAINING += [
    Fact(
        f"BERT-large, 128, {how}",
        "a100",
        real,
        BERT_2022,
        partial(text_training, batch=batch, length=128, amp=amp),
        "seq/s",
        CLOSE,
    )
    for how, amp, batch, real in (("TF32", False, 128, 317), ("AMP", True, 256, 580))
]
TRAINING += [
    Fact(
        f"BERT-large, 512, {how}",
        "a100",
        real,
        BERT_2022,
        partial(binned_text_training, batch=batch, amp=amp),
        "seq/s",
        CLOSE,
    )
    for how, amp, batch, real in (("TF32", False, 16, 110), ("AMP", True, 32, 210))
]

OLDER = [
    Fact(
        f"BERT-large, {length}, {how}, 2020",
        card,
        real,
        BERT_2020,
        partial(text_training, batch=batch, length=length, amp=amp),
        "seq/s",
        OLD,
    )
    for card, length, how, amp, batch, real in (
        ("a100-40gb", 128, "TF32", False, 54, 234),
        ("a100-40gb", 128, "AMP", True, 64, 415),
        ("a100-40gb", 512, "TF32", False, 8, 41),
        ("a100-40gb", 512, "AMP", True, 16, 78),
        ("v100", 128, "FP32", False, 8, 42),
        ("v100", 128, "AMP", True, 16, 173),
        ("v100", 512, "FP32", False, 2, 10),
        ("v100", 512, "AMP", True, 4, 36),
    )
]
