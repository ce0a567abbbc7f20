"""Figures that others published (published.csv), and how the simulation is asked for the same.

A part of the rows is set aside by a fixed rule (`set_aside`): nothing in the model was chosen with them.
"""

from __future__ import annotations

import csv
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from fakegpu_lab.hardware.catalogue.lookup import gpu
from fakegpu_lab.hardware.catalogue.spec import parse_spec
from fakegpu_lab.hardware.network import nccl
from fakegpu_lab.hardware.network.fabric import Fabric
from fakegpu_lab.hardware.network.links import Links
from fakegpu_lab.hardware.time.roofline import Roofline
from tests.fidelity.fact import on_host
from tests.fidelity.programs import data_parallel, decoders, latencies, peaks, small_batches, small_steps, steps

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent


def product(machine: str, fmt: str, n: str) -> float:
    """TFLOP/s of a square product."""
    size = int(n)
    itemsize = {"fp32": 4, "tf32": 4, "fp8": 1}.get(fmt, 2)
    return 2 * size**3 / Roofline(gpu(machine)).gemm(fmt, size, size, size, nbytes=3 * size**2 * itemsize) / 1e3


def elementwise(machine: str, n: str) -> float:
    """GB/s of a kernel that reads and writes `n` floats."""
    nbytes = 8 * int(n)
    return nbytes / Roofline(gpu(machine)).streaming(nbytes)


def device_copy(machine: str, nbytes: str) -> float:
    """GB/s of a copy on the device, read and written."""
    return 2 * int(nbytes) / Roofline(gpu(machine)).streaming(2 * int(nbytes))


def host_copy(machine: str, direction: str, memory: str, nbytes: str) -> float:
    """GB/s of a copy between host and device."""
    links = Links(parse_spec(machine))
    return int(nbytes) / links.host_ns(0, int(nbytes), to_device=direction == "h2d", pinned=memory == "pinned")


def peer_copy(machine: str, nbytes: str, target: str = "1") -> float:
    """GB/s of a copy from the first card to another one."""
    return int(nbytes) / Links(parse_spec(machine)).peer_ns(0, int(target), int(nbytes))


def collective(machine: str, operation: str, gpus: str, nbytes: str, algorithm: str = "") -> float:
    """Microseconds of a collective: with NCCL's choice, or as with NCCL_ALGO."""
    fabric = Fabric(parse_spec(machine))
    if not algorithm:
        return fabric.cost(operation, range(int(gpus)), int(nbytes)).ns / 1e3  # type: ignore[arg-type]
    lines = nccl.lines(operation, fabric.paths(range(int(gpus))), int(nbytes))  # type: ignore[arg-type]
    return min(line.us(int(nbytes)) for line in lines if line.algorithm == algorithm)


MEASURES: dict[str, Callable[..., float]] = {
    **{one.__name__: one for one in (product, elementwise, device_copy, host_copy, peer_copy, collective)},
    "train": steps.train,
    "gpt_train": steps.gpt_train,
    "infer": steps.infer,
    "small_train": steps.small_train,
    "small_infer": steps.small_infer,
    "bert_layer": steps.bert_layer,
    "ddp": data_parallel.ddp,
    "timed_collective": data_parallel.timed_collective,
    "zero": peaks.zero,
    "trainer_memory": peaks.trainer_memory,
    "image_latency": small_batches.image_latency,
    "bert_latency": small_batches.bert_latency,
    "transformer_xl": small_batches.transformer_xl,
    "decode": small_batches.decode,
    "yolo_latency": small_batches.yolo_latency,
    "reinforcement": small_batches.reinforcement,
    "optimizer_step": small_steps.optimizer_step,
    "vit_latency": small_steps.vit_latency,
    "causal_training": small_steps.causal_training,
    "small_cnn": small_steps.small_cnn,
    "text_latency": latencies.text_latency,
    "recorded_latency": latencies.recorded_latency,
    "words_a_second": decoders.words_a_second,
    "clip_latency": decoders.clip_latency,
}

HOST = "Host-bound"
"""The category of programs whose time the host decides."""

COLLECTED_LATER = ("adamw24", "biogpt24", "opennn", "opt24", "vit24")
"""Host-bound series that no constant was chosen on. Some of their figures had been read before."""

NEVER_SEEN = ("bnabis93", "callbarian", "els", "gahow", "kaixin", "maocaixia", "totoadel", "wallace")
"""Host-bound series that nobody here had opened. Rows and programs were committed before the first was simulated."""

SECOND_ROUND = ("zuppi23", "dgx21", "qwen24", "scratch25", "litgpt23", "torchchat24", "zzhtju23", "optimum24")
"""Host-bound series that nobody here had opened when the errors of `NEVER_SEEN` were known: drawn, and committed with
their programs, before the first was simulated."""

QUICK = ("product", "elementwise", "device_copy", "host_copy", "peer_copy", "collective")
"""Measures that only evaluate a formula."""


@dataclass(frozen=True)
class Row:
    """One published figure.

    Attributes
    ----------
    apart
        Why it is not comparable: a condition of the measurement, published with it, that the model does not have.
    """

    category: str
    what: str
    machine: str
    measure: str
    arguments: str
    real: float
    unit: str
    held_out: bool
    source: str
    apart: str = ""

    @property
    def quick(self) -> bool:
        """Whether it takes no time to ask the simulation for the same."""
        return self.measure in QUICK

    def ours(self) -> float:
        """What the simulation says: with the host that the source names, if that is not the card's usual one."""
        with on_host(sources()[self.source]["profile"] or "usual"):
            return MEASURES[self.measure](self.machine, *self.arguments.split())


def series(source: str) -> str:
    """What one author measured on the same machines: the first word of the source's key."""
    return source.partition("-")[0]


def set_aside(row: Row) -> bool:
    """Whether a row is set aside.

    Of the host-bound rows, those of the series that were collected when the model of the host was finished: it has seen
    neither these programs nor these machines. Of the others, a third is, by a hash of what they are.
    """
    if row.category == HOST:
        return series(row.source) in COLLECTED_LATER + NEVER_SEEN + SECOND_ROUND
    return int(hashlib.sha256(f"{row.what}, {row.machine}".encode()).hexdigest(), 16) % 3 == 0


@cache
def rows() -> list[Row]:
    """All rows, in the file's order."""
    with (HERE / "published.csv").open(encoding="utf-8") as file:
        return [
            Row(**{**row, "real": float(row["real"]), "held_out": row["held_out"] == "yes"})  # type: ignore[arg-type]
            for row in csv.DictReader(file)
        ]


@cache
def sources() -> dict[str, dict[str, str]]:
    """Author, title and address of each source, by its key; the host's processor and torch's version, if known; and the
    profile of that host, if the card's usual one is another."""
    with (HERE / "published_sources.csv").open(encoding="utf-8") as file:
        return {row["source"]: row for row in csv.DictReader(file)}


def error(ours: float, real: float) -> float:
    """How far off, as a fraction; 0.5 and 2 times the real figure are equally far."""
    return max(ours / real, real / ours) - 1


def worst_and_median(errors: list[float]) -> tuple[float, float]:
    return max(errors), median(errors)
