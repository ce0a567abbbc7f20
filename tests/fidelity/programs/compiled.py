"""Programs that others timed with and without torch.compile. Each runs as it is, or with what it compiles compiled.

A measure gets the machine, how to compile (`as_it_is` or `compiled`), and the row's arguments. It returns the figure in
the row's unit, and the peaks of memory in GiB, by what `torch.cuda.max_memory_…` calls them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F

from tests.fidelity.programs.small_batches import waiting
from tests.fidelity.programs.steps import PlainGPT, card, images, milliseconds, network

if TYPE_CHECKING:
    from collections.abc import Callable

    Tensor = torch.Tensor
    Compile = Callable[..., Any]

Figures = tuple[float, dict[str, float]]


def as_it_is(program: Any, **options: Any) -> Any:
    """Compile nothing."""
    return program


def compiled(program: Any, **options: Any) -> Any:
    """Compile what a program compiles."""
    return torch.compile(program, **options)


def peaks() -> dict[str, float]:
    """The peaks since they were reset last, in GiB."""
    return {
        "allocated": torch.cuda.max_memory_allocated() / 2**30,
        "reserved": torch.cuda.max_memory_reserved() / 2**30,
        "active": torch.cuda.memory_stats()["active_bytes.all.peak"] / 2**30,
    }


def image(machine: str, compile: Compile, name: str, how: str, batch: str) -> Figures:  # noqa: A002
    """Milliseconds in which images are classified, after which the host waits; or images a second."""
    words, size = set(how.split("-")), int(batch)
    with card(machine), torch.no_grad():
        model, layout = network(name, words)
        model = compile(model.eval())
        inputs = images(size, layout)

        def step() -> None:
            with torch.autocast("cuda", torch.float16, enabled="amp" in words):
                model(inputs)

        if "stream" in words:
            return size * 1e3 / milliseconds(step, 2), {}
        return waiting(step), {}


class OwnAttention(nn.Module):
    """nanoGPT's, of December 2022: products, a mask, a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.project = nn.Linear(768, 2304), nn.Linear(768, 768)
        self.register_buffer("mask", torch.tril(torch.ones(1024, 1024)).view(1, 1, 1024, 1024))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (one.view(batch, length, 12, 64).transpose(1, 2) for one in self.qkv(x).split(width, dim=2))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(64))
        scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0, float("-inf"))
        seen = F.softmax(scores, dim=-1) @ v
        return self.project(seen.transpose(1, 2).contiguous().view(batch, length, width))


class NanoGPT(nn.Module):
    """nanoGPT's model, of December 2022. TorchScript fused its GELU's formula: here it is torch's own kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50257, 768), nn.Embedding(1024, 768)
        self.layers = nn.ModuleList(
            nn.ModuleDict({
                "before": nn.LayerNorm(768), "attention": OwnAttention(), "after": nn.LayerNorm(768),
                "feed": nn.Sequential(nn.Linear(768, 3072), nn.GELU("tanh"), nn.Linear(3072, 768)),
            }) for _ in range(12)
        )  # fmt: skip
        self.norm, self.head = nn.LayerNorm(768), nn.Linear(768, 50257, bias=False)

    def forward(self, words: Tensor, targets: Tensor) -> Tensor:
        x = self.words(words) + self.places(torch.arange(words.shape[1], device=words.device)[None])
        for layer in self.layers:
            x = x + layer["attention"](layer["before"](x))
            x = x + layer["feed"](layer["after"](x))
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1), ignore_index=-1)


def nanogpt(machine: str, compile: Compile, batch: str) -> Figures:  # noqa: A002
    """Milliseconds of a step of bench.py, whose AdamW had one loop over all parameters."""
    with card(machine, tf32=True):
        with torch.device("cuda"):
            model = NanoGPT()
            words = torch.zeros(int(batch), 1024, dtype=torch.long)
        adam = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=1e-2, foreach=False)
        model = compile(model)

        def step() -> None:
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(words, words)
            adam.zero_grad(set_to_none=True)
            loss.backward()
            adam.step()
            torch.cuda.synchronize()  # loss.item()

        return milliseconds(step, 2), {}


def gpt2(machine: str, compile: Compile, vocabulary: str, batch: str) -> Figures:  # noqa: A002
    """Words a second, all in bfloat16: sequences of 1024, the fused AdamW."""
    with card(machine):
        with torch.device("cuda"):
            model: Any = PlainGPT(int(vocabulary)).to(torch.bfloat16)
            words = torch.zeros(int(batch), 1024, dtype=torch.long)
        model = compile(model)
        adam = torch.optim.AdamW(model.parameters(), 5e-4, weight_decay=0.1, fused=True)

        def step() -> None:
            adam.zero_grad()
            F.cross_entropy(model(words).flatten(0, 1), words.flatten()).backward()
            adam.step()

        return words.numel() * 1e3 / milliseconds(step, 2), peaks()


class SamBlock(nn.Module):
    """A block of Segment Anything's ViT-H with windows of 14×14 and relative positions."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(1280, eps=1e-6), nn.LayerNorm(1280, eps=1e-6)
        self.qkv, self.project = nn.Linear(1280, 3840), nn.Linear(1280, 1280)
        self.feed = nn.Sequential(nn.Linear(1280, 5120), nn.GELU(), nn.Linear(5120, 1280))
        self.high, self.wide = (nn.Parameter(torch.zeros(27, 80)) for _ in range(2))
        self.register_buffer("distance", torch.arange(14)[:, None] - torch.arange(14)[None] + 13, persistent=False)

    def attend(self, x: Tensor) -> Tensor:
        windows, height, width, _ = x.shape
        qkv = self.qkv(x).reshape(windows, height * width, 3, 16, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.reshape(3, windows * 16, height * width, -1).unbind(0)
        scores = (q * 80**-0.5) @ k.transpose(-2, -1)
        grid = q.reshape(windows * 16, height, width, 80)
        high = torch.einsum("bhwc,hkc->bhwk", grid, self.high[self.distance])
        wide = torch.einsum("bhwc,wkc->bhwk", grid, self.wide[self.distance])
        scores = scores.view(windows * 16, height, width, height, width) + high[..., None] + wide[..., None, :]
        seen = scores.view(windows * 16, height * width, height * width).softmax(dim=-1) @ v
        seen = seen.view(windows, 16, height, width, -1).permute(0, 2, 3, 1, 4).reshape(windows, height, width, -1)
        return self.project(seen)

    def forward(self, x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        windows = F.pad(self.before(x), (0, 0, 0, 6, 0, 6)).view(batch, 5, 14, 5, 14, channels)
        seen = self.attend(windows.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 14, 14, channels))
        seen = seen.view(batch, 5, 5, 14, 14, channels).permute(0, 1, 3, 2, 4, 5).contiguous()
        x = x + seen.view(batch, 70, 70, channels)[:, :height, :width].contiguous()
        return x + self.feed(self.after(x))


def sam_block(machine: str, compile: Compile, batch: str) -> Figures:  # noqa: A002
    """Milliseconds of a forward pass.

    The tutorial compiles with "max-autotune": here without its templates, and without CUDA graphs. Its peaks count what
    a pass allocates (a product in int32 raises them by 1.3 GB), which a replay of a graph does not.
    """
    with card(machine), torch.no_grad():
        with torch.device("cuda"):
            block = SamBlock().to(torch.bfloat16)
            x = torch.zeros(int(batch), 64, 64, 1280, dtype=torch.bfloat16)
        block = compile(block)
        for _ in range(3):
            waiting(lambda: block(x))
        torch.cuda.reset_peak_memory_stats()
        return waiting(lambda: block(x)), peaks()


class BiasNorm(nn.BatchNorm2d):
    """A norm of airbench's, without weights to learn, in float32."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=1e-12, momentum=0.4)
        self.weight.requires_grad = False


class Group(nn.Module):
    """Two convolutions of airbench's."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(n, outputs, 3, padding="same", bias=False) for n in (inputs, outputs))
        self.norm, self.last = BiasNorm(outputs), BiasNorm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.norm(F.max_pool2d(self.first(x), 2)))
        return F.gelu(self.last(self.second(x)))


def airbench(machine: str, compile: Compile) -> Figures:  # noqa: A002
    """Seconds of a run: 486 steps, each fifth with an average of the weights, and images judged in six views each.

    It compiles with "max-autotune": here without its templates. Reading and whitening images is left out.
    """
    with card(machine):
        with torch.device("cuda"):
            net = nn.Sequential(
                nn.Conv2d(3, 24, 2), nn.GELU(), Group(24, 64), Group(64, 256), Group(256, 256),
                nn.MaxPool2d(3), nn.Flatten(), nn.Linear(256, 10, bias=False),
            )  # fmt: skip
            labels = torch.zeros(1024, dtype=torch.long)
        net[0].weight.requires_grad = False
        net.half().to(memory_format=torch.channels_last)
        for norm in net.modules():
            if isinstance(norm, nn.BatchNorm2d):
                norm.float()
        average = {name: value.clone() for name, value in net.state_dict().items()}
        biases = [p for name, p in net.named_parameters() if "norm" in name or "last" in name]
        others = [p for name, p in net.named_parameters() if "norm" not in name and "last" not in name]
        sgd = torch.optim.SGD([{"params": biases}, {"params": others}], 0.01, 0.85, nesterov=True, weight_decay=0.01)
        model = compile(net, mode="reduce-overhead")
        judge = nn.CrossEntropyLoss(label_smoothing=0.2, reduction="none")
        inputs, tests = (
            torch.empty(n, 3, 32, 32, device="cuda", dtype=torch.half).to(memory_format=torch.channels_last)
            for n in (1024, 2000)
        )

        def step() -> None:
            loss = judge(model(inputs) / 9, labels).sum()
            sgd.zero_grad(set_to_none=True)
            loss.backward()
            sgd.step()

        def lookahead() -> None:
            for kept, now in zip(average.values(), net.state_dict().values(), strict=True):
                if now.dtype in (torch.half, torch.float):
                    kept.lerp_(now, 0.1)
                    now.copy_(kept)

        def evaluate() -> None:
            with torch.no_grad():
                for view in (tests, tests.flip(-1)):
                    0.5 * model(view)

        spent = 486 * milliseconds(step, 3) + 98 * milliseconds(lookahead, 1)
        model.eval()
        spent += 5 * 3 * milliseconds(evaluate, 3)
        return spent / 1e3, {}


def densenet(machine: str, compile: Compile, what: str) -> Figures:  # noqa: A002
    """Milliseconds of a pass by CUDA events; for training, the whole step is compiled, with Adam's."""
    with card(machine):
        model, layout = network("densenet121", set())
        inputs = images(16, layout, size=128)
        labels = torch.zeros(16, dtype=torch.long, device="cuda")
        if what == "eval":
            model = compile(model, mode="reduce-overhead")
            with torch.no_grad():
                return milliseconds(lambda: model(inputs), 3), {}
        adam = torch.optim.Adam(model.parameters())

        def train() -> None:
            adam.zero_grad(True)
            F.cross_entropy(model(inputs), labels).backward()
            adam.step()

        return milliseconds(compile(train, mode="reduce-overhead"), 4), {}


class WideNorm(nn.Module):
    """RMSNorm op by op, in float32: the weight of Qwen3's from scratch is float32, too, and torchtune's is not."""

    def __init__(self, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (wide * self.scale).to(x.dtype) if self.scale.dtype is torch.float32 else wide.type_as(x) * self.scale


@dataclass(frozen=True)
class Sizes:
    """Of a decoder in bfloat16 whose queries share keys; `style` is whose code it is."""

    style: str
    layers: int
    width: int
    heads: int
    shared: int
    head: int
    hidden: int
    words: int
    places: int

    def norm(self, width: int) -> nn.Module:
        if self.style == "llama":
            return nn.RMSNorm(width, eps=1e-5, dtype=torch.bfloat16)
        return WideNorm(width, torch.float32 if self.style == "qwen" else torch.bfloat16)

    def linear(self, inputs: int, outputs: int) -> nn.Linear:
        return nn.Linear(inputs, outputs, bias=False, dtype=torch.bfloat16)


DECODERS = {
    "qwen3-0.6b": Sizes("qwen", 28, 1024, 16, 8, 128, 3072, 151936, 40960),
    "llama3.2-1b": Sizes("llama", 16, 2048, 32, 8, 64, 8192, 128256, 131072),
    "llama3.2-3b": Sizes("tune", 28, 3072, 24, 8, 128, 8192, 128256, 131072),
}


class DecoderLayer(nn.Module):
    """Attention and a gated feed-forward network; torchtune's calls PyTorch's attention, the others multiply."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes, inner = sizes, sizes.heads * sizes.head
        self.before, self.after = sizes.norm(sizes.width), sizes.norm(sizes.width)
        self.q, self.o = sizes.linear(sizes.width, inner), sizes.linear(inner, sizes.width)
        self.k, self.v = (sizes.linear(sizes.width, sizes.shared * sizes.head) for _ in range(2))
        self.norms = nn.ModuleList(sizes.norm(sizes.head) for _ in range(2)) if sizes.style == "qwen" else None
        self.gate, self.up = (sizes.linear(sizes.width, sizes.hidden) for _ in range(2))
        self.down = sizes.linear(sizes.hidden, sizes.width)

    def turn(self, x: Tensor, places: tuple[Tensor, ...]) -> Tensor:
        """Of (batch, heads, length, head); torchtune's turns neighbors, before the heads come first."""
        if self.sizes.style == "tune":
            (table,) = places
            pairs = x.float().reshape(*x.shape[:-1], -1, 2)
            table = table[: x.shape[1]].view(-1, x.shape[1], 1, pairs.shape[3], 2)
            left = pairs[..., 0] * table[..., 0] - pairs[..., 1] * table[..., 1]
            right = pairs[..., 1] * table[..., 0] + pairs[..., 0] * table[..., 1]
            return torch.stack([left, right], -1).flatten(3).type_as(x)
        cosine, sine = (table[: x.shape[2]][None, None] for table in places)
        half = x.shape[-1] // 2
        return (x * cosine + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sine).to(x.dtype)

    def attend(self, x: Tensor, mask: Tensor | None, places: tuple[Tensor, ...]) -> Tensor:
        sizes = self.sizes
        q, k, v = (layer(x).view(*x.shape[:2], -1, sizes.head) for layer in (self.q, self.k, self.v))
        each = sizes.heads // sizes.shared
        if mask is None:
            q, k = self.turn(q, places).transpose(1, 2), self.turn(k, places).transpose(1, 2)
            shape = x.shape[0], sizes.shared, each, -1, sizes.head
            k, v = (one.unsqueeze(2).expand(shape).flatten(1, 2) for one in (k, v.transpose(1, 2)))
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            q, k, v = (one.transpose(1, 2) for one in (q, k, v))
            if self.norms is not None:
                q, k = self.norms[0](q), self.norms[1](k)
            q, k = self.turn(q, places), self.turn(k, places)
            k, v = (one.repeat_interleave(each, dim=1) for one in (k, v))
            scores = (q @ k.transpose(2, 3)).masked_fill(mask, -torch.inf)
            seen = torch.softmax(scores / sizes.head**0.5, dim=-1) @ v
        return self.o(seen.transpose(1, 2).reshape(*x.shape[:2], -1))

    def forward(self, x: Tensor, mask: Tensor | None, *places: Tensor) -> Tensor:
        x = self.attend(self.before(x), mask, places) + x
        after = self.after(x)
        return self.down(F.silu(self.gate(after)) * self.up(after)) + x


class Decoder(nn.Module):
    """Llama 3.2 and Qwen3; only torchtune's has one table for words and outputs, as the model was trained."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.words = nn.Embedding(sizes.words, sizes.width, dtype=torch.bfloat16)
        self.layers = nn.ModuleList(DecoderLayer(sizes) for _ in range(sizes.layers))
        self.norm = sizes.norm(sizes.width)
        self.own = sizes.style != "tune"
        self.head = sizes.linear(sizes.width, sizes.words) if self.own else None
        shapes = [(sizes.places, sizes.head)] * 2 if self.own else [(sizes.places, sizes.head // 2, 2)]
        for number, shape in enumerate(shapes):
            self.register_buffer(f"places{number}", torch.zeros(shape), persistent=False)

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words)
        mask = torch.triu(x.new_ones(x.shape[1], x.shape[1], dtype=torch.bool), diagonal=1) if self.own else None
        for layer in self.layers:
            x = layer(x, mask, *self.buffers(recurse=False))
        x = self.norm(x)
        return self.head(x) if self.head is not None else F.linear(x, self.words.weight).float()


def generate(machine: str, compile: Compile, name: str, batch: str, prompt: str) -> Figures:  # noqa: A002
    """Words a second of greedy decoding without a cache, 150 after the prompt; the peak since the program began.

    The source divides all words of a text, its prompt's too, by the time.
    """
    with card(machine), torch.no_grad():
        model = Decoder(DECODERS[name]).to("cuda")
        model = compile(model)
        words = torch.zeros(int(batch), int(prompt), dtype=torch.long, device="cuda")

        def write(words: Tensor) -> Tensor:
            scores = model(words)[:, -1, :]
            return torch.cat((words, torch.argmax(scores, dim=-1, keepdim=True)), dim=1)

        torch._dynamo.mark_dynamic(words, 1)  # as Dynamo takes it from the second length on
        write(words)
        spent = []
        for after in (1, 75, 149):  # lengths between take times between
            longer = words.new_zeros(words.shape[0], words.shape[1] + after)
            spent.append(milliseconds(lambda longer=longer: write(longer)))
        written = len(words) * (words.shape[1] + 150) / 150
        return written * 1e3 / (sum(spent) / 3), peaks()


def finetune(machine: str, compile: Compile, name: str, batch: str, length: str) -> Figures:  # noqa: A002
    """Words a second of torchtune's full_finetune_single_device, which compiles each layer, and the loss."""
    with card(machine):
        with torch.device("cuda"):
            model = Decoder(DECODERS[name])
            words = torch.zeros(int(batch), int(length), dtype=torch.long)
        adam = torch.optim.AdamW(model.parameters(), 2e-5, fused=True)
        judge = compile(nn.CrossEntropyLoss(ignore_index=-100))
        for number, layer in enumerate(model.layers):
            model.layers[number] = compile(layer)

        def step() -> None:
            scores = model(words).reshape(-1, model.words.num_embeddings)
            loss = judge(scores, words.reshape(-1))
            del scores
            loss.backward()
            adam.step()
            adam.zero_grad(set_to_none=True)

        return words.numel() * 1e3 / milliseconds(step, 2), peaks()


MEASURES: dict[str, Callable[..., Figures]] = {
    one.__name__: one for one in (image, nanogpt, gpt2, sam_block, airbench, densenet, generate, finetune)
}
