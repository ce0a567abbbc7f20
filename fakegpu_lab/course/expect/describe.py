"""Describes values and tensors in plain words, for the "expected" and "found" of an outcome."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

_TIME = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s)\s*")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def seconds(time: str | float) -> float:
    """Read a time: seconds, or a number with a unit.

    >>> seconds("2.5 ms"), seconds(0.1)
    (0.0025, 0.1)
    """
    if isinstance(time, str):
        match = _TIME.fullmatch(time)
        if match is None:
            raise FakeGpuError(f"{time!r} is not a time: write seconds, or a number with ns, µs, ms or s.")
        return float(match[1]) * _SECONDS[match[2]]
    return float(time)


def times(count: float) -> str:
    """Write how often.

    >>> times(0), times(1), times(12)
    ('never', 'once', '12 times')
    """
    return "never" if count == 0 else "once" if count == 1 else f"{count:,} times"


def value(thing: Any) -> str:
    """Describe a value briefly; a large tensor by its shape, dtype and device."""
    import torch

    if thing is Ellipsis:
        return "still `...`"
    if isinstance(thing, torch.nn.Module):
        return f"a {type(thing).__name__}"
    if isinstance(thing, torch.Tensor):
        summary = (
            f"a tensor of shape {tuple(thing.shape)}, {str(thing.dtype).removeprefix('torch.')}, on {thing.device}"
        )
        if thing.numel() > 8 or thing.device.type == "meta":
            return summary
        try:
            return f"{thing.detach().cpu().tolist()} ({summary})"
        except (RuntimeError, FakeGpuError):
            return summary
    text = repr(thing)
    return text if len(text) <= 120 else f"{text[:119]}…"


def tensors(thing: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor in a value, with a name; in a module, its parameters and buffers; in an optimizer, its state."""
    import torch

    if isinstance(thing, torch.Tensor):
        yield name, thing
    elif isinstance(thing, torch.nn.Module):
        for key, tensor in (*thing.named_parameters(), *thing.named_buffers()):
            yield f"{name}.{key}" if name else key, tensor
    elif isinstance(thing, torch.optim.Optimizer):
        for place, state in enumerate(thing.state.values()):
            for key, tensor in state.items():
                if isinstance(tensor, torch.Tensor) and tensor.dim():  # the step counter rightly stays on the CPU
                    yield f"state {place}: {key}", tensor
    elif isinstance(thing, dict):
        for key, item in thing.items():
            yield from tensors(item, f"{name}[{key!r}]" if name else str(key))
    elif isinstance(thing, (list, tuple, set)):
        for place, item in enumerate(thing):
            yield from tensors(item, f"{name}[{place}]")


def listed(names: list[str], most: int = 4) -> str:
    """Write names; if there are more than `most`, the first.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    shown = [name for name in names[:most] if name]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest and shown else "")
