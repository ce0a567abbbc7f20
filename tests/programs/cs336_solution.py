"""A solution of cs336's second assignment, as a student would hand it in as `tests/adapters.py`.

CS336_BACKEND=nccl makes the assignment's tests, which ask for Gloo, use NCCL.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from . import common  # the assignment's own file

if TYPE_CHECKING:
    from collections.abc import Callable

if "CS336_BACKEND" in os.environ:
    _with_gloo = common._setup_process_group
    common._setup_process_group = lambda rank, world_size, backend: _with_gloo(
        rank, world_size, os.environ["CS336_BACKEND"]
    )


class FlashAttention(torch.autograd.Function):
    """FlashAttention 2, tile by tile: the scores of all queries and keys are never there at once."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False) -> torch.Tensor:
        queries, keys, tile = q.shape[-2], k.shape[-2], 32
        scale = q.shape[-1] ** -0.5
        outputs, sums = [], []
        for start in range(0, queries, tile):
            tile_q = q[:, start : start + tile] * scale
            output = torch.zeros_like(tile_q)
            largest = torch.full(tile_q.shape[:-1], -torch.inf, device=q.device)
            total = torch.zeros_like(largest)
            for begin in range(0, keys, tile):
                scores = tile_q @ k[:, begin : begin + tile].transpose(-1, -2)
                if is_causal:
                    rows = torch.arange(start, start + tile_q.shape[-2], device=q.device)
                    columns = torch.arange(begin, begin + scores.shape[-1], device=q.device)
                    scores = torch.where(rows[:, None] >= columns, scores, -1e6)
                larger = torch.maximum(largest, scores.amax(-1))
                weights = torch.exp(scores - larger[..., None])
                shrink = torch.exp(largest - larger)
                total = shrink * total + weights.sum(-1)
                output = shrink[..., None] * output + weights @ v[:, begin : begin + tile]
                largest = larger
            outputs.append(output / total[..., None])
            sums.append(largest + total.log())
        result, log_sum = torch.cat(outputs, 1), torch.cat(sums, 1)
        ctx.save_for_backward(q, k, v, result, log_sum)
        ctx.is_causal = is_causal
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, k, v, result, log_sum = ctx.saved_tensors
        scale = q.shape[-1] ** -0.5
        scores = q @ k.transpose(-1, -2) * scale
        if ctx.is_causal:
            rows = torch.arange(q.shape[-2], device=q.device)
            columns = torch.arange(k.shape[-2], device=q.device)
            scores = torch.where(rows[:, None] >= columns, scores, -1e6)
        weights = torch.exp(scores - log_sum[..., None])
        of_weights = gradient @ v.transpose(-1, -2)
        of_scores = weights * (of_weights - (gradient * result).sum(-1, keepdim=True)) * scale
        return of_scores @ k, of_scores.transpose(-1, -2) @ q, weights.transpose(-1, -2) @ gradient, None


class DDP(nn.Module):
    """Sums each gradient over the ranks as soon as backward has made it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self._waiting: list[tuple[Any, nn.Parameter]] = []
        for parameter in module.parameters():
            dist.broadcast(parameter.data, 0)
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._send)

    def _send(self, parameter: nn.Parameter) -> None:
        self._waiting.append((dist.all_reduce(parameter.grad, async_op=True), parameter))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def finish(self) -> None:
        """Wait for the sums, and make them means."""
        for work, parameter in self._waiting:
            work.wait()
            assert parameter.grad is not None
            parameter.grad /= dist.get_world_size()
        self._waiting.clear()


class FSDP(nn.Module):
    """Of each weight of a Linear or Embedding, every rank keeps the rows of its own, but while they are used."""

    def __init__(self, module: nn.Module, compute_dtype: torch.dtype | None = None) -> None:
        super().__init__()
        from cs336_basics.model import Embedding, Linear

        self.module = module
        self.compute_dtype = compute_dtype
        self.sharded: dict[nn.Parameter, torch.Tensor] = {}  # and its rows on this rank
        self._waiting: list[tuple[Any, nn.Parameter]] = []
        rank, count = dist.get_rank(), dist.get_world_size()
        for parameter in module.parameters():
            dist.broadcast(parameter.data, 0)
        for part in module.modules():
            if isinstance(part, (Linear, Embedding)):
                weight = part.weight
                self.sharded[weight] = weight.data.chunk(count)[rank].clone()
                weight.data = self.sharded[weight]
                part.register_forward_pre_hook(lambda part, _: self._gather(part.weight))
                part.register_forward_hook(lambda part, *_: self._release(part.weight))
                if isinstance(part, Linear):  # whose input's gradient needs the weight; an embedding's has none
                    part.register_full_backward_pre_hook(lambda part, _: self._gather(part.weight))
                weight.register_post_accumulate_grad_hook(self._reduce_scatter)
        for parameter in module.parameters():
            if parameter not in self.sharded and parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._all_reduce)

    def _whole(self, rows: torch.Tensor) -> torch.Tensor:
        whole = rows.new_empty(len(rows) * dist.get_world_size(), *rows.shape[1:])
        dist.all_gather_into_tensor(whole, rows.contiguous())
        return whole

    def _gather(self, weight: nn.Parameter) -> None:
        rows = self.sharded[weight]
        weight.grad = None
        weight.data = self._whole(rows if self.compute_dtype is None else rows.to(self.compute_dtype))

    def _release(self, weight: nn.Parameter) -> None:
        weight.data = self.sharded[weight]

    def _reduce_scatter(self, weight: nn.Parameter) -> None:
        assert weight.grad is not None
        whole, weight.grad = weight.grad, None
        self._release(weight)
        mine = torch.empty_like(self.sharded[weight], dtype=whole.dtype)
        dist.reduce_scatter_tensor(mine, whole.contiguous())
        weight.grad = (mine / dist.get_world_size()).to(weight.dtype)

    def _all_reduce(self, parameter: nn.Parameter) -> None:
        self._waiting.append((dist.all_reduce(parameter.grad, async_op=True), parameter))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def finish(self) -> None:
        """Wait for the gradients of the parameters that every rank has."""
        DDP.finish(self)

    def whole(self) -> dict[str, torch.Tensor]:
        """All parameters, put together."""
        return {
            name: self._whole(self.sharded[parameter]) if parameter in self.sharded else parameter.data
            for name, parameter in self.module.named_parameters()
        }


class ShardedOptimizer(torch.optim.Optimizer):
    """Each rank updates its own parameters and sends them to the others."""

    def __init__(self, params: Any, optimizer_cls: type[torch.optim.Optimizer], **kwargs: Any) -> None:
        self.local: torch.optim.Optimizer | None = None
        self._make: Callable[[Any], torch.optim.Optimizer] = lambda mine: optimizer_cls(mine, **kwargs)
        super().__init__(params, kwargs)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        rank, count = dist.get_rank(), dist.get_world_size()
        mine = {**group, "params": group["params"][rank::count]}
        if self.local is None:
            self.local = self._make([mine])
        else:
            self.local.add_param_group(mine)

    def step(self, closure: Any = None) -> Any:
        assert self.local is not None
        loss = self.local.step(closure)
        for group in self.param_groups:
            for index, parameter in enumerate(group["params"]):
                dist.broadcast(parameter.data, index % dist.get_world_size())
        return loss


def get_flashattention_autograd_function_pytorch() -> type:
    return FlashAttention


def get_flashattention_autograd_function_triton() -> type:
    return FlashAttention  # without Triton, which needs a GPU


get_ddp = DDP
get_fsdp = FSDP
get_sharded_optimizer = ShardedOptimizer


def ddp_on_after_backward(ddp_model: DDP, optimizer: torch.optim.Optimizer) -> None:
    ddp_model.finish()


def fsdp_on_after_backward(fsdp_model: FSDP, optimizer: torch.optim.Optimizer) -> None:
    fsdp_model.finish()


def fsdp_gather_full_params(fsdp_model: FSDP) -> dict[str, torch.Tensor]:
    return fsdp_model.whole()
