"""Makes the picture of a step's allocations that the guide shows: ``python docs/memory.py`` writes memory.html here.

The picture is docs/images/memory.png.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import fakegpu_lab as lab


class Block(nn.Module):
    """A transformer's two layers, with a residual sum."""

    def __init__(self, width: int = 1024) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add what the layers say to x."""
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def step(*, checkpointed: bool) -> lab.Trace:
    """One training step of eight blocks; not the first one, in which the optimizer takes its memory."""
    blocks = nn.ModuleList(Block() for _ in range(8)).cuda()
    optimizer = torch.optim.AdamW(blocks.parameters())

    def train() -> None:
        x = torch.ones(4096, 1024).to("cuda")
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
        x.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    train()
    with lab.record() as trace:
        train()
    return trace


def main() -> None:
    """Write the page."""
    lab.enable("a100", compute="meta")
    plain, frugal = step(checkpointed=False), step(checkpointed=True)
    plain.memory_figure(against=frugal, labels=("plain", "checkpointed")).write_html("memory.html")
    print(plain.at_peak())
    lab.disable()


if __name__ == "__main__":
    main()
