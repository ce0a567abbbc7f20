"""Makes the timelines that the guide shows: ``python docs/timeline.py`` writes copies.html and gpt-step.html here.

Their pictures are docs/images/copies.png and docs/images/gpt-step.png.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import fakegpu_lab as lab


def copies(*, pinned: bool) -> lab.Trace:
    """Six batches go to the GPU and through a layer: one after the other, or copied while the one before computes."""
    layer = nn.Linear(2048, 2048, device="cuda").requires_grad_(False)
    batches = [torch.ones(4096, 2048, pin_memory=pinned) for _ in range(6)]
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    torch.cuda.synchronize()
    with lab.record() as trace:
        for batch in batches:
            if pinned:
                with torch.cuda.stream(side):
                    x = batch.to("cuda", non_blocking=True)
                main.wait_stream(side)
                x.record_stream(main)
            else:
                x = batch.to("cuda")
            layer(x)
        torch.cuda.synchronize()
    return trace


class Block(nn.Module):
    """A transformer's block: attention, then two layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add what attention and the layers say to (batch, length, width)."""
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Predicts the next of 1,000 tokens."""

    def __init__(self, width: int = 256, heads: int = 4, depth: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.head = nn.Linear(width, 1000)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores for each next token: (batch, length, 1000)."""
        return self.head(self.blocks(self.embed(tokens)))


def gpt_step() -> lab.Trace:
    """One step of training, ended by ``loss.item()``; not the first one, in which the optimizer takes its memory."""
    model = GPT(width=512, heads=8).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, 1000, (16, 129), device="cuda")

    def step() -> float:
        optimizer.zero_grad()
        scores = model(tokens[:, :-1])
        loss = functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.item()

    step()
    with lab.record() as trace:
        step()
    return trace


def main() -> None:
    """Write the pages."""
    lab.enable("a100")
    copies(pinned=False)  # the first product takes cuBLAS's workspace
    slow, fast = copies(pinned=False), copies(pinned=True)
    pages = [trace.figure(end=slow.elapsed).to_html(full_html=False) for trace in (slow, fast)]
    captions = ("x = batch.to('cuda')", "pin_memory, a stream for copies, non_blocking=True")
    body = "".join(
        f"<h3 style='font: bold 16px sans-serif; margin: 14px 0 0 14px'>{caption}</h3>{page}"
        for caption, page in zip(captions, pages, strict=True)
    )
    Path("copies.html").write_text(f"<meta charset='utf-8'>{body}", encoding="utf-8")
    gpt_step().figure().write_html("gpt-step.html")
    lab.disable()


if __name__ == "__main__":
    main()
