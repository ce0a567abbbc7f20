"""Memory that libraries take for themselves: what appears at the first matmul, convolution, RNN, FFT, solve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from recording.common import DEVICE, attempt, memory, settle
from torch.nn import functional as F  # noqa: N812 - its name everywhere

if TYPE_CHECKING:
    from collections.abc import Callable


def _first(call: Callable[[], Any]) -> dict[str, int]:
    """Bytes over the result that a call leaves behind, and needs while it runs."""
    settle()
    before, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    free = torch.cuda.mem_get_info()[0]
    result = call()
    torch.cuda.synchronize()
    figures = memory()
    results = result if isinstance(result, tuple) else (result,)
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in results if t.numel()}
    own = sum((nbytes + 511) // 512 * 512 for nbytes in storages.values())
    return {
        "kept": figures["allocated"] - before - own,
        "peak": figures["peak_allocated"] - before - own,
        "outside_torch": free - torch.cuda.mem_get_info()[0] - (figures["reserved"] - reserved),
    }


def _matmuls() -> dict[str, Any]:
    found = {}
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        a = torch.ones(256, 256, device=DEVICE, dtype=dtype)
        bias = torch.ones(256, device=DEVICE, dtype=dtype)
        name = str(dtype).removeprefix("torch.")
        found[f"mm_{name}"] = attempt(lambda a=a: _first(lambda: a @ a))
        found[f"linear_{name}"] = attempt(lambda a=a, bias=bias: _first(lambda: F.linear(a, a, bias)))
        found[f"bmm_{name}"] = attempt(lambda a=a: _first(lambda: a[None] @ a[None]))
        found[f"mv_{name}"] = attempt(lambda a=a: _first(lambda: a @ a[0]))
    return found


def _two_streams() -> dict[str, int]:
    a = torch.ones(256, 256, device=DEVICE)
    settle()
    before = torch.cuda.memory_allocated()
    a @ a
    one = torch.cuda.memory_allocated() - before
    with torch.cuda.stream(torch.cuda.Stream()):
        a @ a
    torch.cuda.synchronize()
    return {"one_stream": one, "two_streams": torch.cuda.memory_allocated() - before}


def _convolutions(quick: bool) -> dict[str, Any]:
    shapes = {
        "3x8x3_on_4x32": (4, 3, 32, 8, 3),
        "64x64x3_on_2x128": (2, 64, 128, 64, 3),
        "64x128x1_on_4x56": (4, 64, 56, 128, 1),
        "64x64x3_on_16x56": (16, 64, 56, 64, 3),
        "3x64x7_on_16x224": (16, 3, 224, 64, 7),
    }
    found = {}
    for name, (batch, channels, extent, filters, kernel) in list(shapes.items())[: 1 if quick else None]:
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            for layout in (torch.contiguous_format, torch.channels_last):

                def both(
                    batch: int = batch,
                    channels: int = channels,
                    extent: int = extent,
                    filters: int = filters,
                    kernel: int = kernel,
                    dtype: torch.dtype = dtype,
                    layout: torch.memory_format = layout,
                ) -> dict[str, Any]:
                    x = torch.ones(batch, channels, extent, extent, device=DEVICE, dtype=dtype)
                    w = torch.ones(filters, channels, kernel, kernel, device=DEVICE, dtype=dtype)
                    x, w = x.to(memory_format=layout).requires_grad_(), w.to(memory_format=layout).requires_grad_()
                    y = F.conv2d(x, w, padding=kernel // 2)
                    with torch.no_grad():
                        forward = _first(lambda: F.conv2d(x, w, padding=kernel // 2))
                    ones = torch.ones_like(y)
                    backward = _first(lambda: torch.autograd.grad(y, (x, w), ones, retain_graph=True))
                    return {"forward": forward, "backward": backward}

                kind = f"{str(dtype)[6:]}{'_channels_last' if layout is torch.channels_last else ''}"
                found[f"conv_{name}_{kind}"] = attempt(both)
    return found


def record(quick: bool) -> dict[str, Any]:
    """Record them; this section runs before any other has used cuBLAS or cuDNN."""
    square = torch.eye(64, device=DEVICE)
    lstm = torch.nn.LSTM(64, 64, batch_first=True).to(DEVICE)
    found = {
        **_matmuls(),
        "matmul_on_two_streams": attempt(_two_streams),
        **_convolutions(quick),
        "lstm": attempt(lambda: _first(lambda: lstm(torch.ones(4, 8, 64, device=DEVICE))[0])),
        "fft": attempt(lambda: _first(lambda: torch.fft.fft(square))),
        "solve": attempt(lambda: _first(lambda: torch.linalg.solve(square, square))),
        "svd": attempt(lambda: _first(lambda: tuple(torch.linalg.svd(square)))),
        "sort": attempt(lambda: _first(lambda: tuple(torch.arange(100_000, device=DEVICE).sort()))),
        "cumsum": attempt(lambda: _first(lambda: torch.ones(100_000, device=DEVICE).cumsum(0))),
        "sum": attempt(lambda: _first(lambda: torch.ones(10_000_000, device=DEVICE).sum())),
        "unique": attempt(lambda: _first(lambda: torch.arange(100_000, device=DEVICE).unique())),
        "nonzero": attempt(lambda: _first(lambda: torch.ones(100_000, device=DEVICE).nonzero())),
        "topk": attempt(lambda: _first(lambda: tuple(torch.arange(100_000, device=DEVICE).topk(10)))),
        "masked_select": attempt(lambda: _first(lambda: square[square > 0])),
        "randperm": attempt(lambda: _first(lambda: torch.randperm(100_000, device=DEVICE))),
    }
    settle()
    return found
