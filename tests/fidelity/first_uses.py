"""What the first use of a card takes: published measurements, and how the simulation is asked for the same."""

from __future__ import annotations

from functools import cache, partial

import torch
import torch.distributed as dist

import fakegpu_lab as lab
from fakegpu_lab.hardware.catalogue.lookup import gpu
from tests.fidelity.fact import Fact, enabled

MIB = 2**20
A100S = "dgx-a100"
NCCL_LOGS = (
    'medians of 30 logs of NCCL\'s: the lines "Init timings", such as https://github.com/NVIDIA/nccl/issues/1412'
)
NCCL_MEMORY = "https://github.com/NVIDIA/nccl/issues/964"

CLOSE = 0.05
"""The relative error that is held for contexts."""

SPREAD = 0.5
"""The same for NCCL's times, which differ most between machines."""


def context(card: str) -> float:
    """MiB of a context without anything in it."""
    return gpu(card).context_bytes / MIB


@cache
def connected(card: str, ranks: int) -> tuple[float, float]:
    """Seconds and MiB of the first all-reduce of a process, on rank 0."""

    def program() -> tuple[float, float]:
        dist.init_process_group("nccl")
        torch.cuda.set_device(dist.get_rank())
        x = torch.ones(1, device="cuda")
        began, (free, _) = lab.clock(), torch.cuda.mem_get_info()
        dist.all_reduce(x)
        torch.cuda.synchronize()
        took, held = lab.clock() - began, free - torch.cuda.mem_get_info()[0]
        dist.destroy_process_group()
        return took, held / MIB

    with enabled(card):
        found: tuple[float, float] = lab.run_ranks(program, ranks)[0]
        return found


def seconds(card: str, ranks: int) -> float:
    return connected(card, ranks)[0]


def mebibytes(card: str, ranks: int) -> float:
    return connected(card, ranks)[1]


FACTS = [
    Fact("a CUDA context", card, real, source, context, "MiB", CLOSE)
    for card, real, source in (
        ("v100-16gb", 307, "https://github.com/NVIDIA/nccl/issues/604 (inferred: a card of 16,160 MiB in 2021)"),
        ("rtx3090", 256, "https://github.com/invoke-ai/InvokeAI/pull/9413"),
        ("rtx4060ti", 107, "https://github.com/ggml-org/llama.cpp/pull/23604"),
        ("rtx-6000-ada", 426, "https://github.com/unslothai/unsloth-zoo/issues/1053"),
        ("h100", 534, "https://github.com/meta-pytorch/torchcomms/pull/777"),
        ("rtx5090", 506, "https://github.com/ggml-org/llama.cpp/issues/20582"),
        ("rtx-pro-6000-blackwell", 555, "https://github.com/ggml-org/llama.cpp/pull/23604"),
    )
]
FACTS += [
    Fact(
        f"the first all-reduce of {ranks} ranks",
        A100S,
        real,
        NCCL_LOGS,
        partial(seconds, ranks=ranks),
        "s",
        SPREAD,
    )
    for ranks, real in ((2, 0.37), (4, 1.24), (8, 1.48))
]
FACTS += [Fact("NCCL's memory for 4 ranks", A100S, 688, NCCL_MEMORY, partial(mebibytes, ranks=4), "MiB", 0.25)]
