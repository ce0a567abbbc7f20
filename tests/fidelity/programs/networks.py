"""The networks of the published figures, as torchvision and timm define them."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from collections.abc import Callable

    Tensor = torch.Tensor


def _conv(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)


class Residual(nn.Module):
    """A residual block: two 3×3 convolutions, or a bottleneck of 1×1, 3×3 (which strides) and 1×1."""

    def __init__(self, inputs: int, width: int, outputs: int, stride: int, groups: int, *, deep: bool) -> None:
        super().__init__()
        if deep:
            sizes = [(inputs, width, 1, 1, 1), (width, width, 3, stride, groups), (width, outputs, 1, 1, 1)]
        else:
            sizes = [(inputs, outputs, 3, stride, 1), (outputs, outputs, 3, 1, 1)]
        layers = list[nn.Module]()
        for size in sizes:
            layers += [_conv(*size), nn.BatchNorm2d(size[1]), nn.ReLU(inplace=True)]
        self.way = nn.Sequential(*layers[:-1])
        self.around = nn.Sequential()
        if stride > 1 or inputs != outputs:
            self.around = nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = self.way(x)
        y += self.around(x)
        return F.relu(y, inplace=True)


class ResNet(nn.Module):
    """ResNet v1.5, Wide ResNet and ResNeXt."""

    def __init__(self, counts: tuple[int, ...], *, deep: bool = True, groups: int = 1, base: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = [_conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
        layers.append(nn.MaxPool2d(3, 2, 1))
        inputs = 64
        for stage, count in enumerate(counts):
            planes = 64 << stage
            for number in range(count):
                stride = 2 if stage and not number else 1
                outputs = planes * (4 if deep else 1)
                layers.append(Residual(inputs, planes * base // 64 * groups, outputs, stride, groups, deep=deep))
                inputs = outputs
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(inputs, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.adaptive_avg_pool2d(self.body(x), 1).flatten(1))


class VGG16(nn.Module):
    """Thirteen 3×3 convolutions without normalization, and three large linear layers."""

    def __init__(self) -> None:
        super().__init__()
        layers = list[nn.Module]()
        inputs = 3
        for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(count):
                layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(inplace=True)]
                inputs = width
            layers.append(nn.MaxPool2d(2))
        self.body = nn.Sequential(*layers)
        dense = [nn.Linear(25088, 4096), nn.ReLU(inplace=True), nn.Dropout()]
        self.head = nn.Sequential(*dense, nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout())
        self.classes = nn.Linear(4096, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.classes(self.head(self.body(x).flatten(1)))


class DenseLayer(nn.Sequential):
    """Reads all maps before it, and adds 32."""

    def __init__(self, inputs: int) -> None:
        super().__init__(
            nn.BatchNorm2d(inputs), nn.ReLU(inplace=True), _conv(inputs, 128, 1),
            nn.BatchNorm2d(128), nn.ReLU(inplace=True), _conv(128, 32, 3),
        )  # fmt: skip

    def forward(self, maps: list[Tensor]) -> Tensor:  # type: ignore[override]
        return super().forward(torch.cat(maps, 1))


class DenseNet121(nn.Module):
    """Each layer's input is the concatenation of all outputs of its block."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(_conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        self.blocks, self.transitions = nn.ModuleList(), nn.ModuleList()
        inputs = 64
        for count in (6, 12, 24, 16):
            self.blocks.append(nn.ModuleList(DenseLayer(inputs + 32 * i) for i in range(count)))
            inputs += 32 * count
            if count != 16:
                half = [nn.BatchNorm2d(inputs), nn.ReLU(inplace=True), _conv(inputs, inputs // 2, 1), nn.AvgPool2d(2)]
                self.transitions.append(nn.Sequential(*half))
                inputs //= 2
        self.norm, self.head = nn.BatchNorm2d(inputs), nn.Linear(inputs, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for number, block in enumerate(self.blocks):
            maps = [x]
            for layer in block:  # type: ignore[attr-defined]
                maps.append(layer(maps))
            x = torch.cat(maps, 1)
            if number < 3:
                x = self.transitions[number](x)
        return self.head(F.adaptive_avg_pool2d(F.relu(self.norm(x), inplace=True), 1).flatten(1))


class Inverted(nn.Sequential):
    """MobileNetV2's block: wide, depthwise, narrow."""

    def __init__(self, inputs: int, outputs: int, stride: int, wider: int) -> None:
        width = inputs * wider
        first = [_conv(inputs, width, 1), nn.BatchNorm2d(width), nn.ReLU6(inplace=True)] if wider > 1 else []
        super().__init__(
            *first, _conv(width, width, 3, stride, width), nn.BatchNorm2d(width), nn.ReLU6(inplace=True),
            _conv(width, outputs, 1), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        y = super().forward(x)
        return x + y if self.adds else y


class MobileNetV2(nn.Module):
    """Seventeen inverted residual blocks."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [_conv(3, 32, 3, 2), nn.BatchNorm2d(32), nn.ReLU6(inplace=True)]
        inputs = 32
        rows = (
            (1, 16, 1, 1),
            (6, 24, 2, 2),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        )
        for wider, outputs, count, stride in rows:
            for number in range(count):
                layers.append(Inverted(inputs, outputs, 1 if number else stride, wider))
                inputs = outputs
        layers += [_conv(320, 1280, 1), nn.BatchNorm2d(1280), nn.ReLU6(inplace=True)]
        self.body, self.head = nn.Sequential(*layers), nn.Linear(1280, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.adaptive_avg_pool2d(self.body(x), 1).flatten(1))


class MobileNetV1(nn.Sequential):
    """Thirteen depthwise convolutions, each with a pointwise one after it; `width` times the usual channels."""

    def __init__(self, width: float) -> None:
        sizes = [int(width * n) for n in (32, 64, 128, 128, 256, 256, *[512] * 6, 1024, 1024)]
        layers: list[nn.Module] = [_conv(3, sizes[0], 3, 2), nn.BatchNorm2d(sizes[0]), nn.ReLU(inplace=True)]
        for number, (inputs, outputs) in enumerate(pairwise(sizes)):
            for conv in (
                _conv(inputs, inputs, 3, 2 if number in (1, 3, 5, 11) else 1, inputs),
                _conv(inputs, outputs, 1),
            ):
                layers += [conv, nn.BatchNorm2d(conv.out_channels), nn.ReLU(inplace=True)]
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(sizes[-1], 2))


class Swish(torch.autograd.Function):
    """``x * sigmoid(x)``, which keeps only `x` for the backward pass."""

    @staticmethod
    def forward(_: object, x: Tensor) -> Tensor:  # type: ignore[override]
        return x * torch.sigmoid(x)


class MBConv(nn.Module):
    """EfficientNet-PyTorch's block: wide, depthwise, squeezed and excited, narrow; pads of its own."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int, wider: int) -> None:
        super().__init__()
        width, squeezed = inputs * wider, max(1, inputs // 4)
        self.wide = nn.Sequential(nn.Identity(), _conv(inputs, width, 1), nn.BatchNorm2d(width)) if wider > 1 else None
        pad: nn.Module = nn.ZeroPad2d(size // 2)
        depthwise = nn.Conv2d(width, width, size, stride, groups=width, bias=False)
        self.deep = nn.Sequential(pad, depthwise, nn.BatchNorm2d(width))
        self.squeeze = nn.Sequential(nn.Identity(), nn.Conv2d(width, squeezed, 1))
        self.excite = nn.Sequential(nn.Identity(), nn.Conv2d(squeezed, width, 1))
        self.narrow = nn.Sequential(nn.Identity(), _conv(width, outputs, 1), nn.BatchNorm2d(outputs))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = x if self.wide is None else Swish.apply(self.wide(x))
        y = Swish.apply(self.deep(y))
        weights = Swish.apply(self.squeeze(F.adaptive_avg_pool2d(y, 1)))
        y = self.narrow(torch.sigmoid(self.excite(weights)) * y)
        return y + x if self.adds else y


class EfficientNetB0(nn.Module):
    """EfficientNet-B0 as lukemelas/EfficientNet-PyTorch writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(3, 32, 3, 2, bias=False), nn.BatchNorm2d(32))
        blocks, inputs = list[nn.Module](), 32
        for wider, outputs, count, stride, size in (
            (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3),
            (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3),
        ):  # fmt: skip
            for number in range(count):
                blocks.append(MBConv(inputs, outputs, size, 1 if number else stride, wider))
                inputs = outputs
        self.blocks = nn.ModuleList(blocks)
        self.last = nn.Sequential(nn.Identity(), _conv(320, 1280, 1), nn.BatchNorm2d(1280))
        self.pool, self.drop, self.head = nn.AdaptiveAvgPool2d(1), nn.Dropout(0.2), nn.Linear(1280, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = Swish.apply(self.stem(x))
        for block in self.blocks:
            x = block(x)
        x = self.pool(Swish.apply(self.last(x)))
        return self.head(self.drop(x.flatten(1)))


class Encoder(nn.Module):
    """A layer of a vision transformer; attention fused (timm from 2023) or by two products and a softmax."""

    def __init__(self, width: int, heads: int, *, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.unbind(0)
        if self.fused:
            seen = F.scaled_dot_product_attention(query, key, value)
        else:
            seen = ((query @ key.transpose(-2, -1)) * (width // self.heads) ** -0.5).softmax(-1) @ value
        x = x + self.project(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.shrink(F.gelu(self.grow(self.norm2(x))))


class ViT(nn.Module):
    """A vision transformer on patches of 16×16."""

    def __init__(self, width: int, depth: int, heads: int, size: int = 224, *, fused: bool = True) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, (size // 16) ** 2 + 1, width))
        self.layers = nn.Sequential(*(Encoder(width, heads, fused=fused) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(x.shape[0], -1, -1), x), 1) + self.positions
        return self.head(self.norm(self.layers(x))[:, 0])


class ConvNeXtBlock(nn.Module):
    """7×7 depthwise, and two linear layers on channels last."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.conv(x).permute(0, 2, 3, 1))
        y = self.shrink(F.gelu(self.grow(y))).permute(0, 3, 1, 2)
        return y * self.gamma.reshape(1, -1, 1, 1) + x


class Norm2d(nn.LayerNorm):
    """Layer norm of the channels of an image."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """ConvNeXt on images of 224×224."""

    def __init__(self, counts: tuple[int, ...], width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 4), Norm2d(width)]
        for stage, count in enumerate(counts):
            if stage:
                layers += [Norm2d(width), nn.Conv2d(width, 2 * width, 2, 2)]
                width *= 2
            layers += [ConvNeXtBlock(width) for _ in range(count)]
        self.body = nn.Sequential(*layers)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(F.adaptive_avg_pool2d(self.body(x), 1).flatten(1)))


NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "resnet18": partial(ResNet, (2, 2, 2, 2), deep=False),
    "resnet34": partial(ResNet, (3, 4, 6, 3), deep=False),
    "resnet50": partial(ResNet, (3, 4, 6, 3)),
    "resnet101": partial(ResNet, (3, 4, 23, 3)),
    "wideresnet50": partial(ResNet, (3, 4, 6, 3), base=128),
    "resnext50": partial(ResNet, (3, 4, 6, 3), groups=32, base=4),
    "resnext101": partial(ResNet, (3, 4, 23, 3), groups=32, base=4),
    "vgg16": VGG16,
    "densenet121": DenseNet121,
    "mobilenetv2": MobileNetV2,
    "mobilenetv1-0.25": partial(MobileNetV1, 0.25),
    "mobilenetv1-0.5": partial(MobileNetV1, 0.5),
    "efficientnet-b0": EfficientNetB0,
    "vit-s16": partial(ViT, 384, 12, 6),
    "vit-b16": partial(ViT, 768, 12, 12),
    "vit-b16-384": partial(ViT, 768, 12, 12, 384),
    "vit-l16": partial(ViT, 1024, 24, 16),
    "convnext-t": partial(ConvNeXt, (3, 3, 9, 3), 96),
    "convnext-b": partial(ConvNeXt, (3, 3, 27, 3), 128),
    "convnext-l": partial(ConvNeXt, (3, 3, 27, 3), 192),
}
