"""Training steps of small models: memory at the end of forward, backward and step, and the peaks between them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from recording.common import DEVICE, MIB, attempt, memory, refusal, settle
from torch import nn
from torch.nn import functional as F  # noqa: N812 - its name everywhere
from torch.nn.attention import SDPBackend

from . import models

Optimizer = Callable[..., torch.optim.Optimizer]
Phases = dict[str, dict[str, int]]


class Meter:
    """The phases of a workload: where memory stands at each one's end, and its peak since the one before."""

    def __init__(self) -> None:
        settle(collect=True)
        self.phases: Phases = {}

    def __call__(self, name: str) -> None:
        """End a phase."""
        torch.cuda.synchronize()
        self.phases[name] = memory()
        torch.cuda.reset_peak_memory_stats()


def _random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(DEVICE, dtype)


def _classes(count: int, classes: int = 10) -> torch.Tensor:
    return (torch.arange(count) % classes).to(DEVICE)


def train(
    model: nn.Module,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    optimizer: Optimizer | None = None,
    *,
    autocast: torch.dtype | None = None,
    scale: bool = False,
    micro_batches: int = 1,
    clip: float | None = None,
    set_to_none: bool = True,
) -> Callable[[Meter], None]:
    """Two training steps, the second of which finds gradients and state in place."""

    def run(meter: Meter) -> None:
        model.to(DEVICE).train()
        steps = (optimizer or partial(torch.optim.SGD, lr=1e-3))(model.parameters())
        scaler = torch.amp.GradScaler("cuda") if scale else None
        meter("built")
        for step in (1, 2):
            for x, y in zip(inputs.chunk(micro_batches), targets.chunk(micro_batches), strict=True):
                with torch.autocast("cuda", autocast) if autocast else nullcontext():
                    loss = F.cross_entropy(model(x), y) / micro_batches
                meter(f"forward_{step}")
                (scaler.scale(loss) if scaler else loss).backward()
                del loss
                meter(f"backward_{step}")
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            if scaler:
                scaler.step(steps)
                scaler.update()
            else:
                steps.step()
            meter(f"step_{step}")
            steps.zero_grad(set_to_none=set_to_none)
        meter("zeroed")

    return run


def _tokens(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    return _classes(batch * length, 1000).view(batch, length), _classes(batch * length, 1000)


def _mlp(optimizer: Optimizer | None = None, **options: Any) -> Callable[[Meter], None]:
    return train(models.mlp(), _random(256, 512), _classes(256), optimizer, **options)


def _gpt(dtype: torch.dtype = torch.float32, recompute: bool = False, **options: Any) -> Callable[[Meter], None]:
    tokens, targets = _tokens(4, 128)
    model = models.GPT(recompute=recompute, backend=options.pop("backend", None)).to(dtype)
    return train(model, tokens, targets, partial(torch.optim.AdamW, lr=1e-3), **options)


def _resnet(channels_last: bool = False, **options: Any) -> Callable[[Meter], None]:
    model, images = models.resnet18(), _random(4, 3, 64, 64)
    if channels_last:
        model, images = model.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    return train(
        model, images, _classes(4), partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=1e-4), **options
    )


def _lstm() -> Callable[[Meter], None]:
    return train(
        models.Tagger(), _classes(8 * 32, 1000).view(8, 32), _classes(8 * 32), partial(torch.optim.Adam, lr=1e-3)
    )


def _embedding(meter: Meter, sparse: bool = False) -> None:
    table = nn.Embedding(20_000, 128, sparse=sparse, device=DEVICE)
    tokens = _classes(4096, 20_000)
    meter("built")
    for step in (1, 2):
        table(tokens).sum().backward()
        meter(f"backward_{step}")
    table.zero_grad()
    meter("zeroed")


def _activations(meter: Meter, in_place: bool) -> None:
    """Eight sums and ReLUs in a row: out of place, each ReLU has a result beside its input."""
    x = _random(1024, 1024).requires_grad_()
    meter("built")
    y = x * 1.0
    for _ in range(8):
        y = F.relu(y + 1.0, inplace=in_place)
    meter("forward")
    y.sum().backward()
    del y
    meter("backward")


def _inference(meter: Meter) -> None:
    model, x = models.mlp().to(DEVICE).eval(), _random(256, 512)
    meter("built")
    with torch.inference_mode():
        y = model(x)
    meter("forward")
    del y
    meter("freed")


def _attention(meter: Meter, backend: SDPBackend, dtype: torch.dtype) -> None:
    """One attention over 1024 positions: whether the square of them is ever held."""
    q, k, v = (_random(1, 4, 1024, 64, dtype=dtype).requires_grad_() for _ in range(3))
    meter("built")
    with torch.nn.attention.sdpa_kernel(backend):
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    meter("forward")
    y.backward(torch.ones_like(y))
    meter("backward")


def _transfers(meter: Meter) -> None:
    host = torch.randn(2 * MIB)
    meter("built")
    x = host.to(DEVICE)
    meter("moved")
    y = x.to(torch.float16)
    meter("cast")
    z = y.cpu()
    del y, z, x
    meter("back")


def _out_of_memory(meter: Meter) -> None:
    """A batch too big for what the process may have; what the failed step leaves, and that the next one fits."""
    total = torch.cuda.get_device_properties(0).total_memory
    model = models.mlp().to(DEVICE)
    torch.cuda.set_per_process_memory_fraction(128 * MIB / total)
    meter("built")
    try:
        refusal(lambda: model(_random(32_768, 512)).sum().backward())
        meter("failed")
        model(_random(256, 512)).sum().backward()
        meter("smaller")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


FLASH, MATH, EFFICIENT = SDPBackend.FLASH_ATTENTION, SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION
CUDNN = SDPBackend.CUDNN_ATTENTION
Adam = partial(torch.optim.Adam, lr=1e-3)

WORKLOADS: dict[str, Callable[[], Callable[[Meter], None]]] = {
    "mlp_sgd": _mlp,
    "mlp_adam_foreach": lambda: _mlp(partial(Adam, foreach=True)),
    "mlp_adam_fused": lambda: _mlp(partial(Adam, fused=True)),
    "mlp_adam_loop": lambda: _mlp(partial(Adam, foreach=False)),
    "mlp_adamw_clipped": lambda: _mlp(partial(torch.optim.AdamW, lr=1e-3), clip=1.0),
    "mlp_zeroed_in_place": lambda: _mlp(set_to_none=False),
    "mlp_accumulated": lambda: _mlp(Adam, micro_batches=4),
    "mlp_amp_float16": lambda: _mlp(Adam, autocast=torch.float16, scale=True),
    "mlp_amp_bfloat16": lambda: _mlp(Adam, autocast=torch.bfloat16),
    "mlp_inference": lambda: _inference,
    "cnn_adam": lambda: train(models.cnn(), _random(32, 3, 32, 32), _classes(32), Adam),
    "resnet18": _resnet,
    "resnet18_amp_channels_last": lambda: _resnet(channels_last=True, autocast=torch.float16, scale=True),
    "lstm": _lstm,
    "gpt": _gpt,
    "gpt_math": lambda: _gpt(backend=MATH),
    "gpt_efficient": lambda: _gpt(backend=EFFICIENT),
    "gpt_flash_bfloat16": lambda: _gpt(torch.bfloat16, backend=FLASH),
    "gpt_amp_bfloat16": lambda: _gpt(autocast=torch.bfloat16),
    "gpt_checkpointed": lambda: _gpt(recompute=True),
    "embedding": lambda: _embedding,
    "embedding_sparse": lambda: partial(_embedding, sparse=True),
    "relu": lambda: partial(_activations, in_place=False),
    "relu_in_place": lambda: partial(_activations, in_place=True),
    "attention_math": lambda: partial(_attention, backend=MATH, dtype=torch.float32),
    "attention_efficient": lambda: partial(_attention, backend=EFFICIENT, dtype=torch.float32),
    "attention_flash": lambda: partial(_attention, backend=FLASH, dtype=torch.float16),
    "attention_cudnn": lambda: partial(_attention, backend=CUDNN, dtype=torch.float16),
    "transfers": lambda: _transfers,
    "out_of_memory": lambda: _out_of_memory,
}
"""Each makes a workload: sizes that a card of 4 GiB and a patient CPU can both do."""

LARGER: dict[str, Callable[[], Callable[[Meter], None]]] = {
    "resnet18_224": lambda: train(models.resnet18(), _random(16, 3, 224, 224), _classes(16)),
    "gpt_768": lambda: train(
        models.GPT(768, 6, 12, 512, 32_000),
        *_tokens(4, 512),
        partial(torch.optim.AdamW, lr=1e-3),
        autocast=torch.bfloat16,
    ),
}
"""Left out by ``--quick``."""


def _run(make: Callable[[], Callable[[Meter], None]]) -> Phases:
    torch.manual_seed(0)
    workload = make()
    meter = Meter()
    workload(meter)
    del workload
    settle(collect=True)
    meter.phases["after"] = memory()
    return meter.phases


def record(quick: bool) -> dict[str, Any]:
    """Run them all."""
    chosen = WORKLOADS if quick else {**WORKLOADS, **LARGER}
    return {name: attempt(lambda make=make: _run(make)) for name, make in chosen.items()}
