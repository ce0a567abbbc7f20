"""The number format in which a product is computed: of its operands, or TF32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.hardware.device import Device

fp32_precision: Callable[[str, str], str] = torch._C._get_fp32_precision_getter

_FORMATS = {
    torch.float16: "fp16", torch.bfloat16: "bf16", torch.float64: "fp64", torch.complex128: "fp64",
    torch.complex64: "fp32", torch.int8: "int8", torch.uint8: "int8",
    torch.float8_e4m3fn: "fp8", torch.float8_e5m2: "fp8",
}  # fmt: skip


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
