"""What convolutions cost: their time, and the workspace that cuDNN takes for copies of its operands.

Tensor cores need channels last (cuDNN's developer guide, "Tensor Core operations"). If the channels of an operand come
first, cuDNN copies it (``nchwToNhwcKernel``) to its workspace before its own kernel, and the result back after it. A
bias is added by a kernel of PyTorch's own afterwards (ATen/native/Convolution.cpp, ``output.add_(reshape_bias(…))``),
unless the convolution is depthwise.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.cost.work import Work, format_of, fp32_precision
from fakegpu_lab.hardware.first_use import CUDNN, NEW_CONVOLUTION_NS
from fakegpu_lab.hardware.time.clock import here
from fakegpu_lab.hardware.time.efficiency import WINOGRAD
from fakegpu_lab.hardware.time.efficiency import convolutions as efficiency_of
from fakegpu_lab.hardware.time.roofline import DIRECT_EFFICIENCY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.hardware.device import Device

_ALIGNMENT = 512
"""Bytes to which cuDNN rounds each copy up; its workspace has as many more."""

_ALGORITHMS = 10
"""How many algorithms ``torch.backends.cudnn.benchmark`` tries: the default of ``benchmark_limit``."""

_TURNED = 4e9
"""Elements per second that a multiprocessor turns around in its shared memory, in kernels that change the layout: this
comes on top of reading and writing them. (Chosen on the networks in published.csv with channels first: from VGG, whose
convolutions are all copied, to ResNets, where most are pointwise and are not.)"""


def _convolved(
    device: Device, source: Any, weight: Any, image: Any, groups: int, nbytes: int, *, winograd: bool
) -> Work:
    """An implicit matrix product, output positions by channels by window; `image` gives the output positions.

    A depthwise convolution (one filter for each channel) is not a product: PyTorch's own direct kernel computes it.
    """
    positions = image.shape[0] * prod(image.shape[2:])
    window = prod(weight.shape[1:])
    channels = weight.shape[0] // groups
    dtype = source.dtype
    roofline = device.roofline
    fmt = format_of(dtype, device, "conv")
    flops = 2 * positions * window * weight.shape[0]
    if _depthwise(weight, groups):
        direct = "fp64" if dtype.itemsize > 4 else "fp32"
        ns = roofline.arithmetic(direct, flops, nbytes, DIRECT_EFFICIENCY)
        return Work(ns, flops, nbytes, roofline.share(positions * weight.shape[0]))
    row = 16 // min(dtype.itemsize, 16)
    efficiency = efficiency_of(device.profile, fmt)
    if winograd and fmt == "fp32":
        efficiency *= WINOGRAD
    aligned = fmt in ("fp32", "fp64") or not (channels % row or weight.shape[1] % row) or weight.shape[1] < row
    ns = roofline.gemm(
        fmt, positions, channels, window, groups, nbytes=nbytes, efficiency=efficiency, alignment=16 if aligned else 4
    )
    return Work(ns, flops, nbytes, roofline.gemm_share(positions, channels, groups))


def _depthwise(weight: Any, groups: int) -> bool:
    return weight.shape[1] == 1 < groups  # type: ignore[no-any-return]


def _winograd(weight: Any, stride: Sequence[int], dilation: Sequence[int], groups: int) -> bool:
    """Whether Winograd's algorithm can compute it."""
    return weight.shape[2:] == (3, 3) and groups == 1 and all(n == 1 for n in (*stride, *dilation))


def _pointwise(weight: Any, stride: Sequence[int], groups: int) -> bool:
    """Whether a convolution is a product of matrices in either layout: a window of one position, which moves by one.

    With channels first, cuDNN takes cuBLAS's kernels for it (``ampere_fp16_s16816gemm_*``) and copies nothing.
    """
    return groups == 1 and prod(weight.shape[2:]) == 1 and all(n == 1 for n in stride)


def _copied(device: Device, operands: Sequence[Any], result: Any) -> list[int]:
    """The bytes of each operand, and of the result, that cuDNN copies because its channels come first.

    The result, too, is copied if it has 16 bits, and on Blackwell. (Of a 3×3 convolution of 64 channels on 2 images of
    128×128, an RTX 3090 Ti takes 8,536,576 bytes in TF32 and 8,462,848 in BF16; a Blackwell card takes 16,925,184 in
    TF32.)
    """
    first = operands[0]
    if format_of(first.dtype, device, "conv") in ("fp32", "fp64", "fp64_tensor") or first.dim() != 4:
        return []
    if first.is_contiguous(memory_format=torch.channels_last):
        return []
    found = [t.nbytes for t in operands if not t.is_contiguous(memory_format=torch.channels_last)]
    if first.dtype.itemsize < 4 or device.profile.compute_capability >= (10, 0):
        found.append(result.nbytes)
    return found


def _rearranged(device: Device, copied: Sequence[int], itemsize: int) -> tuple[int, int]:
    """Nanoseconds and bytes of kernels that change layouts.

    With channels first, a step in mixed precision is a quarter slower on a V100 (PaddlePaddle's pull request 20597
    measured 0.195 s against 0.16 s for ResNet-50), and one of VGG, where every convolution needs them, by 70%.
    """
    moved = 2 * sum(copied)
    turned = round(sum(copied) / itemsize / (device.profile.sm_count * _TURNED) * 1e9)
    return sum(device.roofline.streaming(2 * nbytes) for nbytes in copied) + turned, moved


def convolution(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
    """The forward pass of a convolution, also of a transposed one."""
    source, weight = args[0], args[1]
    transposed, groups = args[6], args[8]
    nbytes += result.nbytes
    key = (
        source.shape, weight.shape, result.shape, source.stride(), weight.stride(), source.dtype,
        fp32_precision("cuda", "conv"),
        transposed, groups, nbytes, args[2] is None, *args[3], *args[5],
    )  # fmt: skip
    work: Work | None = device.roofline.known.get(key)
    if work is None:
        winograd = _winograd(weight, args[3], args[5], groups)
        one = _convolved(
            device, source, weight, source if transposed else result, groups, nbytes, winograd=winograd
        )  # fmt: skip
        ns, moved = _rearranged(device, _forward_copies(device, args, result), source.dtype.itemsize)
        if args[2] is not None and not _depthwise(weight, groups):
            ns, moved = ns + device.roofline.streaming(2 * result.nbytes), moved + 2 * result.nbytes
        work = Work(one.ns + ns, one.flops, one.nbytes + moved, one.share)
        _first(device, weight, groups, work)
        device.roofline.remember(key, work)
    return work


def _forward_copies(device: Device, args: Sequence[Any], result: Any) -> list[int]:
    """What cuDNN copies for the forward pass."""
    source, weight, groups = args[0], args[1], args[8]
    if _depthwise(weight, groups) or _pointwise(weight, args[3], groups):
        return []
    return _copied(device, (source, weight), result)


def convolution_backward(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
    """The gradients that the mask requests; each is a convolution."""
    grad, source, weight = args[0], args[1], args[2]
    transposed, groups, mask = args[7], args[9], args[10]
    key = (
        grad.shape, source.shape, weight.shape, grad.stride(), source.stride(), weight.stride(), source.dtype,
        fp32_precision("cuda", "conv"), transposed, groups, *mask, nbytes, *args[4], *args[6],
    )  # fmt: skip
    work: Work | None = device.roofline.known.get(key)
    if work is None:
        work = _backward(device, args, nbytes)
        for _ in range(int(mask[0]) + int(mask[1])):
            _first(device, weight, groups, work)
        device.roofline.remember(key, work)
    return work


def _first(device: Device, weight: Any, groups: int, work: Work) -> None:
    """Charge the host for a convolution that is new to the device, unless it is depthwise: PyTorch computes those.

    ``torch.backends.cudnn.benchmark`` runs each algorithm twice, waits, and then empties PyTorch's cache
    (get_plans_from_find in aten/src/ATen/native/cudnn/Conv_v8.cpp). Simplified: all are as fast as the best, and take
    no workspace.
    """
    if _depthwise(weight, groups) or not torch.backends.cudnn.enabled:
        return
    device.first_uses.library(CUDNN)
    device.first_uses.spend(NEW_CONVOLUTION_NS, "a convolution of this shape")
    if torch.backends.cudnn.benchmark:
        device.hold(here.host, device.end, "torch.backends.cudnn.benchmark")
        device.first_uses.spend(2 * _ALGORITHMS * work.ns, "a convolution of this shape: cudnn.benchmark")
        device.allocator.empty_cache()


def _backward(device: Device, args: Sequence[Any], nbytes: int) -> Work:
    grad, source, weight = args[0], args[1], args[2]
    transposed, groups, mask = args[7], args[9], args[10]
    winograd = _winograd(weight, args[4], args[6], groups)
    one = _convolved(device, source, weight, source if transposed else grad, groups, nbytes, winograd=winograd)
    count = int(mask[0]) + int(mask[1])
    ns = device.roofline.streaming(grad.nbytes) if mask[2] else 0
    moved = 0
    for copied in _backward_copies(device, args):
        more = _rearranged(device, copied, source.dtype.itemsize)
        ns, moved = ns + more[0], moved + more[1]
    if mask[1] and _depthwise(weight, groups):
        # A block for each number of the weight reads all images (conv_depthwise2d_grad_weight_kernel in
        # aten/src/ATen/native/cuda/DepthwiseConv2d.cu). The blocks of a window run together: all but one find L2 full.
        again = (prod(weight.shape[2:]) - 1) * (grad.nbytes + source.nbytes)
        ns, moved = ns + round(again * device.roofline.ns_per_cached_byte), moved + again
    ns = max(one.ns * count + ns, device.roofline.floor)
    return Work(ns, one.flops * count, nbytes * count + moved, one.share)


def _backward_copies(device: Device, args: Sequence[Any]) -> list[list[int]]:
    """What cuDNN copies for each gradient that the mask requests: of the input, of the weight.

    The gradient of a pointwise convolution's weight is a sum over the images: no single product with channels first.
    """
    grad, source, weight, mask = args[0], args[1], args[2], args[10]
    if _depthwise(weight, args[9]):
        return []
    pointwise = _pointwise(weight, args[4], args[9])
    of_input = [_copied(device, (grad, weight), source)] if mask[0] and not pointwise else []
    return of_input + ([_copied(device, (source, grad), weight)] if mask[1] else [])


def workspaces(device: Device, args: Sequence[Any], result: Any) -> list[int]:
    """The bytes of the workspace that cuDNN takes for a convolution."""
    return _workspaces([_forward_copies(device, args, result)]) if args[0].dim() == 4 else []


def backward_workspaces(device: Device, args: Sequence[Any], result: Any) -> list[int]:
    """The bytes of the workspaces that cuDNN takes one after another for the backward pass of a convolution."""
    return _workspaces(_backward_copies(device, args)) if args[0].dim() == 4 else []


def _workspaces(found: list[list[int]]) -> list[int]:
    return [sum(-(-n // _ALIGNMENT) * _ALIGNMENT for n in copied) + _ALIGNMENT for copied in found if copied]
