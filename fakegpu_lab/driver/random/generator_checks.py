"""Refuses a device's generator in an op on the host, with CUDA's error.

To C++ a device's generator is a CPU generator (see `generators.CudaGenerator`), and it would be accepted. The wrappers
below check it; calls without a generator cost one more dictionary look-up.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.changes import wrapped
from fakegpu_lab.driver.random.generators import CudaGenerator

if TYPE_CHECKING:
    from collections.abc import Callable


_FUNCTIONS = ("rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson", "binomial")
_IN_PLACE = (
    "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_", "uniform_",
)  # fmt: skip
_METHODS = ("bernoulli", "multinomial")


def _refuse(result: Any) -> None:
    if isinstance(result, torch.Tensor) and result.device.type == "cpu":
        raise RuntimeError("Expected a 'cpu' device type for generator but found 'cuda'")


def _is_empty_permutation(function: Callable[..., Any], result: Any) -> bool:
    """``randperm(0)`` looks at no generator (cuda/Randperm.cu, TensorFactories.cpp)."""
    return function.__name__ == "randperm" and not len(result)


def _looking(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, then a check: its result shows on which device it ran."""

    @functools.wraps(function)
    def looking(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        result = function(*args, **kwargs)
        if (
            kwargs
            and kwargs.get("generator").__class__ is CudaGenerator
            and not _is_empty_permutation(function, result)
        ):
            _refuse(result)
        return result

    return looking


def _looking_first(method: Callable[..., Any]) -> Callable[..., Any]:
    """A check, then `method`, which writes to its tensor."""

    @functools.wraps(method)
    def looking(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if kwargs and kwargs.get("generator").__class__ is CudaGenerator:
            _refuse(self)
        return method(self, *args, **kwargs)

    return looking


_WHY = "a generator of another device is refused"
CHANGES = [
    *(wrapped(f"torch.{name}", _looking, _WHY) for name in _FUNCTIONS),
    *(wrapped(f"torch.Tensor.{name}", _looking, _WHY) for name in _METHODS),
    *(wrapped(f"torch.Tensor.{name}", _looking_first, _WHY) for name in _IN_PLACE),
]
