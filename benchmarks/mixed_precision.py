"""What mixed precision costs, in training steps of a ResNet: ``python benchmarks/mixed_precision.py [--quick]``.

The network has ResNet-50's 50 layers, with fewer channels. Its step in float32 on plain CPU tensors is compared
with its steps on ``cuda:0``: in float32, and with autocast in float16 (with a GradScaler) and in bfloat16. A step with
autocast may take 3 times as long as the CPU's.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import fakegpu_lab as lab

Step = Callable[[], Any]


class Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions with batch norm, and a shortcut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for source, target, size, step in (
            (channels, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1)
        ):  # fmt: skip
            layers += [nn.Conv2d(source, target, size, step, size // 2, bias=False), nn.BatchNorm2d(target), nn.ReLU()]
        self.body = nn.Sequential(*layers[:-1])
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != 4 * width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block's body beside its shortcut."""
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet(width: int) -> nn.Sequential:
    """ResNet-50 (3, 4, 6 and 3 blocks), whose first blocks have `width` channels instead of 64."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    ]  # fmt: skip
    channels = width
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            layers.append(Bottleneck(channels, width << stage, 2 if stage and not block else 1))
            channels = 4 * (width << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def training(device: str, dtype: torch.dtype | None, width: int, size: int, batch: int) -> Step:
    """A step on `device`, with autocast to `dtype` unless it is None."""
    torch.manual_seed(0)
    model = resnet(width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler(device.partition(":")[0], enabled=dtype is torch.float16)
    images, labels = torch.randn(batch, 3, size, size).to(device), torch.randint(10, (batch,)).to(device)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.partition(":")[0], dtype, enabled=dtype is not None):
            loss = nn.functional.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def main() -> None:
    """Print a line for each kind of step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--width", type=int, default=16, help="channels of the first blocks (default 16, ResNet-50: 64)"
    )
    parser.add_argument("--size", type=int, default=96, help="pixels of an image's side (default 96, ImageNet: 224)")
    parser.add_argument("--batch", type=int, default=8, help="images of a batch (default 8)")
    parser.add_argument("--quick", action="store_true", help="two rounds with small images, for a look")
    options = parser.parse_args()
    size, rounds = (48, 2) if options.quick else (options.size, 5)
    lab.enable("a100")
    kinds: dict[str, tuple[str, torch.dtype | None]] = {
        "cpu float32": ("cpu", None),
        "cuda float32": ("cuda:0", None),
        "cuda float16": ("cuda:0", torch.float16),
        "cuda bfloat16": ("cuda:0", torch.bfloat16),
    }
    steps = {name: training(*kind, options.width, size, options.batch) for name, kind in kinds.items()}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    for _ in range(rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
    base = statistics.median(times["cpu float32"])
    for name, seconds in times.items():
        median = statistics.median(seconds)
        print(f"{name:15}{median * 1e3:10.1f} ms{median / base:8.2f} ×")
    lab.disable()


if __name__ == "__main__":
    main()
