"""Programs whose kernels are small, so that the host decides how long they take: batch 1, decoding, a step of RL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F

from tests.fidelity.programs.steps import card, images, milliseconds, network

if TYPE_CHECKING:
    from collections.abc import Callable

    Tensor = torch.Tensor


def waiting(step: Callable[[], object]) -> float:
    """Milliseconds of a step after which the host waits, as who measures a latency does."""

    def whole() -> None:
        step()
        torch.cuda.synchronize()

    return milliseconds(whole, 2)


def read(_: Tensor) -> None:
    """``item()`` or ``cpu()``: without numbers, the host only waits."""
    torch.cuda.synchronize()


def judge(scores: Tensor, labels: Tensor) -> None:
    """What DeepLearningExamples' `validate` does with a batch's scores: loss, accuracies, three times ``item()``."""
    loss = F.cross_entropy(scores, labels)
    right = scores.topk(5, 1)[1].t().eq(labels.view(1, -1).expand(5, -1))
    first, fifth = (right[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / len(labels)) for k in (1, 5))
    for figure in (loss, first, fifth):
        read(figure)


def image_latency(machine: str, name: str, how: str, batch: str) -> float:
    """Milliseconds in which images are classified."""
    words = set(how.split("-"))
    with card(machine, tf32="tf32" in words), torch.no_grad():
        model, layout = network(name, words)
        model.eval()
        dtype = torch.half if "half" in words else torch.float32
        inputs = images(int(batch), layout, dtype, 384 if name.endswith("384") else 224)
        labels = torch.zeros(int(batch), dtype=torch.long, device="cuda")

        def step() -> None:
            with torch.autocast("cuda", torch.float16, enabled="amp" in words):
                scores = model(inputs)
            if "nvidia" in words:
                judge(scores, labels)

        return milliseconds(step, 2) if "stream" in words else waiting(step)


class BertLayer(nn.Module):
    """A layer of transformers' `BertModel`."""

    def __init__(self, width: int, heads: int, *, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.query, self.key, self.value, self.project = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.act, self.drop1, self.drop2, self.drop3 = nn.GELU(), nn.Dropout(0.1), nn.Dropout(0.1), nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (
            layer(x).view(batch, length, self.heads, -1).permute(0, 2, 1, 3)
            for layer in (self.query, self.key, self.value)
        )
        if self.fused:
            seen = F.scaled_dot_product_attention(query, key, value)
            seen = seen.transpose(1, 2).reshape(batch, length, width)
        else:
            scores = torch.matmul(query, key.transpose(-1, -2)) / (width // self.heads) ** 0.5 + mask
            seen = torch.matmul(self.drop1(F.softmax(scores, dim=-1)), value)
            seen = seen.permute(0, 2, 1, 3).contiguous().view(batch, length, width)
        x = self.norm1(self.drop2(self.project(seen)) + x)
        return self.norm2(self.drop3(self.shrink(self.act(self.grow(x)))) + x)


class Bert(nn.Module):
    """BERT-base as transformers runs it without a mask from the user."""

    def __init__(self, *, fused: bool, width: int = 768, depth: int = 12) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(30522, width), nn.Embedding(512, width)
        self.segments, self.norm, self.drop = nn.Embedding(2, width), nn.LayerNorm(width), nn.Dropout(0.1)
        self.layers = nn.ModuleList(BertLayer(width, width // 64, fused=fused) for _ in range(depth))
        self.pooler = nn.Linear(width, width)

    def forward(self, words: Tensor, positions: Tensor, segments: Tensor) -> Tensor:
        mask = torch.ones(words.shape, device=words.device)[:, None, None, :].to(self.pooler.weight.dtype)
        mask = (1.0 - mask) * torch.finfo(mask.dtype).min
        x = self.words(words) + self.segments(segments)
        x += self.positions(positions)
        x = self.drop(self.norm(x))
        for layer in self.layers:
            x = layer(x, mask)
        return torch.tanh(self.pooler(x[:, 0]))


def bert_latency(machine: str, how: str, batch: str, length: str, width: str = "768") -> float:
    """Milliseconds of a forward pass of BERT-base, or of one that is `width` wide."""
    words = set(how.split("-"))
    with card(machine), torch.no_grad():
        with torch.device("cuda"):
            model = Bert(fused="sdpa" in words, width=int(width)).eval()
            inputs = torch.zeros(int(batch), int(length), dtype=torch.long)
            positions = torch.arange(int(length))[None]
        if "half" in words:
            model.half()
        return waiting(lambda: model(inputs, positions, inputs))


class TransformerXLLayer(nn.Module):
    """A decoder layer of DeepLearningExamples' Transformer-XL, with relative positions."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.qkv, self.far = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.project, self.norm1, self.norm2 = (
            nn.Linear(width, width, bias=False),
            nn.LayerNorm(width),
            nn.LayerNorm(width),
        )
        self.drop, self.seen = nn.Dropout(0.1), nn.Dropout(0.0)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.ReLU(inplace=True), nn.Dropout(0.1),
            nn.Linear(4 * width, width), nn.Dropout(0.1),
        )  # fmt: skip

    def forward(self, x: Tensor, far: Tensor, word: Tensor, place: Tensor, mask: Tensor, memory: Tensor) -> Tensor:
        (length, batch, width), heads = x.shape, self.heads
        query, key, value = torch.chunk(self.qkv(torch.cat([memory, x], 0)), 3, dim=-1)
        far = self.far(far).view(-1, heads, width // heads)
        query = query[-length:].view(length, batch, heads, -1)
        key, value = key.view(-1, batch, heads, width // heads), value.view(-1, batch, heads, width // heads)
        near = torch.einsum("ibnd,jbnd->bnij", query + word, key)
        apart = torch.einsum("ibnd,jnd->bnij", query + place, far)
        padded = torch.cat([torch.zeros((*apart.shape[:3], 1), device=x.device, dtype=x.dtype), apart], dim=3)
        padded = padded.view(batch, heads, apart.shape[3] + 1, length)
        apart = padded.narrow(2, 1, apart.shape[3]).view_as(apart)
        scores = self.scale * (near + apart)
        scores.masked_fill_(mask[None, None, :, :], -float("inf"))
        seen = torch.einsum("bnij,jbnd->ibnd", self.seen(F.softmax(scores, dim=3)), value)
        x = self.norm1(x + self.drop(self.project(seen.contiguous().view(length, batch, width))))
        return self.norm2(x + self.feed(x))


class TransformerXL(nn.Module):
    """The base model: 16 layers, an adaptive softmax of 267,735 words in four clusters."""

    def __init__(self, width: int = 512, heads: int = 8) -> None:
        super().__init__()
        self.words = nn.Embedding(267735, width)
        self.layers = nn.ModuleList(TransformerXLLayer(width, heads) for _ in range(16))
        self.word, self.place = (nn.Parameter(torch.zeros(heads, width // heads)) for _ in range(2))
        self.drop, self.clusters = nn.Dropout(0.1), nn.Parameter(torch.zeros(3, width))
        self.frequencies = nn.Parameter(torch.zeros(width // 2))
        self.bias = nn.Parameter(torch.zeros(20000))

    def forward(self, words: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        length, before = len(words), memory.shape[1]
        x = self.words(words).mul_(22.6)
        ones = x.new_ones(length, before + length)
        mask = (torch.triu(ones, 1 + before) + torch.tril(ones, -(length - 1))).bool()
        places = torch.arange(before + length - 1, -1, -1.0, device=x.device, dtype=x.dtype).clamp_(max=400)
        angles = torch.outer(places, self.frequencies)
        far = self.drop(torch.cat([angles.sin(), angles.cos()], dim=-1)[:, None, :])
        x, hidden = self.drop(x), []
        for number, layer in enumerate(self.layers):
            hidden.append(x.detach())
            x = layer(x, far, self.word, self.place, mask, memory[number])
        x = self.drop(x)
        memory = torch.cat([memory, torch.stack(hidden)], dim=1)[:, length:].detach()
        return self.loss(x.view(-1, x.shape[-1])), memory

    def loss(self, x: Tensor) -> Tensor:
        """The first cluster only: what there is to do for the others depends on the text."""
        weight = torch.cat([self.words.weight[:19997], self.clusters], 0)
        return F.log_softmax(F.linear(x, weight, self.bias), dim=1).gather(1, x.new_zeros(len(x), 1, dtype=torch.long))


def transformer_xl(machine: str, how: str, batch: str) -> float:
    """Milliseconds for 64 words after 640 others, as `eval.py` takes them."""
    with card(machine, tf32=how == "tf32"), torch.no_grad():
        with torch.device("cuda"):
            model = TransformerXL().eval()
            words = torch.zeros(64, int(batch), dtype=torch.long)
            memory = torch.zeros(16, 640, int(batch), 512)
        if how == "fp16":
            model.half()
            memory = memory.half()

        def step() -> None:
            loss, _ = model(words, memory)
            loss.float().mean()

        return waiting(step)


def with_cache(cache: Tensor, new: Tensor) -> Tensor:
    return torch.cat((cache, new), dim=-2)


class NeoXLayer(nn.Module):
    """A layer of transformers' GPT-NeoX (4.41), for one more word."""

    def __init__(self, width: int, heads: int, *, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused, self.turned = heads, fused, width // heads // 4
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.grow, self.shrink, self.act = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.GELU()
        self.drop = nn.Dropout(0.0)

    def turn(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        turned, rest = x[..., : self.turned], x[..., self.turned :]
        half = turned.shape[-1] // 2
        other = torch.cat((-turned[..., half:], turned[..., :half]), dim=-1)
        return torch.cat(((turned * cosine) + (other * sine), rest), dim=-1)

    def forward(
        self, x: Tensor, cache: tuple[Tensor, Tensor], table: tuple[Tensor, Tensor, Tensor], mask: Tensor
    ) -> Tensor:
        batch, length, width = x.shape
        size = width // self.heads
        qkv = self.qkv(self.norm1(x)).view(batch, length, self.heads, 3 * size)
        query, key, value = (qkv[..., n * size : (n + 1) * size].permute(0, 2, 1, 3) for n in range(3))
        cosine, sine = (one[table[2]].unsqueeze(1) for one in table[:2])
        query, key = self.turn(query, cosine, sine), self.turn(key, cosine, sine)
        key, value = with_cache(cache[0], key), with_cache(cache[1], value)
        if self.fused:
            seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        else:
            query = query.view(batch * self.heads, length, size)
            scores = torch.zeros(batch * self.heads, length, key.shape[-2], dtype=x.dtype, device=x.device)
            keys = key.reshape(batch * self.heads, -1, size)
            scores = torch.baddbmm(scores, query, keys.transpose(1, 2), beta=1.0, alpha=size**-0.5)
            scores = scores.view(batch, self.heads, length, -1)
            least = torch.tensor(torch.finfo(x.dtype).min, dtype=x.dtype).to(x.device)
            scores = torch.where(mask > -1, scores, least) + mask
            seen = torch.matmul(self.drop(F.softmax(scores, dim=-1)), value)
        seen = seen.permute(0, 2, 1, 3).contiguous().view(batch, length, width)
        seen = self.drop(self.project(seen))
        return self.drop(self.shrink(self.act(self.grow(self.norm2(x))))) + seen + x


class Conv1D(nn.Module):
    """transformers' linear layer, with its weight the other way round."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(inputs, outputs)), nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class GPT2Layer(nn.Module):
    """A layer of transformers' GPT-2 (4.41), for one more word."""

    def __init__(self, width: int, heads: int, *, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = Conv1D(width, 3 * width), Conv1D(width, width)
        self.grow, self.shrink = Conv1D(width, 4 * width), Conv1D(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor, cache: tuple[Tensor, Tensor], _: object, mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, -1).permute(0, 2, 1, 3)
            for part in self.qkv(self.norm1(x)).split(width, dim=2)
        )
        key, value = with_cache(cache[0], key), with_cache(cache[1], value)
        if self.fused:
            seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        else:
            scores = torch.matmul(query, key.transpose(-1, -2))
            scores = scores / torch.full([], (width // self.heads) ** 0.5, dtype=x.dtype, device=x.device)
            least = torch.full([], torch.finfo(x.dtype).min, dtype=x.dtype, device=x.device)
            scores = torch.where(mask > -1, scores, least) + mask
            seen = torch.matmul(self.drop(F.softmax(scores, dim=-1)), value)
        seen = seen.permute(0, 2, 1, 3).contiguous().view(batch, length, width)
        x = self.drop(self.project(seen)) + x
        y = self.grow(self.norm2(x))
        y = 0.5 * y * (1.0 + torch.tanh(0.7978845608 * (y + 0.044715 * torch.pow(y, 3.0))))
        return x + self.drop(self.shrink(y))


DECODERS = {
    "pythia-410m": (NeoXLayer, 24, 1024, 16, 50304),
    "gpt2": (GPT2Layer, 12, 768, 12, 50257),
    "gpt2-large": (GPT2Layer, 36, 1280, 20, 50257),
}


class Decoder(nn.Module):
    """The next word, from the last one and the keys and values of those before."""

    def __init__(self, name: str, *, fused: bool) -> None:
        super().__init__()
        layer, depth, width, heads, vocabulary = DECODERS[name]
        self.words, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(2048, width)
        self.layers = nn.ModuleList(layer(width, heads, fused=fused) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.table = width // heads // 4

    def forward(self, word: Tensor, caches: list[tuple[Tensor, Tensor]], seen: Tensor) -> Tensor:
        place = seen.long().cumsum(-1)[:, -1:] - 1
        x = self.words(word)
        x = x + self.positions(place)
        mask = ((1.0 - seen[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min).to(x.dtype)
        table = (x.new_zeros(2048, self.table), x.new_zeros(2048, self.table), place)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, cache, table, mask)
        return self.head(self.norm(x))


def decode(machine: str, name: str, how: str, before: str, batch: str) -> float:
    """Milliseconds for one more word, greedily, after `before` words."""
    _, depth, width, heads, _ = DECODERS[name]
    b, length = int(batch), int(before)
    dtype = torch.float32 if "fp32" in how else torch.half
    with card(machine), torch.inference_mode():
        with torch.device("cuda"):
            model = Decoder(name, fused="sdpa" in how).eval().to(dtype)
            word, seen = torch.zeros(b, 1, dtype=torch.long), torch.ones(b, length + 1)
            one = torch.empty(b, heads, length, width // heads, dtype=dtype)

        def step() -> None:
            chosen = model(word, [(one, one)] * depth, seen)[:, -1, :].argmax(-1)
            torch.cat([word, chosen[:, None]], dim=-1)
            torch.cat([seen, seen.new_ones(b, 1)], dim=-1)
            read((chosen == 0).all())  # whether all have ended

        return milliseconds(step, 2)


class Conv(nn.Module):
    """YOLOv5's convolution with its fused batch norm, and SiLU."""

    def __init__(self, inputs: int, outputs: int, size: int = 1, stride: int = 1, padding: int | None = None) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, stride, size // 2 if padding is None else padding)
        self.act = nn.SiLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.conv(x))


class Bottleneck(nn.Module):
    def __init__(self, width: int, *, shortcut: bool) -> None:
        super().__init__()
        self.first, self.second, self.shortcut = Conv(width, width), Conv(width, width, 3), shortcut

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(self.first(x)) if self.shortcut else self.second(self.first(x))


class C3(nn.Module):
    def __init__(self, inputs: int, outputs: int, count: int, *, shortcut: bool = True) -> None:
        super().__init__()
        half = outputs // 2
        self.first, self.second, self.third = Conv(inputs, half), Conv(inputs, half), Conv(2 * half, outputs)
        self.inner = nn.Sequential(*(Bottleneck(half, shortcut=shortcut) for _ in range(count)))

    def forward(self, x: Tensor) -> Tensor:
        return self.third(torch.cat((self.inner(self.first(x)), self.second(x)), 1))


class SPPF(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second, self.pool = Conv(width, width // 2), Conv(2 * width, width), nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        y = self.pool(x)
        z = self.pool(y)
        return self.second(torch.cat((x, y, z, self.pool(z)), 1))


class Yolo(nn.Module):
    """YOLOv5 6.0 with 80 classes, for images of `height`×640."""

    def __init__(self, depth: float, width: float, height: int = 640) -> None:
        super().__init__()
        w = [int(width * size) for size in (64, 128, 256, 512, 1024)]
        n = [max(round(depth * count), 1) for count in (3, 6, 9)]
        self.backbone = nn.ModuleList(
            [nn.Sequential(Conv(3, w[0], 6, 2, 2), Conv(w[0], w[1], 3, 2), C3(w[1], w[1], n[0]),
                           Conv(w[1], w[2], 3, 2), C3(w[2], w[2], n[1])),
             nn.Sequential(Conv(w[2], w[3], 3, 2), C3(w[3], w[3], n[2])),
             nn.Sequential(Conv(w[3], w[4], 3, 2), C3(w[4], w[4], n[0]), SPPF(w[4]))]
        )  # fmt: skip
        self.narrow = nn.ModuleList([Conv(w[4], w[3]), Conv(w[3], w[2])])
        self.up = nn.Upsample(None, 2, "nearest")
        self.merge = nn.ModuleList(
            [C3(w[4], w[3], n[0], shortcut=False), C3(w[3], w[2], n[0], shortcut=False),
             C3(w[3], w[3], n[0], shortcut=False), C3(w[4], w[4], n[0], shortcut=False)]
        )  # fmt: skip
        self.down = nn.ModuleList([Conv(w[2], w[2], 3, 2), Conv(w[3], w[3], 3, 2)])
        self.heads = nn.ModuleList(nn.Conv2d(size, 255, 1) for size in w[2:])
        self.grids = nn.ParameterList(torch.zeros(2, 1, 3, height // s, 640 // s, 2) for s in (8, 16, 32))

    def forward(self, x: Tensor) -> Tensor:
        near = self.backbone[0](x)
        middle = self.backbone[1](near)
        far = self.narrow[0](self.backbone[2](middle))
        middle = self.narrow[1](self.merge[0](torch.cat((self.up(far), middle), 1)))
        near = self.merge[1](torch.cat((self.up(middle), near), 1))
        middle = self.merge[2](torch.cat((self.down[0](near), middle), 1))
        far = self.merge[3](torch.cat((self.down[1](middle), far), 1))
        found = []
        for head, one, grid in zip(self.heads, (near, middle, far), self.grids, strict=True):
            y = head(one)
            batch, _, height, width = y.shape
            y = y.view(batch, 3, 85, height, width).permute(0, 1, 3, 4, 2).contiguous().sigmoid()
            y[..., 0:2] = (y[..., 0:2] * 2.0 - 0.5 + grid[0]) * 8
            y[..., 2:4] = (y[..., 2:4] * 2) ** 2 * grid[1]
            found.append(y.view(batch, -1, 85))
        return torch.cat(found, 1)


YOLOS = {"n": (0.33, 0.25), "s": (0.33, 0.5), "m": (0.67, 0.75), "l": (1.0, 1.0), "x": (1.33, 1.25)}


def yolo_latency(machine: str, size: str, batch: str, how: str = "half", height: str = "640") -> float:
    """Milliseconds in which objects are found, without what comes before and after the network."""
    dtype = torch.half if how == "half" else torch.float32
    with card(machine, tf32=how == "tf32"), torch.no_grad():
        with torch.device("cuda"):
            model = Yolo(*YOLOS[size], int(height)).eval().to(dtype)
            inputs = torch.empty(int(batch), 3, int(height), 640, dtype=dtype)
        return waiting(lambda: model(inputs))


STATES, ACTIONS = 17, 6  # HalfCheetah


class Value(nn.Module):
    """The worth of an action in a state."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(STATES + ACTIONS, 256), nn.Linear(256, 256), nn.Linear(256, 1)

    def forward(self, x: Tensor, action: Tensor) -> Tensor:
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(torch.cat([x, action], 1))))))


class Actor(nn.Module):
    """The action for a state: one (TD3), or a distribution of them (SAC)."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(STATES, 256), nn.Linear(256, 256)
        self.mean, self.log = nn.Linear(256, ACTIONS), nn.Linear(256, ACTIONS)
        self.register_buffer("scale", torch.ones(ACTIONS))
        self.register_buffer("bias", torch.zeros(ACTIONS))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.mean(F.relu(self.fc2(F.relu(self.fc1(x)))))) * self.scale + self.bias

    def drawn(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = F.relu(self.fc2(F.relu(self.fc1(x))))
        mean, log = self.mean(x), torch.tanh(self.log(x))
        normal = torch.distributions.Normal(mean, (-5 + 0.5 * 7 * (log + 1)).exp(), validate_args=False)
        drawn = normal.rsample()
        y = torch.tanh(drawn)
        chance = normal.log_prob(drawn) - torch.log(self.scale * (1 - y.pow(2)) + 1e-6)
        torch.tanh(mean) * self.scale + self.bias
        return y * self.scale + self.bias, chance.sum(1, keepdim=True)


def follow(model: nn.Module, target: nn.Module) -> None:
    """Move a target network a little, parameter by parameter."""
    for new, old in zip(model.parameters(), target.parameters(), strict=True):
        old.data.copy_(0.005 * new.data + (1 - 0.005) * old.data)


class Agent:
    """CleanRL's agents as LeanRL measured them: a step of HalfCheetah (which is not simulated), and one of training."""

    def __init__(self) -> None:
        with torch.device("cuda"):
            self.actor, self.target = Actor(), Actor()
            self.values, self.targets = [Value(), Value()], [Value(), Value()]
            self.log_alpha = torch.zeros(1, requires_grad=True)
        self.alpha = 1.0
        parameters = [p for value in self.values for p in value.parameters()]
        self.value_step, self.actor_step, self.alpha_step = (
            torch.optim.Adam(one, 1e-3) for one in (parameters, [*self.actor.parameters()], [self.log_alpha])
        )

    @staticmethod
    def sample() -> list[Tensor]:
        """A batch of 256 from a buffer on the host: states, actions, next states, ends, rewards."""
        return [torch.empty(256, size).to("cuda") for size in (STATES, ACTIONS, STATES, 1, 1)]

    def learn_values(self, states: Tensor, actions: Tensor, wanted: Tensor) -> None:
        first, second = (F.mse_loss(value(states, actions).view(-1), wanted) for value in self.values)
        loss = first + second
        self.value_step.zero_grad()
        loss.backward()
        self.value_step.step()

    def td3(self, *, actor: bool) -> None:
        with torch.no_grad():
            action = self.actor(torch.empty(1, STATES).to("cuda"))
            action += torch.normal(0, self.actor.scale * 0.1)
            read(action)
        states, actions, after, ends, rewards = self.sample()
        with torch.no_grad():
            noise = (torch.randn_like(actions) * 0.2).clamp(-0.5, 0.5) * self.target.scale
            chosen = (self.target(after) + noise).clamp(-1, 1)
            worth = torch.min(*(value(after, chosen) for value in self.targets))
            wanted = rewards.flatten() + (1 - ends.flatten()) * 0.99 * worth.view(-1)
        self.learn_values(states, actions, wanted)
        if actor:
            loss = -self.values[0](states, self.actor(states)).mean()
            self.actor_step.zero_grad()
            loss.backward()
            self.actor_step.step()
            for model, target in zip([self.actor, *self.values], [self.target, *self.targets], strict=True):
                follow(model, target)

    def sac(self, *, actor: bool) -> None:
        read(self.actor.drawn(torch.empty(1, STATES).to("cuda"))[0].detach())
        states, actions, after, ends, rewards = self.sample()
        with torch.no_grad():
            chosen, chance = self.actor.drawn(after)
            worth = torch.min(*(value(after, chosen) for value in self.targets)) - self.alpha * chance
            wanted = rewards.flatten() + (1 - ends.flatten()) * 0.99 * worth.view(-1)
        self.learn_values(states, actions, wanted)
        for _ in range(2 if actor else 0):
            chosen, chance = self.actor.drawn(states)
            worth = torch.min(*(value(states, chosen) for value in self.values))
            loss = ((self.alpha * chance) - worth).mean()
            self.actor_step.zero_grad()
            loss.backward()
            self.actor_step.step()
            with torch.no_grad():
                _, chance = self.actor.drawn(states)
            entropy = (-self.log_alpha.exp() * (chance - ACTIONS)).mean()
            self.alpha_step.zero_grad()
            entropy.backward()
            self.alpha_step.step()
            read(self.log_alpha.exp())
        for model, target in zip(self.values, self.targets, strict=True):
            follow(model, target)


def reinforcement(machine: str, algorithm: str) -> float:
    """Steps a second of an agent: every other one trains the actor as well."""
    with card(machine):
        agent = Agent()
        step = getattr(agent, algorithm)

        def two() -> None:
            step(actor=True)
            step(actor=False)

        return 2e3 / milliseconds(two, 2)
