"""Steps of several cards at once."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn

from fakegpu_lab.hardware.catalogue.spec import parse_spec
from fakegpu_lab.ranks.planning import figures, implied_ranks
from tests.fidelity.programs.steps import card, image_step, milliseconds, text_step


def ddp(machine: str, name: str, how: str, batch: str, gpus: str) -> float:
    """Images or sequences a second of all ranks under DistributedDataParallel; the others are implied."""
    words = set(how.split("-"))
    before = dict(os.environ)
    with card(machine, tf32="tf32" in words):
        implied_ranks.enter(figures.checked(int(gpus), 0, min(int(gpus), parse_spec(machine).gpus_per_node)))
        try:
            torch.cuda.set_device(0)
            dist.init_process_group("nccl")

            def wrap(model: nn.Module) -> nn.Module:
                return nn.parallel.DistributedDataParallel(model)

            if name == "bert-large":
                step = text_step(words, int(batch), wrap)
            else:
                step = image_step(name, words, int(batch), wrap)
            ms = milliseconds(step, 2)
            dist.destroy_process_group()
        finally:
            implied_ranks.leave()
            figures.current = None
            os.environ.clear()
            os.environ.update(before)
    return int(gpus) * int(batch) * 1e3 / ms
