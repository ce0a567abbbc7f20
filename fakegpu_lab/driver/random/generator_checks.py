"""A device's generator given to an op on the host: refused in CUDA's words.

To C++ that generator is a CPU generator (`random.CudaGenerator`), so it would be taken. These functions look first;
calls without a generator pay one dictionary look-up.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.random.generators import CudaGenerator

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.base.patches import Patches

_FUNCTIONS = ("rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson", "binomial")
_IN_PLACE = (
    "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_", "uniform_",
)  # fmt: skip
_METHODS = ("bernoulli", "multinomial")


def _refuse(result: Any) -> None:
    if isinstance(result, torch.Tensor) and result.device.type == "cpu":
        raise RuntimeError("Expected a 'cpu' device type for generator but found 'cuda'")


def _looking(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, whose result tells on which device it ran."""

    @functools.wraps(function)
    def looking(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        result = function(*args, **kwargs)
        if kwargs and kwargs.get("generator").__class__ is CudaGenerator:
            _refuse(result)
        return result

    return looking


def _looking_first(method: Callable[..., Any]) -> Callable[..., Any]:
    """`method`, which writes to its tensor."""

    @functools.wraps(method)
    def looking(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if kwargs and kwargs.get("generator").__class__ is CudaGenerator:
            _refuse(self)
        return method(self, *args, **kwargs)

    return looking


def install(patches: Patches) -> None:
    """Wrap the functions and methods that take a generator."""
    for name in _FUNCTIONS:
        patches.wrap_function(name, _looking)
    for name in _METHODS:
        patches.set(torch.Tensor, name, _looking(getattr(torch.Tensor, name)))
    for name in _IN_PLACE:
        patches.set(torch.Tensor, name, _looking_first(getattr(torch.Tensor, name)))
