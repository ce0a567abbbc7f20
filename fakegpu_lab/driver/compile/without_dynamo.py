"""Optimizers that do not import torch's compiler, as long as nothing else has.

An optimizer imports torch._dynamo when it is made and at its first step, only to mark these methods for the compiler.
With it come torch.distributed.tensor and sympy: 800 modules, and seconds before the first step. But while torch._dynamo
is not imported, nothing is compiled, and the methods run without the marks. As soon as it is imported, torch's own code
is back.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.deferred_patches import when_imported
from fakegpu_lab.driver.base.patches import Patches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_DYNAMO = "torch._dynamo"


def _without_breaks(func: Any) -> Callable[..., Any]:
    """`torch.optim.optimizer._use_grad_for_differentiable`, without the calls of ``graph_break``.

    The inner function's code runs with the names of torch.optim.optimizer.
    """

    def use_grad(*args: Any, **kwargs: Any) -> Any:
        before = torch.is_grad_enabled()
        try:
            torch.set_grad_enabled(args[0].defaults["differentiable"])
            return func(*args, **kwargs)
        finally:
            torch.set_grad_enabled(before)

    return use_grad


def _optimizers() -> Iterator[type]:
    for cls in vars(torch.optim).values():
        if isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer):
            yield cls


def install(patches: Patches) -> None:
    """Let `torch.optim`'s optimizers run without the compiler until it is imported."""
    if _DYNAMO in sys.modules:
        return
    own = Patches()
    marked = torch._disable_dynamo(lambda: None).__code__  # type: ignore[attr-defined]
    for method in vars(torch.optim.Optimizer).values():
        if getattr(method, "__code__", None) is marked:
            own.set(method.__wrapped__, "__dynamo_disable", method.__wrapped__)  # what it calls (torch/_compile.py)
    for cls in _optimizers():
        step = vars(cls).get("step")
        while step is not None:
            code = getattr(step, "__code__", None)
            if code is not None and code.co_freevars == ("func",) and "_dynamo" in code.co_names:
                own.set_code(step, _without_breaks(None))
            step = getattr(step, "__wrapped__", None)
    patches.later(own.undo)
    when_imported(_DYNAMO, patches, lambda module: own.undo())
