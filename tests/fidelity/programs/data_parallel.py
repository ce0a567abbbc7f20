"""Steps of several cards at once."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn

from fakegpu_lab.hardware.catalogue.spec import parse_spec
from fakegpu_lab.ranks.planning import figures, implied_ranks
from tests.fidelity.programs.steps import card, image_step, milliseconds, text_step

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def ranks(machine: str, gpus: int, *, tf32: bool = False, peers: bool = True) -> Iterator[None]:
    """The first of several ranks, each with its card; the others are implied."""
    before = dict(os.environ)
    if not peers:
        os.environ["NCCL_P2P_DISABLE"] = "1"
    with card(machine, tf32=tf32):
        implied_ranks.enter(figures.checked(gpus, 0, min(gpus, parse_spec(machine).gpus_per_node)))
        try:
            torch.cuda.set_device(0)
            dist.init_process_group("nccl")
            yield
            dist.destroy_process_group()
        finally:
            implied_ranks.leave()
            figures.current = None
            os.environ.clear()
            os.environ.update(before)


def timed_collective(machine: str, operation: str, gpus: str, nbytes: str) -> float:
    """Microseconds of a collective between two CUDA events, as all_reduce_bench.py takes them."""
    with ranks(machine, int(gpus)):
        values = torch.empty(int(nbytes) // 4, device="cuda")
        return milliseconds(lambda: getattr(dist, operation)(values), 2) * 1e3


def ddp(machine: str, name: str, how: str, batch: str, gpus: str) -> float:
    """Images or sequences a second of all ranks under DistributedDataParallel; the others are implied.

    From October 2022 to February 2023, Lambda's benchmark_pytorch.sh disabled NCCL's direct access ("nop2p").
    """
    words = set(how.split("-"))
    with ranks(machine, int(gpus), tf32="tf32" in words, peers="nop2p" not in words):

        def wrap(model: nn.Module) -> nn.Module:
            return nn.parallel.DistributedDataParallel(model)

        step = text_step(words, int(batch), wrap) if name == "bert-large" else image_step(name, words, int(batch), wrap)
        ms = milliseconds(step, 2)
    return int(gpus) * int(batch) * 1e3 / ms
