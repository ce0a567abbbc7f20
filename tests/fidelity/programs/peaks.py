"""Peaks of memory of published training runs."""

from __future__ import annotations

import os
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import fakegpu_lab as lab
from tests.fidelity.fact import enabled
from tests.fidelity.programs.steps import Squad, card, trainer_update

MIB = 2**20


def zero(machine: str, use: str, stage: str) -> float:
    """PyTorch's recipe on ZeroRedundancyOptimizer: the first rank's peak at a stage, in whole MB.

    Of 2021, when Adam looped over the parameters.
    """

    def program() -> list[float]:
        rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl")
        peaks = {}

        def note(name: str) -> None:
            peaks[name] = torch.cuda.max_memory_allocated(rank) // 1e6

        model = nn.Sequential(*[nn.Linear(2000, 2000).to(rank) for _ in range(20)])
        note("model")
        parallel = nn.parallel.DistributedDataParallel(model, device_ids=[rank])
        note("ddp")
        if use == "zero":
            from torch.distributed.optim import ZeroRedundancyOptimizer

            optimizer: torch.optim.Optimizer = ZeroRedundancyOptimizer(
                parallel.parameters(), optimizer_class=torch.optim.Adam, lr=0.01, foreach=False
            )
        else:
            optimizer = torch.optim.Adam(parallel.parameters(), lr=0.01, foreach=False)
        outputs = parallel(torch.randn(20, 2000).to(rank))
        F.mse_loss(outputs, torch.randn(20, 2000).to(rank)).backward()
        note("before")
        optimizer.step()
        note("after")
        dist.destroy_process_group()
        return peaks[stage]

    with enabled(machine):
        return lab.run_ranks(program, 2)[0]


def trainer_memory(machine: str, how: str, batch: str, accumulate: str) -> float:
    """BERT-large at 512 words as Hugging Face's Trainer trained it in 2022: MiB that the card then holds.

    As in the source, less what it held after a first tensor, when CUDA's context is there but no library yet.

    On the PyTorch of that time, whose softmax kept its input for the backward pass.
    """
    with card(machine), mock.patch.object(F, "softmax", _KeepingItsInput.of):
        torch.ones(1, 1).to("cuda")
        free = torch.cuda.mem_get_info()[0]
        with torch.device("cuda"):
            model = Squad()
        adam = torch.optim.AdamW(model.parameters(), 1e-5, foreach=False)
        scaler = torch.amp.GradScaler("cuda", enabled="amp" in how)
        if "checkpoint" in how:
            for layer in model.bert.layers:
                layer.forward = _checkpointed(layer.forward)  # type: ignore[method-assign]
        for _ in range(3):
            for _ in range(int(accumulate)):
                words = torch.zeros(int(batch), 512, dtype=torch.long).to("cuda")
                mask = torch.ones(int(batch), 512).to("cuda")
                with torch.autocast("cuda", torch.float16, enabled="amp" in how):
                    logits = model(words, mask)[:, 0]
                    loss = F.cross_entropy(logits, words[:, 0])
                scaler.scale(loss).backward()
            trainer_update(model, adam, scaler)
        return (free - torch.cuda.mem_get_info()[0]) / MIB


class _KeepingItsInput(torch.autograd.Function):
    """The softmax of PyTorch 1.10 and before, whose derivative referred to `self` (pytorch/pytorch#64000, #65242)."""

    @staticmethod
    def of(scores: torch.Tensor, dim: int) -> torch.Tensor:
        assert dim == -1
        if torch.is_autocast_enabled("cuda"):
            scores = scores.float()  # what autocast does before autograd sees the softmax
        result: torch.Tensor = _KeepingItsInput.apply(scores)  # type: ignore[no-untyped-call]
        return result

    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor) -> torch.Tensor:
        result = torch.softmax(scores, -1)
        ctx.save_for_backward(scores, result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        scores, result = ctx.saved_tensors
        return torch._softmax_backward_data(gradient, result, -1, scores.dtype)


def _checkpointed(forward):  # type: ignore[no-untyped-def]
    return lambda x, mask: checkpoint(forward, x, mask, use_reentrant=True)
