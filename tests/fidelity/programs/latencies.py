"""Programs of the host-bound sources that were opened last: latencies that people reported in issues and READMEs."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import nn
from torch.nn import functional as F

from tests.fidelity.programs.small_batches import Bert, Conv1D, waiting
from tests.fidelity.programs.steps import card, images, network

Tensor = torch.Tensor


class MiniLM(nn.Module):
    """A classifier of sentences: six layers of BERT, 384 wide."""

    def __init__(self) -> None:
        super().__init__()
        self.bert = Bert(fused=False, width=384, depth=6)
        self.drop, self.head = nn.Dropout(0.1), nn.Linear(384, 2)
        self.places = torch.arange(128)[None]

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.drop(self.bert(words, self.places, words)))


class DistilLayer(nn.Module):
    """A layer of transformers' DistilBERT (4.16)."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.project = (nn.Linear(768, 768) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(768), nn.LayerNorm(768)
        self.grow, self.shrink, self.act = nn.Linear(768, 3072), nn.Linear(3072, 768), nn.GELU()
        self.drop1, self.drop2 = nn.Dropout(0.1), nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (
            layer(x).view(batch, -1, 12, 64).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        scores = torch.matmul(query / 8.0, key.transpose(2, 3))
        hidden = (mask == 0).view(batch, 1, 1, length).expand_as(scores)
        weights = self.drop1(F.softmax(scores.masked_fill(hidden, -float("inf")), dim=-1))
        seen = torch.matmul(weights, value).transpose(1, 2).contiguous().view(batch, -1, width)
        x = self.norm1(self.project(seen) + x)
        return self.norm2(self.drop2(self.shrink(self.act(self.grow(x)))) + x)


class DistilEmbedding(nn.Module):
    """sentence-transformers' msmarco-distilbert-cos-v5: the mean of DistilBERT's last states, normalized."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(30522, 768), nn.Embedding(512, 768)
        self.norm, self.drop = nn.LayerNorm(768), nn.Dropout(0.1)
        self.layers = nn.ModuleList(DistilLayer() for _ in range(6))
        self.mask = torch.ones(1, 128, dtype=torch.long)

    def forward(self, words: Tensor) -> Tensor:
        places = torch.arange(words.shape[1], device=words.device)[None].expand_as(words)
        x = self.drop(self.norm(self.words(words) + self.positions(places)))
        for layer in self.layers:
            x = layer(x, self.mask)
        counted = self.mask.unsqueeze(-1).expand(x.shape).float()
        return F.normalize((x * counted).sum(1) / torch.clamp(counted.sum(1), min=1e-9), p=2.0, dim=1)


class GPT2Layer(nn.Module):
    """A layer of transformers' GPT-2 (4.16), without words before."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(768), nn.LayerNorm(768)
        self.qkv, self.project = Conv1D(768, 2304), Conv1D(768, 768)
        self.grow, self.shrink = Conv1D(768, 3072), Conv1D(3072, 768)
        self.drop1, self.drop2, self.drop3 = nn.Dropout(0.1), nn.Dropout(0.1), nn.Dropout(0.1)
        self.register_buffer("seen", torch.ones(1, 1, 1024, 1024, dtype=torch.uint8))
        self.register_buffer("least", torch.tensor(-1e4))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, 12, 64).permute(0, 2, 1, 3) for part in self.qkv(self.norm1(x)).split(width, dim=2)
        )
        scores = torch.matmul(query, key.transpose(-1, -2)) / 8.0
        scores = torch.where(self.seen[:, :, :length, :length].bool(), scores, self.least.to(scores.dtype))
        weights = self.drop1(F.softmax(scores, dim=-1).type(value.dtype))
        seen = torch.matmul(weights, value).permute(0, 2, 1, 3).contiguous().view(batch, length, width)
        x = self.drop2(self.project(seen)) + x
        y = self.grow(self.norm2(x))
        y = 0.5 * y * (1.0 + torch.tanh(0.7978845608 * (y + 0.044715 * torch.pow(y, 3.0))))
        return x + self.drop3(self.shrink(y))


class GPT2(nn.Module):
    """GPT-2 with its head."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions, self.drop = nn.Embedding(50257, 768), nn.Embedding(1024, 768), nn.Dropout(0.1)
        self.layers, self.norm = nn.ModuleList(GPT2Layer() for _ in range(12)), nn.LayerNorm(768)
        self.head = nn.Linear(768, 50257, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        places = torch.arange(words.shape[-1], device=words.device)[None].view(-1, words.shape[-1])
        x = self.drop(self.words(words) + self.positions(places))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


TEXTS = {"minilm-l6": (MiniLM, 128), "distilbert": (DistilEmbedding, 128), "gpt2": (GPT2, 256)}


def text_latency(machine: str, name: str, how: str) -> float:
    """Milliseconds of a forward pass at batch 1, in float32 (where PyTorch 1.11 allowed TF32) or under autocast."""
    made, length = TEXTS[name]
    with card(machine, tf32=True), torch.inference_mode():
        with torch.device("cuda"):
            model = made().eval()
            words = torch.zeros(1, length, dtype=torch.long)
        with torch.autocast("cuda", torch.float16) if how == "autocast" else nullcontext():
            return waiting(lambda: model(words))


def recorded_latency(machine: str, name: str, how: str, batch: str, height: str, width: str) -> float:
    """Milliseconds of a forward pass on images that autograd records: in evaluation, or in training."""
    words = set(how.split("-"))
    with card(machine):
        model, layout = network(name, words)
        model.train("training" in words)
        pixels = images(int(batch), layout, size=max(int(height), int(width)))
        pixels = pixels[:, :, : int(height), : int(width)].contiguous()
        return waiting(lambda: model(pixels))
