"""`Work`, what one kernel costs, and how to count the bytes and elements that it moves.

Most ops stream: they read their operands once, write their results once, and take the time that memory takes
(`streaming`). `estimators` has the others, `matrix_products` the products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fakegpu_lab.driver.base.device_memory import storage_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.hardware.device import Device

    Estimator = Callable[["Device", Sequence[Any], Any, int], "Work"]

    Launch = tuple[int, float, int, int]
    """A kernel's nanoseconds, share, FLOPs and bytes, in the order in which `clock.launch` takes them."""
    from collections.abc import Callable


_Tensor, _strided = torch.Tensor, torch.strided


class Work(NamedTuple):
    """What one kernel costs.

    Attributes
    ----------
    ns
        Its duration if it runs alone on the GPU.
    flops
        Floating-point operations, a multiply-add counted as two.
    nbytes
        Bytes read and written.
    share
        The fraction of the GPU that it fills.
    """

    ns: int
    flops: int
    nbytes: int
    share: float = 1.0


def nbytes_of(value: Any) -> int:
    """The bytes of a tensor, or of all tensors in a list or tuple of results."""
    if isinstance(value, torch.Tensor):
        return value.nbytes if value.layout is torch.strided else storage_bytes(value)
    if isinstance(value, (list, tuple)):
        total = 0
        for item in value:
            if item.__class__ is _Tensor and item.layout is _strided:
                total += item.nbytes
            elif item is not None:
                total += nbytes_of(item)
        return total
    return 0


LARGE = 1 << 18
"""From this many bytes on, `read_by` looks for expanded operands; smaller ones do not matter for the time."""


def read_by(args: Sequence[Any], nbytes: int) -> int:
    """The bytes that a kernel reads of operands with `nbytes` bytes: an expanded one is in memory only once."""
    for argument in args:
        if isinstance(argument, torch.Tensor):
            if argument.layout is torch.strided and argument.nbytes > LARGE and not argument.is_contiguous():
                extent = 1 + sum((n - 1) * s for n, s in zip(argument.shape, argument.stride(), strict=True))
                nbytes -= max(argument.nbytes - extent * argument.element_size(), 0)
        elif isinstance(argument, (list, tuple)) and argument and isinstance(argument[0], torch.Tensor):
            nbytes = read_by(argument, nbytes)
    return nbytes


def numel_of(value: Any) -> int:
    """The elements of a tensor, or of all tensors in a list or tuple."""
    if isinstance(value, torch.Tensor):
        return value.numel()
    if isinstance(value, (list, tuple)):
        total = 0
        for item in value:
            total += item.numel() if item.__class__ is _Tensor else numel_of(item)
        return total
    return 0


def streaming(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
    """One pass over operands (`nbytes` bytes) and results."""
    roofline = device.roofline
    if result.__class__ is torch.Tensor and result.layout is torch.strided:
        moved, elements = nbytes + result.nbytes, result.numel()
    else:
        moved, elements = nbytes + nbytes_of(result), numel_of(result)
    return Work(roofline.streaming(moved), elements, moved, roofline.share(max(elements, nbytes // 4)))


fp32_precision: Callable[[str, str], str] = torch._C._get_fp32_precision_getter

_FORMATS = {
    torch.float16: "fp16", torch.bfloat16: "bf16", torch.float64: "fp64", torch.complex128: "fp64",
    torch.complex64: "fp32", torch.int8: "int8", torch.uint8: "int8",
    torch.float8_e4m3fn: "fp8", torch.float8_e5m2: "fp8",
}  # fmt: skip


def scalar_format(dtype: torch.dtype) -> str:
    """The format in which what is no product of matrices is computed."""
    return "fp64" if dtype in (torch.float64, torch.complex128) else "fp32"


def format_of(dtype: torch.dtype, device: Device, what: str = "matmul") -> str:
    """The number format in which a product of dtype `dtype` is computed.

    Parameters
    ----------
    what
        ``"matmul"``, ``"conv"`` or ``"rnn"``: which TF32 switch counts for float32.
    """
    if dtype is torch.float32:
        if device.profile.peak_flops.tf32 is None:
            return "fp32"
        return "tf32" if fp32_precision("cuda", what) in ("tf32", "bf16") else "fp32"
    fmt = _FORMATS.get(dtype, "fp32")
    if fmt == "fp64" and device.profile.peak_flops.fp64_tensor is not None:
        return "fp64_tensor"
    return fmt
