"""Programs of the host-bound series that were collected last: short steps of training, and transformers' ViT."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from tests.fidelity.programs.small_batches import waiting
from tests.fidelity.programs.steps import card, images, milliseconds

Tensor = torch.Tensor


def optimizer_step(machine: str, how: str) -> float:
    """Microseconds of AdamW's step for ten matrices of 1024×1024: by a loop, foreach or fused."""
    with card(machine):
        with torch.device("cuda"):
            model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(10)))
        for parameter in model.parameters():
            parameter.grad = torch.empty_like(parameter)
        adam = torch.optim.AdamW(model.parameters(), 0.01, foreach=how == "foreach", fused=how == "fused" or None)
        return 1e3 * milliseconds(adam.step, 2)


class Heads(nn.Module):
    """Attention of transformers' models: three projections, and an output that the caller adds."""

    def __init__(self, width: int, heads: int, *, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], -1, self.heads, x.shape[-1] // self.heads).transpose(1, 2)


class ViTAttention(Heads):
    """`ViTSelfAttention` or `ViTSdpaSelfAttention` (4.41)."""

    def __init__(self, width: int, heads: int, *, fused: bool) -> None:
        super().__init__(width, heads, fused=fused)
        self.drop = nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        query = self.query(x)
        key, value, query = self.split(self.key(x)), self.split(self.value(x)), self.split(query)
        if self.fused:
            seen = F.scaled_dot_product_attention(query, key, value)
        else:
            scores = torch.matmul(query, key.transpose(-1, -2)) / (x.shape[-1] // self.heads) ** 0.5
            seen = torch.matmul(self.drop(F.softmax(scores, dim=-1)), value)
        return seen.permute(0, 2, 1, 3).contiguous().view(x.shape)


class Dense(nn.Module):
    """A linear layer in a module of its own, with dropout or an activation after it (`ViTSelfOutput`, …)."""

    def __init__(self, inputs: int, outputs: int, after: nn.Module) -> None:
        super().__init__()
        self.dense, self.after = nn.Linear(inputs, outputs), after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.dense(x))


class ViTLayer(nn.Module):
    """A layer of transformers' ViT."""

    def __init__(self, width: int, heads: int, *, fused: bool) -> None:
        super().__init__()
        self.attention = nn.Sequential(
            ViTAttention(width, heads, fused=fused), Dense(width, width, nn.Dropout(0.0))
        )  # `ViTAttention` holds both
        self.grow, self.shrink = Dense(width, 4 * width, nn.GELU()), Dense(4 * width, width, nn.Dropout(0.0))
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention(self.before(x)) + x
        return self.shrink(self.grow(self.after(x))) + x


class TransformersViT(nn.Module):
    """`ViTForImageClassification`: the base model with patches of 16×16."""

    def __init__(self, *, fused: bool) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 768, 16, 16)
        self.token, self.positions = nn.Parameter(torch.zeros(1, 1, 768)), nn.Parameter(torch.zeros(1, 197, 768))
        self.drop = nn.Dropout(0.0)
        self.layers = nn.ModuleList(ViTLayer(768, 12, fused=fused) for _ in range(12))
        self.norm, self.head = nn.LayerNorm(768), nn.Linear(768, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = self.drop(torch.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1) + self.positions)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0, :])


def vit_latency(machine: str, how: str, batch: str) -> float:
    """Milliseconds of a forward pass in float32."""
    with card(machine), torch.no_grad():
        with torch.device("cuda"):
            model = TransformersViT(fused=how == "sdpa").eval()
        pixels = images(int(batch), torch.contiguous_format)
        return waiting(lambda: model(pixels))


class DecoderAttention(Heads):
    """`OPTAttention` and `BioGptAttention`, with their causal mask."""

    def __init__(self, width: int, heads: int, *, fused: bool, wide: bool) -> None:
        super().__init__(width, heads, fused=fused)
        self.project, self.wide = nn.Linear(width, width), wide

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        if self.fused:
            query = self.split(self.query(x))
            key, value = self.split(self.key(x)), self.split(self.value(x))
            seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=0.1)
            return self.project(seen.transpose(1, 2).reshape(batch, length, width))
        query = self.query(x) * (width // self.heads) ** -0.5
        key, value = self.split(self.key(x)).contiguous(), self.split(self.value(x)).contiguous()
        flat = (batch * self.heads, -1, width // self.heads)
        query, key, value = self.split(query).contiguous().view(*flat), key.view(*flat), value.view(*flat)
        scores = torch.bmm(query, key.transpose(1, 2)).view(batch, self.heads, length, length) + mask
        if self.wide:
            scores = torch.max(scores, torch.tensor(torch.finfo(scores.dtype).min, device=scores.device))
        scores = scores.view(batch * self.heads, length, length)
        if self.wide:
            scores = F.softmax(scores, dim=-1, dtype=torch.float32).to(torch.float16)
        else:
            scores = F.softmax(scores, dim=-1)
        seen = torch.bmm(F.dropout(scores, 0.1, self.training), value)
        seen = seen.view(batch, self.heads, length, -1).transpose(1, 2).reshape(batch, length, width)
        return self.project(seen)


class DecoderLayer(nn.Module):
    """A layer of OPT-350m (norms after the sums, ReLU) or BioGPT (before them, GELU)."""

    def __init__(self, width: int, heads: int, *, fused: bool, opt: bool) -> None:
        super().__init__()
        self.opt = opt
        self.attention = DecoderAttention(width, heads, fused=fused, wide=opt)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.act: nn.Module = nn.ReLU() if opt else nn.GELU()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if self.opt:
            x = self.first(x + F.dropout(self.attention(x, mask), 0.1, self.training))
            flat = x.reshape(-1, x.shape[-1])
            y = F.dropout(self.shrink(self.act(self.grow(flat))), 0.1, self.training)
            return self.second((flat + y).view(x.shape))
        x = x + F.dropout(self.attention(self.first(x), mask), 0.1, self.training)
        y = F.dropout(self.act(self.grow(self.second(x))), 0.0, self.training)
        return x + F.dropout(self.shrink(y), 0.1, self.training)


class Causal(nn.Module):
    """OPT-350m (words of 512, projected to 1024 and back) or BioGPT, with their heads."""

    def __init__(self, *, opt: bool, fused: bool) -> None:
        super().__init__()
        self.opt, vocabulary, self.narrow = opt, 50272 if opt else 42384, 512 if opt else 1024
        self.words, self.places = nn.Embedding(vocabulary, self.narrow), nn.Embedding(2050, 1024)
        self.inward, self.outward = nn.Linear(512, 1024, bias=False), nn.Linear(1024, 512, bias=False)
        self.layers = nn.ModuleList(DecoderLayer(1024, 16, fused=fused, opt=opt) for _ in range(24))
        self.norm = nn.LayerNorm(1024)
        self.head = nn.Linear(self.narrow, vocabulary, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        batch, length = words.shape
        seen = torch.ones(batch, length, device=words.device)
        x = self.words(words)
        least = torch.finfo(x.dtype).min
        mask = torch.full((length, length), least, device=words.device).triu_(1).to(x.dtype)
        padded = 1.0 - seen[:, None, None, :].expand(batch, 1, length, length).to(x.dtype)
        mask = padded.masked_fill(padded.bool(), least).masked_fill(mask[None, None].bool(), least)
        places = self.places(((seen.cumsum(1) * seen).long() - 1) + 2)
        x = self.inward(x) + places if self.opt else F.dropout(x * 32.0 + places, 0.1, self.training)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(self.outward(x) if self.opt else self.norm(x)).contiguous()


def causal_training(machine: str, name: str, how: str, batch: str, length: str) -> float:
    """Milliseconds of a forward and backward pass in half precision, without an optimizer."""
    with card(machine):
        with torch.device("cuda"):
            model = Causal(opt=name == "opt-350m", fused=how == "sdpa").half()
            words = torch.zeros(int(batch), int(length), dtype=torch.long)

        def step() -> None:
            model.zero_grad()
            model(words).sum().backward()

        return milliseconds(step, 2)


def small_cnn(machine: str, batch: str) -> float:
    """Images a second: 16 filters of 3×3, a pool, ten classes; Adam, with the images on the card."""
    size = int(batch)
    with card(machine):
        with torch.device("cuda"):
            model = nn.Sequential(
                nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3136, 10)
            )
            pixels, labels = torch.empty(10_000, 1, 28, 28), torch.zeros(10_000, dtype=torch.long)
            order = torch.arange(10_000)
        adam, judge = torch.optim.Adam(model.parameters()), nn.CrossEntropyLoss()

        def step() -> None:
            chosen = order[:size]
            loss = judge(model(pixels[chosen]), labels[chosen])
            adam.zero_grad()
            loss.backward()
            adam.step()

        return size * 1e3 / milliseconds(step, 2)
