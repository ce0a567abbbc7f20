"""Steps of training and inference on one card, and the time that they take."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F

from tests.fidelity.fact import enabled
from tests.fidelity.programs.networks import NETWORKS, ViT
from tests.fidelity.training import Bert, Layer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Tensor = torch.Tensor


@contextmanager
def card(machine: str, *, tf32: bool = False, **options: str) -> Iterator[None]:
    """The machine, with TF32 for float32 where the figure's program allowed it, and other `options` of `enable`."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    with enabled(machine, compute="meta", **options):
        _allow_tf32(tf32, tf32)
        try:
            yield
        finally:
            _allow_tf32(*before)


def _allow_tf32(matmul: bool, convolutions: bool) -> None:
    # Once torch.testing is imported, it refuses assignments to cuDNN's flags outside of this context.
    with torch.backends.__allow_nonbracketed_mutation():  # type: ignore[attr-defined]
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = matmul, convolutions


def milliseconds(step: Callable[[], object], warm: int = 1) -> float:
    """The time of a steady step, by CUDA events."""
    for _ in range(warm):
        step()
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    step()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def network(name: str, how: set[str]) -> tuple[nn.Module, torch.memory_format]:
    """A network on the card, with its layout."""
    layout = torch.channels_last if "nhwc" in how else torch.contiguous_format
    with torch.device("cuda"):
        model = NETWORKS[name](**{"fused": "timm" not in how} if name.startswith("vit") else {})
    return (model.half() if "half" in how else model).to(memory_format=layout), layout


def images(batch: int, layout: torch.memory_format, dtype: torch.dtype = torch.float32, size: int = 224) -> Tensor:
    return torch.empty(batch, 3, size, size, device="cuda", dtype=dtype).to(memory_format=layout)


def image_step(
    name: str, how: set[str], batch: int, wrap: Callable[[nn.Module], nn.Module] | None = None
) -> Callable[[], None]:
    """A step of training on images: cross-entropy and SGD with momentum."""
    model, layout = network(name, how)
    if wrap is not None:
        model = wrap(model)
    inputs, labels = images(batch, layout), torch.zeros(batch, dtype=torch.long, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.875, weight_decay=3e-5)
    scaler = torch.amp.GradScaler("cuda", enabled="amp" in how and "timm" not in how)

    def step() -> None:
        with torch.autocast("cuda", torch.float16, enabled="amp" in how):
            loss = F.cross_entropy(model(inputs), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return step


class Squad(nn.Module):
    """BERT-large that finds answers in a text of `length` words; or its classifier, or its pretraining."""

    def __init__(self, outputs: int = 2) -> None:
        super().__init__()
        self.bert = Bert()
        for unused in ("transform", "head_norm", "next", "pooler", "bias"):
            delattr(self.bert, unused)
        self.outputs = nn.Linear(1024, outputs)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        bert = self.bert
        x = bert.words(words) + bert.positions(torch.arange(words.shape[1], device=words.device)) + bert.segments(words)
        x = bert.dropout(bert.norm(x))
        far = ((1.0 - mask) * -10000.0)[:, None, None, :].to(bert.words.weight.dtype)
        for layer in bert.layers:
            x = layer(x, far)
        return self.outputs(x)


class Masters:
    """apex's optimization level O2: halves in the model, masters in float32 that Adam updates, gradients clipped."""

    def __init__(self, model: nn.Module) -> None:
        self.halves = [p for p in model.parameters() if p.requires_grad]
        self.masters = [p.detach().float() for p in self.halves]
        self.adam = torch.optim.AdamW(self.masters, 1e-5, fused=True)

    @torch.no_grad()
    def step(self) -> None:
        used = [number for number, p in enumerate(self.halves) if p.grad is not None]
        wide = [torch.empty_like(self.masters[number]) for number in used]
        torch._foreach_copy_(wide, [self.halves[number].grad for number in used])
        for number, gradient in zip(used, wide, strict=True):
            self.masters[number].grad = gradient
        torch.nn.utils.clip_grad_norm_(self.masters, 1.0, foreach=True)
        self.adam.step()
        torch._foreach_copy_(self.halves, self.masters)
        for p in (*self.halves, *self.masters):  # apex/amp/_process_optimizer.py: zero_grad frees those of the masters
            p.grad = None


class BertAdam:
    """The optimizer of DeepLearningExamples for float32 (optimization.py): a dozen kernels for each parameter.

    Gradients are clipped together first, for which the host waits (``GradientClipper`` of run_squad.py).
    """

    def __init__(self, model: nn.Module) -> None:
        self.named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self.moments = [(torch.zeros_like(p), torch.zeros_like(p)) for _, p in self.named]

    @torch.no_grad()
    def step(self) -> None:
        torch.nn.utils.clip_grad_norm_([p for _, p in self.named], 1.0, foreach=True)
        torch.cuda.synchronize()  # total_norm.item()
        for (name, p), (m, v) in zip(self.named, self.moments, strict=True):
            if p.grad is None:
                continue
            torch.nn.utils.clip_grad_norm_(p, 1.0, foreach=False)
            m.mul_(0.9).add_(p.grad, alpha=0.1)
            v.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
            update = m / (v.sqrt() + 1e-6)
            if "norm" not in name and not name.endswith("bias"):
                update += 0.01 * p
            p.add_(-(1e-5 * update))
        torch._foreach_zero_([p.grad for _, p in self.named if p.grad is not None])


def trainer_update(model: nn.Module, adam: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:
    """What Hugging Face's Trainer of 2022 did after the backward pass (transformers 4.20, trainer.py).

    It clipped gradients to a norm of 1 by default, parameter by parameter, as its AdamW updated them.
    """
    scaler.unscale_(adam)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
    scaler.step(adam)
    scaler.update()
    adam.zero_grad(set_to_none=False)


def text_step(how: set[str], batch: int, wrap: Callable[[nn.Module], nn.Module] | None = None) -> Callable[[], None]:
    """A step of BERT-large: SQuAD (384 words), pretraining (128, no optimizer), or Hugging Face's Trainer (512)."""
    length = 384 if "squad" in how else 512 if "trainer" in how else 128
    with torch.device("cuda"):
        model: nn.Module = Squad()
        words = torch.zeros(batch, length, dtype=torch.long)
        mask = torch.ones(batch, length)
    half = "fp16" in how
    if half:
        model.half()
    masters = Masters(model) if half else None
    plain = BertAdam(model) if "squad" in how and not half else None
    adam = torch.optim.AdamW(model.parameters(), 1e-5, foreach=False) if "trainer" in how else None
    parallel = model if wrap is None else wrap(model)
    scaler = torch.amp.GradScaler("cuda", enabled="amp" in how)
    targets = torch.zeros(batch, 2, dtype=torch.long, device="cuda")

    def step() -> None:
        with torch.autocast("cuda", torch.float16, enabled="amp" in how):
            loss = F.cross_entropy(parallel(words, mask).float(), targets)
        scaler.scale(loss).backward()
        if "128" in how:  # one step of the optimizer in 64 of these is left out
            return
        if adam is not None:
            trainer_update(model, adam, scaler)
        elif masters is not None:
            masters.step()
        elif plain is not None:
            plain.step()
        torch.cuda.synchronize()  # loss.item(); Trainer asks whether the loss is a number

    return step


class PlainGPT(nn.Module):
    """GPT-2's size with a head of its own, as rasbt/LLMs-from-scratch writes it with PyTorch's classes."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(vocabulary, 768), nn.Embedding(1024, 768)
        self.layers = nn.ModuleList(
            nn.ModuleDict({
                "norm1": nn.LayerNorm(768), "qkv": nn.Linear(768, 2304, bias=False), "project": nn.Linear(768, 768),
                "norm2": nn.LayerNorm(768), "drop": nn.Dropout(0.1),
                "feed": nn.Sequential(nn.Linear(768, 3072), nn.GELU("tanh"), nn.Linear(3072, 768)),
            }) for _ in range(12)
        )  # fmt: skip
        self.drop, self.norm, self.head = nn.Dropout(0.1), nn.LayerNorm(768), nn.Linear(768, vocabulary, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        batch, length = words.shape
        x = self.drop(self.words(words) + self.positions(torch.arange(length, device=words.device)))
        for layer in self.layers:
            qkv = layer["qkv"](layer["norm1"](x)).view(batch, length, 3, 12, 64).permute(2, 0, 3, 1, 4)
            seen = F.scaled_dot_product_attention(*qkv, dropout_p=0.1, is_causal=True)
            x = layer["drop"](layer["project"](seen.transpose(1, 2).contiguous().view(batch, length, 768))) + x
            x = layer["drop"](layer["feed"](layer["norm2"](x))) + x
        return self.head(self.norm(x))


def gpt_train(machine: str, vocabulary: str, batch: str) -> float:
    """Words a second, all in bfloat16: sequences of 1024, the fused AdamW."""
    with card(machine):
        with torch.device("cuda"):
            model = PlainGPT(int(vocabulary)).to(torch.bfloat16)
            words = torch.zeros(int(batch), 1024, dtype=torch.long)
        adam = torch.optim.AdamW(model.parameters(), 5e-4, weight_decay=0.1, fused=True)

        def step() -> None:
            adam.zero_grad()
            F.cross_entropy(model(words).flatten(0, 1), words.flatten()).backward()
            adam.step()

        return words.numel() * 1e3 / milliseconds(step)


def train(machine: str, name: str, how: str, batch: str) -> float:
    """Images or sequences a second."""
    words = set(how.split("-"))
    with card(machine, tf32="tf32" in words):
        step = text_step(words, int(batch)) if name == "bert-large" else image_step(name, words, int(batch))
        return int(batch) * 1e3 / milliseconds(step)


def infer(machine: str, name: str, how: str, batch: str) -> float:
    """Images a second."""
    words = set(how.split("-"))
    with card(machine), torch.no_grad():
        model, layout = network(name, words)
        model.eval()
        inputs = images(int(batch), layout)

        def step() -> None:
            with torch.autocast("cuda", torch.float16, enabled="amp" in words):
                model(inputs)

        return int(batch) * 1e3 / milliseconds(step)


def small_train(machine: str, name: str, how: str, batch: str) -> float:
    """Milliseconds of a step on images that come from pageable memory, without an optimizer."""
    dtype = torch.float16 if how == "half" else torch.float32
    with card(machine):
        model, _ = network(name, {how})
        labels = torch.zeros(int(batch), dtype=torch.long, device="cuda")
        cpu = torch.empty(int(batch), 3, 224, 224, dtype=dtype)

        def step() -> None:
            model.zero_grad()
            F.cross_entropy(model(cpu.to("cuda")), labels).backward()

        return milliseconds(step, 2)


def small_infer(machine: str, name: str, how: str, batch: str) -> float:
    """The same, forward only."""
    dtype = torch.float16 if how == "half" else torch.float32
    with card(machine), torch.no_grad():
        model, _ = network(name, {how})
        model.eval()
        cpu = torch.empty(int(batch), 3, 224, 224, dtype=dtype)
        return milliseconds(lambda: model(cpu.to("cuda")), 2)


def bert_layer(machine: str, what: str, batch: str, length: str) -> float:
    """TFLOP/s of one layer of BERT-large in halves, dropout included, as transformers writes it."""
    b, s, h = int(batch), int(length), 1024
    with card(machine):
        with torch.device("cuda"):
            layer = Layer(h, 16, 4 * h).half()
            x = torch.empty(b, s, h, dtype=torch.half)

        def step() -> None:
            y = layer(x, None)
            if what == "both":
                y.sum().backward()

        ms = milliseconds(step, 2)
    flops = 24 * b * s * h * h + 4 * b * h * s * s
    return flops * (3 if what == "both" else 1) / ms / 1e9


__all__ = ["ViT", "bert_layer", "infer", "small_infer", "small_train", "train"]
