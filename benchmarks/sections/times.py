"""Seconds on the device's own clock (CUDA events): launches, kernels by size and dtype, copies; kernels by name."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from recording.common import DEVICE, attempt, settle
from torch.nn import functional as F  # noqa: N812 - its name everywhere

Call = Callable[[], Any]


class Clock:
    """Times calls: the median of a few batches, each long enough for the clock's half microsecond."""

    def __init__(self, quick: bool) -> None:
        self.batches, self.target = (1, 0.0) if quick else (5, 2e-3)

    def __call__(self, call: Call) -> dict[str, float]:
        """Seconds a call, and how many calls a batch had."""
        call()
        call()
        calls = 1
        if self.target:
            calls = max(1, min(1000, int(self.target / max(self._batch(call, 3) / 3, 1e-7))))
        seconds = statistics.median(self._batch(call, calls) / calls for _ in range(self.batches))
        return {"seconds": seconds, "calls": calls}

    @staticmethod
    def _batch(call: Call, calls: int) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        for _ in range(calls):
            call()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 1e3


def _launches(clock: Clock) -> dict[str, Any]:
    one = torch.ones(1, device=DEVICE)
    graph_free = [torch.ones(1, device=DEVICE) for _ in range(10)]
    return {
        "launch_add_": attempt(lambda: clock(lambda: one.add_(1))),
        "launch_add": attempt(lambda: clock(lambda: one + 1)),
        "launch_foreach_10": attempt(lambda: clock(lambda: torch._foreach_add_(graph_free, 1.0))),
        "launch_empty": attempt(lambda: clock(lambda: torch.empty(1, device=DEVICE))),
        "item": attempt(lambda: clock(one.item)),
    }


def _elementwise(clock: Clock, sizes: list[int]) -> dict[str, Any]:
    found = {}
    for n in sizes:
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.ones(n, device=DEVICE, dtype=dtype)
            out, kind = torch.empty_like(x), f"{n}_{str(dtype)[6:]}"
            calls: dict[str, Call] = {
                "add": lambda x=x, out=out: torch.add(x, x, out=out),
                "mul_scalar": lambda x=x, out=out: torch.mul(x, 2.0, out=out),
                "exp": lambda x=x, out=out: torch.exp(x, out=out),
                "gelu": lambda x=x: F.gelu(x),
                "sum": lambda x=x: x.sum(),
                "amax": lambda x=x: x.amax(),
                "fill": lambda out=out: out.fill_(1),
                "clone": lambda x=x: x.clone(),
                "to_half": lambda x=x: x.to(torch.float16),
            }
            found.update({f"{name}_{kind}": attempt(lambda c=call: clock(c)) for name, call in calls.items()})
            del x, out, calls
    return found


def _matmuls(clock: Clock, sizes: list[int]) -> dict[str, Any]:
    found = {}
    kinds = [
        ("float32", torch.float32, False),
        ("tf32", torch.float32, True),
        ("float16", torch.float16, False),
        ("bfloat16", torch.bfloat16, False),
        ("float64", torch.float64, False),
    ]
    before = torch.backends.cuda.matmul.allow_tf32
    for n in sizes:
        for name, dtype, tf32 in kinds:
            if dtype is torch.float64 and n > 4096:
                continue
            torch.backends.cuda.matmul.allow_tf32 = tf32
            a = torch.ones(n, n, device=DEVICE, dtype=dtype)
            found[f"matmul_{n}_{name}"] = attempt(lambda a=a: clock(lambda: a @ a))
    torch.backends.cuda.matmul.allow_tf32 = before
    for rows in (1, 64) if len(sizes) > 2 else (1,):
        thin = torch.ones(rows, 4096 if len(sizes) > 2 else 256, device=DEVICE, dtype=torch.bfloat16)
        weight = torch.ones(thin.shape[1], thin.shape[1], device=DEVICE, dtype=torch.bfloat16)
        found[f"linear_{rows}x{thin.shape[1]}_bfloat16"] = attempt(lambda t=thin, w=weight: clock(lambda: t @ w))
    return found


def _layers(clock: Clock, quick: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    rows, columns = (64, 128) if quick else (8192, 4096)
    batch, extent, channels = (1, 16, 8) if quick else (32, 56, 64)
    length, width = (64, 32) if quick else (2048, 64)
    for dtype in (torch.float32, torch.float16):
        kind = str(dtype)[6:]
        x = torch.ones(rows, columns, device=DEVICE, dtype=dtype)
        image = torch.ones(batch, channels, extent, extent, device=DEVICE, dtype=dtype)
        filters = torch.ones(channels, channels, 3, 3, device=DEVICE, dtype=dtype)
        last = image.to(memory_format=torch.channels_last)
        heads = torch.ones(2, 8, length, width, device=DEVICE, dtype=dtype)
        tokens = torch.arange(rows, device=DEVICE)
        calls: dict[str, Call] = {
            "softmax": lambda x=x: x.softmax(-1),
            "layer_norm": lambda x=x: F.layer_norm(x, (columns,)),
            "sum_rows": lambda x=x: x.sum(-1),
            "sum_columns": lambda x=x: x.sum(0),
            "transpose": lambda x=x: x.t().contiguous(),
            "dropout": lambda x=x: F.dropout(x, 0.1),
            "sort": lambda x=x: x.sort(-1),
            "topk": lambda x=x: x.topk(8),
            "cumsum": lambda x=x: x.cumsum(-1),
            "embedding": lambda x=x, t=tokens: F.embedding(t, x),
            "index_add": lambda x=x, t=tokens: x.index_add(0, t, x),
            "cross_entropy": lambda x=x, t=tokens: F.cross_entropy(x, t % columns),
            "conv2d": lambda i=image, f=filters: F.conv2d(i, f, padding=1),
            "conv2d_channels_last": lambda i=last, f=filters: F.conv2d(i, f, padding=1),
            "batch_norm": lambda i=image: F.batch_norm(i, None, None, training=True),
            "max_pool2d": lambda i=image: F.max_pool2d(i, 2),
            "sdpa": lambda h=heads: F.scaled_dot_product_attention(h, h, h),
            "sdpa_causal": lambda h=heads: F.scaled_dot_product_attention(h, h, h, is_causal=True),
        }
        found.update({f"{name}_{kind}": attempt(lambda c=call: clock(c)) for name, call in calls.items()})
        del x, image, last, filters, heads, calls
    found["shapes"] = {"matrix": [rows, columns], "image": [batch, channels, extent, extent], "heads": [length, width]}
    return found


def _copies(clock: Clock, sizes: list[int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for n in sizes:
        device = torch.empty(n, dtype=torch.uint8, device=DEVICE)
        other = torch.empty_like(device)
        pageable = torch.zeros(n, dtype=torch.uint8)
        calls: dict[str, Call] = {
            "h2d_pageable": lambda d=device, p=pageable: d.copy_(p),
            "d2h_pageable": lambda d=device, p=pageable: p.copy_(d),
            "d2d": lambda d=device, o=other: o.copy_(d),
        }
        found.update({f"{name}_{n}": attempt(lambda c=call: clock(c)) for name, call in calls.items()})
        for name, both in (
            ("h2d_pinned", (True, False)),
            ("h2d_pinned_async", (True, True)),
            ("d2h_pinned", (False, False)),
        ):
            found[f"{name}_{n}"] = attempt(lambda d=device, b=both, n=n: _pinned(clock, d, n, *b))
    return found


def _pinned(clock: Clock, device: torch.Tensor, n: int, up: bool, non_blocking: bool) -> dict[str, float]:
    host = torch.zeros(n, dtype=torch.uint8).pin_memory()
    source, target = (host, device) if up else (device, host)
    return clock(lambda: target.copy_(source, non_blocking=non_blocking))


def _kernels() -> dict[str, Any]:
    """Seconds of single kernels, by name, as the profiler sees them: without launch gaps."""
    x = torch.ones(1024, 1024, device=DEVICE)
    calls: dict[str, Call] = {
        "add": lambda: x + x,
        "matmul": lambda: x @ x,
        "softmax": lambda: x.softmax(-1),
        "layer_norm": lambda: F.layer_norm(x, (1024,)),
        "sum": x.sum,
        "gelu": lambda: F.gelu(x),
    }
    found = {}
    for name, call in calls.items():
        call()
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            for _ in range(10):
                call()
            torch.cuda.synchronize()
        events = [e for e in profiler.key_averages() if getattr(e, "self_device_time_total", 0)]
        found[name] = {
            "seconds": sum(e.self_device_time_total for e in events) / 10 / 1e6,
            "kernels": {e.key[:120]: e.count for e in events},
        }
    return found


def record(quick: bool) -> dict[str, Any]:
    """Record the times; `quick` only shows that each can be taken."""
    clock = Clock(quick)
    torch.manual_seed(0)
    found: dict[str, Any] = {
        **_launches(clock),
        **_elementwise(clock, [1000] if quick else [10**k for k in range(3, 9)]),
        **_matmuls(clock, [256] if quick else [256, 512, 1024, 2048, 4096, 8192]),
        **_layers(clock, quick),
        **_copies(clock, [4, 2**16] if quick else [4, 2**10, 2**16, 2**20, 2**24, 2**28]),
    }
    settle()
    found["profiled"] = attempt(_kernels)
    settle()
    return found
