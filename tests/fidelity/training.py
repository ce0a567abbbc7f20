"""Training steps as NVIDIA's DeepLearningExamples ran them for the throughput tables in its READMEs.

Under ``compute="meta"``: no numbers, the real shapes, so that a step of a large model takes a second or two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Tensor = torch.Tensor


class Bottleneck(nn.Module):
    """1×1, 3×3 (which strides: version 1.5), 1×1, and a way around."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = (
            None
            if stride == 1 and inputs == outputs
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, x: Tensor) -> Tensor:
        around = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        x += around
        return self.relu(x)


class ResNet50(nn.Module):
    """ResNet-50 v1.5."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        blocks = list[nn.Module]()
        inputs = 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for number in range(count):
                blocks.append(Bottleneck(inputs, width, 1 if number else stride))
                inputs = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1))


class Layer(nn.Module):
    """A layer of BERT as DeepLearningExamples' modeling.py writes it: attention by two products and a softmax."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.project = nn.Linear(width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)
        self.grow, self.shrink = nn.Linear(width, inner), nn.Linear(inner, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (
            layer(x).view(batch, length, self.heads, -1).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(2, 3) / (width // self.heads) ** 0.5
        if mask is not None:
            scores = scores + mask
        seen = self.dropout(F.softmax(scores, dim=-1)) @ value
        x = self.norm1(self.dropout(self.project(seen.transpose(1, 2).reshape(batch, length, width))) + x)
        return self.norm2(self.dropout(self.shrink(F.gelu(self.grow(x)))) + x)


class Bert(nn.Module):
    """BERT-large for pretraining; the masked-word head sees the masked positions only."""

    def __init__(self, layers: int = 24, width: int = 1024, heads: int = 16, vocabulary: int = 30528) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(512, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(0.1)
        self.layers = nn.ModuleList(Layer(width, heads, 4 * width) for _ in range(layers))
        self.pooler, self.next = nn.Linear(width, width), nn.Linear(width, 2)
        self.transform, self.head_norm = nn.Linear(width, width), nn.LayerNorm(width, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, words: Tensor, segments: Tensor, mask: Tensor, masked: Tensor) -> tuple[Tensor, Tensor]:
        positions = torch.arange(words.shape[1], device=words.device)
        x = self.words(words) + self.positions(positions) + self.segments(segments)
        x = self.dropout(self.norm(x))
        far = ((1.0 - mask) * -10000.0)[:, None, None, :].to(self.words.weight.dtype)
        for layer in self.layers:
            x = layer(x, far)
        chosen = x.flatten(0, 1).index_select(0, masked)
        chosen = self.head_norm(F.gelu(self.transform(chosen)))
        return F.linear(chosen, self.words.weight, self.bias), self.next(torch.tanh(self.pooler(x[:, 0])))


def _train(step: Callable[[], Tensor], optimizer: torch.optim.Optimizer, *, amp: bool, every: int) -> Iterator[None]:
    """Endless steps; the optimizer's comes after `every` of forward and backward."""
    scaler = torch.amp.GradScaler("cuda", enabled=amp)
    number = 0
    while True:
        loss = step()
        scaler.scale(loss / every).backward()
        number += 1
        if number % every == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
        yield


def resnet50(batch: int, *, amp: bool) -> Iterator[None]:
    """ConvNets, configs.yml, DGXA100: NHWC under AMP, NCHW (the default) with TF32; SGD, label smoothing 0.1.

    The images are on the card already (their loader is DALI, which works beside the step).
    """
    layout = torch.channels_last if amp else torch.contiguous_format
    with torch.device("cuda"):
        model = ResNet50().to(memory_format=layout)
    images = torch.empty(batch, 3, 224, 224, device="cuda").to(memory_format=layout)
    labels = torch.zeros(batch, dtype=torch.long, device="cuda")
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.875, weight_decay=3e-5, nesterov=True)

    def step() -> Tensor:
        with torch.autocast("cuda", torch.float16, enabled=amp):
            return criterion(model(images), labels)

    yield from _train(step, optimizer, amp=amp, every=1)


def bert(batch: int, length: int, masked: int, *, amp: bool, every: int) -> Iterator[None]:
    """BERT's pretraining: so many masked words a sequence, a step of the optimizer in `every`.

    Mixed precision is apex's O2: all weights and activations are halves. PyTorch has no LAMB: fused Adam reads and
    writes the same lists, but for the norms and the weights' copy in float32.
    """
    with torch.device("cuda"):
        model = Bert()
    if amp:
        model.half()
    words = torch.zeros(batch, length, dtype=torch.long, device="cuda")
    mask = torch.ones(batch, length, device="cuda")
    chosen = torch.zeros(batch * masked, dtype=torch.long, device="cuda")
    follows = torch.zeros(batch, dtype=torch.long, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)

    def step() -> Tensor:
        scores, is_next = model(words, words, mask, chosen)
        return F.cross_entropy(scores.float(), chosen) + F.cross_entropy(is_next.float(), follows)

    yield from _train(step, optimizer, amp=amp, every=every)
