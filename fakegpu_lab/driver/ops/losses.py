"""Losses that CUDA computes in another way."""

from __future__ import annotations

from typing import Any

import torch


def cudnn_ctc_loss(
    log_probs: torch.Tensor, targets: torch.Tensor, *lengths_and_blank: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """`_cudnn_ctc_loss` (cudnn/LossCTC.cpp): the losses, and at once the gradients of their sum."""
    if log_probs.is_meta:
        return log_probs.new_empty(log_probs.shape[1]), torch.empty_like(log_probs)
    *lengths, blank, _, zero_infinity = lengths_and_blank
    inputs, labels = (one.tolist() if isinstance(one, torch.Tensor) else one for one in lengths)
    aten, long = torch.ops.aten, targets.long()
    losses, alpha = aten._ctc_loss(log_probs, long, inputs, labels, blank, zero_infinity)
    ones = torch.ones_like(losses)
    return losses, aten._ctc_loss_backward(
        ones, log_probs, long, inputs, labels, losses, alpha, blank, zero_infinity
    )  # fmt: skip
