"""Decoders with rotary positions and RMS norms, a word at a time, as four libraries write them; and CLIP's ViT.

The norms are written out, as PyTorch ran them before it had a kernel for them (2.8).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from tests.fidelity.programs.small_batches import read, with_cache
from tests.fidelity.programs.steps import card, images, milliseconds

Tensor = torch.Tensor


class Size(NamedTuple):
    """A decoder's depth, width, heads, heads of keys, size of a head, feed-forward width and vocabulary."""

    depth: int
    width: int
    heads: int
    keys: int
    head: int
    inner: int
    vocabulary: int


SIZES = {
    "qwen2-0.5b": Size(24, 896, 14, 2, 64, 4864, 151936),
    "qwen2-1.5b": Size(28, 1536, 12, 2, 128, 8960, 151936),
    "qwen3-0.6b": Size(28, 1024, 16, 8, 128, 3072, 151936),
    "llama3.2-1b": Size(16, 2048, 32, 8, 64, 8192, 128256),
    "llama3.1-8b": Size(32, 4096, 32, 8, 128, 14336, 128256),
    "open-llama-7b": Size(32, 4096, 32, 32, 128, 11008, 32000),
}


class Norm(nn.Module):
    """A root-mean-square norm that computes in float32: eight kernels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (wide * self.weight).to(x.dtype)


def halves(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """The rotation by halves."""
    half = x.shape[-1] // 2
    return (x * cosine) + (torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sine)


def pairs(x: Tensor, table: Tensor) -> Tensor:
    """The rotation of neighbors (gpt-fast, torchchat), in float32."""
    wide = x.float().reshape(*x.shape[:-1], -1, 2)
    table = table.view(-1, wide.size(1), 1, wide.size(3), 2)
    first = wide[..., 0] * table[..., 0] - wide[..., 1] * table[..., 1]
    second = wide[..., 1] * table[..., 0] + wide[..., 0] * table[..., 1]
    return torch.stack([first, second], -1).flatten(3).type_as(x)


class Layer(nn.Module):
    """A layer: attention as one of the libraries writes it, then SwiGLU."""

    def __init__(self, size: Size, how: str) -> None:
        super().__init__()
        self.size, self.how = size, how
        outputs, keys = size.heads * size.head, size.keys * size.head
        self.before, self.after = Norm(size.width), Norm(size.width)
        bias = how == "transformers"
        if how == "litgpt":
            self.qkv = nn.Linear(size.width, outputs + 2 * keys, bias=False)
        else:
            self.query, self.key, self.value = (nn.Linear(size.width, n, bias=bias) for n in (outputs, keys, keys))
        self.project = nn.Linear(outputs, size.width, bias=False)
        self.gate, self.up = (nn.Linear(size.width, size.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(size.inner, size.width, bias=False)
        self.norms = nn.ModuleList([Norm(size.head), Norm(size.head)])

    def forward(self, x: Tensor, state: dict[str, Tensor]) -> Tensor:
        x = getattr(self, f"_{self.how}")(self.before(x), state) + x
        y = self.after(x)
        return self.down(F.silu(self.gate(y)) * self.up(y)) + x

    def _heads(self, x: Tensor) -> list[Tensor]:
        return [
            layer(x).view(*x.shape[:2], -1, self.size.head).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        ]

    def _transformers(self, x: Tensor, state: dict[str, Tensor]) -> Tensor:
        """`Qwen2FlashAttention2` (4.38): the table is indexed in each layer, the cache is concatenated."""
        query, key, value = self._heads(x)
        cosine, sine = (state[name][state["place"]].unsqueeze(1) for name in ("cosine", "sine"))
        query, key = halves(query, cosine, sine), halves(key, cosine, sine)
        key, value = with_cache(state["keys"], key), with_cache(state["values"], value)
        times = self.size.heads // self.size.keys
        key, value = (
            one[:, :, None].expand(-1, -1, times, -1, -1).reshape(1, self.size.heads, -1, self.size.head)
            for one in (key, value)
        )
        seen = F.scaled_dot_product_attention(query, key, value)
        return self.project(seen.transpose(1, 2).reshape(*x.shape[:2], -1))

    def _scratch(self, x: Tensor, state: dict[str, Tensor]) -> Tensor:
        """LLMs-from-scratch: every word again, the rotation in float32, attention by hand or PyTorch's."""
        query, key, value = self._heads(x)
        if "norms" in state:
            query, key = self.norms[0](query), self.norms[1](key)
        query, key = (
            halves(one, *(state[name][: x.shape[1]][None, None] for name in ("cosine", "sine"))).to(x.dtype)
            for one in (query, key)
        )
        key, value = (one.repeat_interleave(self.size.heads // self.size.keys, dim=1) for one in (key, value))
        if "fused" in state:
            seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            scores = (query @ key.transpose(2, 3)).masked_fill(state["mask"], -torch.inf)
            seen = torch.softmax(scores / self.size.head**0.5, dim=-1) @ value
        return self.project(seen.transpose(1, 2).reshape(*x.shape[:2], -1))

    def _litgpt(self, x: Tensor, state: dict[str, Tensor]) -> Tensor:
        """litgpt of 2023: one product for the three, a cache that is written in place, and a mask."""
        qkv = self.qkv(x).view(1, x.shape[1], self.size.keys, -1, self.size.head).permute(0, 2, 3, 1, 4)
        parts = qkv.split((self.size.heads // self.size.keys, 1, 1), 2)
        query, key, value = (one.reshape(1, -1, x.shape[1], self.size.head) for one in parts)
        query, key = (
            torch.cat((halves(one, state["cosine row"], state["sine row"]), one[..., self.size.head :]), dim=-1)
            for one in (query, key)
        )
        key, value = (
            state[name].index_copy_(2, state["place"][0], one) for name, one in (("keys", key), ("values", value))
        )
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=state["mask row"])
        return self.project(seen.transpose(1, 2).reshape(*x.shape[:2], -1))

    def _torchchat(self, x: Tensor, state: dict[str, Tensor]) -> Tensor:
        """torchchat, which began as gpt-fast: pairs are rotated in float32, keys are repeated for their heads."""
        query, key, value = (
            layer(x).view(1, x.shape[1], -1, self.size.head) for layer in (self.query, self.key, self.value)
        )
        query, key = pairs(query, state["table row"]), pairs(key, state["table row"])
        query, key, value = (one.transpose(1, 2) for one in (query, key, value))
        for name, one in (("keys", key), ("values", value)):
            state[name][:, :, state["place"][0]] = one
        key, value = (
            state[name].repeat_interleave(self.size.heads // self.size.keys, dim=1) for name in ("keys", "values")
        )
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=state["mask row"])
        return self.project(seen.transpose(1, 2).contiguous().view(*x.shape[:2], -1))


class Decoder(nn.Module):
    def __init__(self, size: Size, how: str) -> None:
        super().__init__()
        self.how = how
        self.words = nn.Embedding(size.vocabulary, size.width)
        self.layers = nn.ModuleList(Layer(size, how) for _ in range(size.depth))
        self.norm, self.head = Norm(size.width), nn.Linear(size.width, size.vocabulary, bias=False)

    def forward(self, words: Tensor, state: dict[str, Tensor]) -> Tensor:
        x = self.words(words)
        if self.how == "scratch":
            ones = torch.ones(x.shape[1], x.shape[1], device=x.device, dtype=torch.bool)
            state["mask"] = torch.triu(ones, diagonal=1)
        else:
            place = state["place"][0]
            for name in ("cosine", "sine", "table", "mask"):
                if name in state:
                    state[f"{name} row"] = state[name].index_select(0, place)
        for layer in self.layers:
            x = layer(x, state)
        return self.head(self.norm(x))


def _chosen(logits: Tensor, how: str) -> Tensor:
    """The next word: the likeliest (LLMs-from-scratch), or drawn from the likeliest."""
    logits = logits[:, -1]
    if how == "scratch":
        return torch.argmax(logits, dim=-1, keepdim=True)
    logits = logits / 0.8
    likeliest, _ = torch.topk(logits, 200)
    logits = torch.where(logits < likeliest[:, [-1]], -float("inf"), logits)
    chances = F.softmax(logits, dim=-1)
    if how == "transformers":
        return torch.multinomial(chances, 1)
    return torch.argmax(chances / torch.empty_like(chances).exponential_(1), dim=-1, keepdim=True)


def words_a_second(machine: str, name: str, how: str, before: str, options: str = "") -> float:
    """Words a second in bfloat16 at batch 1, after `before` words."""
    size, length = SIZES[name], int(before)
    with card(machine), torch.inference_mode():
        with torch.device("cuda"):
            torch.set_default_dtype(torch.bfloat16)
            try:
                model = Decoder(size, how).eval()
            finally:
                torch.set_default_dtype(torch.float32)
            words = torch.zeros(1, length if how == "scratch" else 1, dtype=torch.long)
            kept = length if how == "transformers" else 2 * length
            state = {name: torch.zeros(1, size.keys, kept, size.head).bfloat16() for name in ("keys", "values")}
            state["place"] = torch.full((1, 1), length)
            exact = torch.float32 if how == "scratch" else torch.bfloat16
            state["cosine"], state["sine"] = (torch.zeros(2 * length, size.head, dtype=exact) for _ in range(2))
            if how == "torchchat":
                state["table"] = torch.zeros(2 * length, size.head // 2, 2).bfloat16()
            if how in ("litgpt", "torchchat"):
                state["mask"] = torch.ones(2 * length, 2 * length, dtype=torch.bool)
            state |= {option: words for option in options.split("-") if option}
            ended = torch.zeros(1, dtype=torch.bool)

        def step() -> None:
            if how == "transformers":  # whether there is padding; whether it is on the right
                read((words == 0).any())
                read(words[:, -1].sum())
            chosen = _chosen(model(words, state), how)
            torch.cat((words, chosen), dim=1)
            if how == "transformers":
                torch.cat([words, words.new_ones(1, 1)], dim=-1)
                read((ended | (chosen == 0)).all())  # whether all have ended
            elif how != "scratch":
                state["place"] + 1
                read(chosen)  # whether it is the last word

        return 1e3 / milliseconds(step, 2)


class ClipNorm(nn.LayerNorm):
    """Computes in float32."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.type(torch.float32)).type(x.dtype)


class ClipBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, width // 64)
        self.first, self.second = ClipNorm(width), ClipNorm(width)
        self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        x = x + self.attention(y, y, y, need_weights=False, attn_mask=None)[0]
        y = self.grow(self.second(x))
        return x + self.shrink(y * torch.sigmoid(1.702 * y))


class ClipViT(nn.Module):
    """The vision tower of OpenAI's CLIP: ViT-B/32, in halves with float32 norms."""

    def __init__(self, width: int = 768, patch: int = 32, depth: int = 12, outputs: int = 512) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch, bias=False)
        self.token, self.places = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(50, width))
        self.before, self.after = ClipNorm(width), ClipNorm(width)
        self.blocks = nn.Sequential(*(ClipBlock(width) for _ in range(depth)))
        self.project = nn.Parameter(torch.zeros(width, outputs))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x)
        x = x.reshape(*x.shape[:2], -1).permute(0, 2, 1)
        token = self.token.to(x.dtype) + torch.zeros(x.shape[0], 1, x.shape[-1], dtype=x.dtype, device=x.device)
        x = self.before(torch.cat([token, x], dim=1) + self.places.to(x.dtype))
        x = self.blocks(x.permute(1, 0, 2)).permute(1, 0, 2)
        return self.after(x[:, 0, :]) @ self.project


def clip_latency(machine: str, batch: str) -> float:
    """Milliseconds in which images are encoded, many in a row."""
    with card(machine), torch.no_grad():
        with torch.device("cuda"):
            model = ClipViT().eval().half()
            for module in model.modules():
                if isinstance(module, nn.LayerNorm):
                    module.float()
        pixels = images(int(batch), torch.contiguous_format, torch.half)
        return milliseconds(lambda: model(pixels), 2)
