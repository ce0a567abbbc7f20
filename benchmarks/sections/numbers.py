"""Random numbers: first values, a hash of all of them, and where each call leaves the generator."""

from __future__ import annotations

import ctypes
import hashlib
from typing import TYPE_CHECKING, Any

import torch
from recording.common import DEVICE, attempt
from torch.nn import functional as F  # noqa: N812 - its name everywhere

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = 1234
FLOATS = (torch.float32, torch.float16, torch.float64)


def _generator() -> dict[str, int]:
    """The seed and the Philox offset: the state's two 64-bit numbers."""
    state = bytes(torch.cuda.get_rng_state().tolist())
    return {"seed": int.from_bytes(state[:8], "little"), "offset": int.from_bytes(state[8:16], "little")}


def _digest(values: torch.Tensor) -> str:
    flat = values.detach().cpu().contiguous()
    return hashlib.sha256(ctypes.string_at(flat.data_ptr(), flat.nbytes)).hexdigest()[:16]


def _drawn(draw: Callable[[], torch.Tensor]) -> dict[str, Any]:
    """One call after `manual_seed`, and a second one."""
    torch.manual_seed(SEED)
    first = draw()
    offset = _generator()["offset"]
    second = draw()
    head = first.flatten()[:6].cpu()
    return {
        "shape": list(first.shape),
        "dtype": str(first.dtype),
        "first": [float(v).hex() if first.is_floating_point() else int(v) for v in head.tolist()],
        "readable": [float(v) for v in head.tolist()],
        "sha256": _digest(first),
        "offset": offset,
        "second_sha256": _digest(second),
        "second_offset": _generator()["offset"],
    }


def _draws(n: int, dtype: torch.dtype) -> dict[str, Callable[[], torch.Tensor]]:
    empty = torch.zeros(n, device=DEVICE, dtype=dtype)
    ones = torch.ones(n, device=DEVICE, dtype=dtype)
    return {
        "rand": lambda: torch.rand(n, device=DEVICE, dtype=dtype),
        "randn": lambda: torch.randn(n, device=DEVICE, dtype=dtype),
        "uniform_": lambda: empty.uniform_(-2, 3),
        "normal_": lambda: empty.normal_(1, 2),
        "bernoulli_": lambda: empty.bernoulli_(0.3),
        "bernoulli_of": lambda: torch.bernoulli(ones * 0.3),
        "exponential_": lambda: empty.exponential_(1.5),
        "log_normal_": lambda: empty.log_normal_(0.5, 1),
        "cauchy_": empty.cauchy_,
        "geometric_": lambda: empty.geometric_(0.2),
        "dropout": lambda: F.dropout(ones, 0.25),
        "alpha_dropout": lambda: F.alpha_dropout(ones, 0.25, training=True),
        "rrelu": lambda: F.rrelu(-ones, training=True),
    }


def _whole(n: int) -> dict[str, Callable[[], torch.Tensor]]:
    weights = torch.arange(1.0, 9.0, device=DEVICE)
    return {
        "randint": lambda: torch.randint(10, (n,), device=DEVICE),
        "randint_wide": lambda: torch.randint(-(2**40), 2**40, (n,), device=DEVICE),
        "randint_int32": lambda: torch.randint(0, 1000, (n,), device=DEVICE, dtype=torch.int32),
        "random_": lambda: torch.empty(n, device=DEVICE, dtype=torch.int64).random_(),
        "random_float": lambda: torch.empty(n, device=DEVICE).random_(),
        "randperm": lambda: torch.randperm(min(n, 100_000), device=DEVICE),
        "multinomial": lambda: torch.multinomial(weights, min(n, 10_000), replacement=True),
        "multinomial_without": lambda: torch.multinomial(weights, 5),
        "poisson": lambda: torch.poisson(torch.full((n,), 4.0, device=DEVICE)),
        "rand_2d_strided": lambda: torch.empty(n, 2, device=DEVICE).t().uniform_(),
    }


def _initialised() -> dict[str, Any]:
    torch.manual_seed(SEED)
    layer = torch.nn.Linear(16, 8, device=DEVICE)
    convolution = torch.nn.Conv2d(3, 4, 3, device=DEVICE)
    embedding = torch.nn.Embedding(10, 4, device=DEVICE)
    return {
        "linear": _digest(layer.weight),
        "linear_first": layer.weight.flatten()[:4].tolist(),
        "conv2d": _digest(convolution.weight),
        "embedding": _digest(embedding.weight),
        **_generator(),
    }


def record(quick: bool) -> dict[str, Any]:
    """Record all generators; `quick` leaves out what is larger than the launch grid."""
    found: dict[str, Any] = {"seed_0_rand_3": attempt(_seed_zero)}
    for n in (7, 4096) if quick else (7, 4096, 1_000_000):
        for dtype in FLOATS:
            kind = f"{str(dtype)[6:]}_{n}"
            found.update(
                {f"{name}_{kind}": attempt(lambda d=draw: _drawn(d)) for name, draw in _draws(n, dtype).items()}
            )
        found.update({f"{name}_{n}": attempt(lambda d=draw: _drawn(d)) for name, draw in _whole(n).items()})
    found["initialised"] = attempt(_initialised)
    found["after_seed"] = attempt(lambda: (torch.cuda.manual_seed(7), _generator())[1])
    return found


def _seed_zero() -> list[float]:
    torch.manual_seed(0)
    values: list[float] = torch.rand(3, device=DEVICE).tolist()
    return values
