"""Weights of 4 bits for CUDA's tensor cores: `_convert_weight_to_int4pack` and `_weight_int4pack_mm`.

The layout is CUDA's own, bit for bit (aten/src/ATen/native/cuda/int4mm.cu, `matrix_to_m16n8k16_Bint4_layout`): tiles of
8 rows, in each of them groups of `inner` tiles of 16 columns, and in each of these one row of words for each of the 32
lanes of a warp. A word has the eight values that a lane needs of two tiles.
"""

from __future__ import annotations

import torch
from torch.nn.functional import pad

_TILE_ROWS, _TILE_COLUMNS, _LANES = 8, 16, 32


def _expect(condition: bool, text: str) -> None:
    """``TORCH_CHECK(text)`` without a message."""
    if not condition:
        raise RuntimeError(
            f"Expected {text} to be true, but got false.  (Could this error message be improved?  If so, please "
            "report an enhancement request to PyTorch.)"
        )


def pack(weight: torch.Tensor, inner: int) -> torch.Tensor:
    """``aten::_convert_weight_to_int4pack``: two values in a byte, the first in its high half, become words."""
    _expect(weight.dim() == 2, "in.dim() == 2")
    _expect(weight.dtype is torch.uint8, "in.dtype() == at::kByte")
    _expect(weight.is_contiguous(), "in.is_contiguous()")
    _expect(inner in (2, 4, 8), "innerKTiles == 2 || innerKTiles == 4 || innerKTiles == 8")
    rows, columns = weight.shape[0], weight.shape[1] * 2
    _expect(columns % (inner * _TILE_COLUMNS) == 0, "isEvenDivisor(in.size(1) * 2, innerKTiles * kKTileSize)")
    tiles, groups = -(-rows // _TILE_ROWS), columns // (inner * _TILE_COLUMNS)
    full = pad(weight.long(), (0, 0, 0, tiles * _TILE_ROWS - rows))
    # Of the 16 bytes of a row in two tiles, lane 4·row + l takes the bytes l, l + 4, l + 8 and l + 12.
    lanes = full.view(tiles, _TILE_ROWS, groups, inner // 2, 4, 4).permute(0, 2, 1, 5, 3, 4)
    shifts = 4 * torch.arange(4, device=weight.device)
    words = ((lanes >> 4) << shifts).sum(-1) + ((lanes & 15) << (shifts + 16)).sum(-1)
    return words.to(torch.int32).reshape(tiles, groups, _LANES, inner // 2)


def _unpacked(words: torch.Tensor) -> torch.Tensor:
    """The values of a packed weight, 0 to 15, as a matrix."""
    tiles, groups, _, pairs = words.shape
    shifts = 4 * torch.arange(4, device=words.device)
    lanes = words.long().view(tiles, groups, _TILE_ROWS, 4, pairs, 1)
    both = torch.stack(((lanes >> shifts) & 15, (lanes >> (shifts + 16)) & 15), -1)
    return both.permute(0, 2, 1, 4, 5, 3, 6).reshape(tiles * _TILE_ROWS, groups * pairs * 2 * _TILE_COLUMNS)


def product(
    matrix: torch.Tensor, packed: torch.Tensor, group_size: int, scales_and_zeros: torch.Tensor
) -> torch.Tensor:
    """``aten::_weight_int4pack_mm``: the weight becomes bfloat16, as in the kernel; the sums are float32."""
    k = matrix.shape[1] if matrix.dim() == 2 else 0
    inner = packed.shape[3] * 2 if packed.dim() == 4 else 0
    _expect(inner in (2, 4, 8), "B_innerKTiles == 2 || B_innerKTiles == 4 || B_innerKTiles == 8")
    _expect(matrix.dtype is torch.bfloat16, "A.dtype() == at::kBFloat16")
    _expect(matrix.is_contiguous(), "A.is_contiguous()")
    _expect(matrix.dim() == 2, "A.dim() == 2")
    _expect(packed.dtype is torch.int32, "B.dtype() == at::kInt")
    _expect(packed.is_contiguous(), "B.is_contiguous()")
    _expect(packed.shape[1] == k // (inner * _TILE_COLUMNS), "B.size(1) == k / (B_innerKTiles * kKTileSize)")
    _expect(packed.shape[2] == _LANES, "B.size(2) == 32")
    sizes = "qGroupSize == 32 || qGroupSize == 64 || qGroupSize == 128 || qGroupSize == 256"
    _expect(group_size in (32, 64, 128, 256), sizes)
    n, groups = packed.shape[0] * _TILE_ROWS, k // group_size
    _expect(scales_and_zeros.dim() == 3, "qScaleAndZeros.dim() == 3")
    divides = "kTiles * kKTileSize >= qGroupSize && isEvenDivisor(kTiles * kKTileSize, qGroupSize)"
    _expect(groups > 0 and k % group_size == 0, divides)
    _expect(scales_and_zeros.shape[1] == n, "qScaleAndZeros.size(1) == n")
    _expect(scales_and_zeros.shape[2] == 2, "qScaleAndZeros.size(2) == 2")
    scales, zeros = scales_and_zeros.float().transpose(0, 1).unbind(-1)
    values = _unpacked(packed).view(n, groups, group_size) - 8
    weight = (values * scales.unsqueeze(-1) + zeros.unsqueeze(-1)).to(matrix.dtype).view(n, k)
    return (matrix.float() @ weight.float().t()).to(matrix.dtype)
