"""Solvers, decompositions and Fourier transforms, where CUDA's differ from the CPU's."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map

from fakegpu_lab.driver.base.changes import wrapped
from fakegpu_lab.driver.base.not_simulated import error
from fakegpu_lab.driver.base.tensor import FakeCudaTensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op

    Kernel = Callable[..., Any]


def conjugating(op: Op, call: Kernel) -> Kernel:
    """`call`, with the dispatcher's fallbacks for conjugate and negative views switched on.

    Its CPU kernel makes such views and relies on the dispatcher to resolve them. The fallbacks run above
    `__torch_dispatch__` and are then off for the op and everything that its kernel calls.
    """
    guard, keys = torch._C._SetExcludeDispatchKeyGuard, torch._C.DispatchKey

    def conjugating(*args: Any, **kwargs: Any) -> Any:
        with guard(keys.Conjugate, False), guard(keys.Negative, False):
            return tree_map(_resolved, call(*args, **kwargs))

    return conjugating


def by_qr(op: Op, call: Kernel) -> Kernel:
    """`linalg_lstsq`, whose only driver on CUDA is gels; the CPU's default is gelsy (get_default_lstsq_driver)."""
    compute = conjugating(op, call)

    def least_squares(*args: Any, driver: str | None = None, **kwargs: Any) -> Any:
        return compute(*args, driver=driver or "gels", **kwargs)

    return least_squares


def without_driver(op: Op, call: Kernel) -> Kernel:
    """`_linalg_svd`: the CPU's kernel refuses the names of cuSOLVER's drivers, which `refusals.svd` has checked."""
    compute = conjugating(op, call)

    def decompose(*args: Any, driver: str | None = None, **kwargs: Any) -> Any:
        return compute(*args, **kwargs)

    return decompose


def _in_words(function: Kernel) -> Kernel:
    """A Fourier transform that says that half precision is not simulated, instead of the CPU's "Unsupported dtype"."""

    @functools.wraps(function)
    def transform(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        try:
            return function(*args, **kwargs)
        except RuntimeError as raised:
            source = args[0] if args else kwargs.get("input")
            if source.__class__ is FakeCudaTensor and str(raised).startswith("Unsupported dtype Half"):
                raise error("half-precision transforms") from None
            raise

    return transform


CHANGES = [
    wrapped(f"torch.fft.{name}", _in_words, "half precision is refused in a sentence")
    for name in ("fft", "ifft", "rfft", "irfft", "fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn")
    if hasattr(torch.fft, name)
]


def _resolved(value: Any) -> Any:
    return value.resolve_conj().resolve_neg() if isinstance(value, torch.Tensor) else value
