"""Optimizers, checkpoints and shape functions that do not import torch's compiler, as long as nothing else has.

An optimizer imports torch._dynamo when it is made and at its first step, only to mark these methods for the compiler.
With it come torch.distributed.tensor and sympy: 800 modules, and seconds before the first step. Shape functions that
promote dtypes and `torch.utils.checkpoint` do the same when they are called. But while torch._dynamo is not imported,
nothing is compiled, and all of them run without the marks. As soon as it is imported, torch's own code is back.
"""

from __future__ import annotations

import itertools
import sys
import types
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint

from fakegpu_lab.driver.base.deferred_patches import NotImported, when_imported
from fakegpu_lab.driver.base.patches import Patches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

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


def _chain(function: Any) -> Iterator[types.FunctionType]:
    """A function, the one that it wraps, and so on; `__wrapped__` is not always what it calls."""
    while function.__class__ is types.FunctionType:
        yield function
        free = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        inner = free["fn"].cell_contents if "fn" in free else None
        function = inner or vars(function).get("__wrapped__")


def _marked(owners: Iterable[object]) -> Iterator[Callable[..., Any]]:
    """The functions of classes and modules that `torch._disable_dynamo` wraps, which may be wrapped again."""
    code = torch._disable_dynamo(lambda: None).__code__  # type: ignore[attr-defined]
    for owner in owners:
        for value in list(vars(owner).values()):
            for wrapper in _chain(value):
                if wrapper.__code__ is code:
                    yield next(itertools.islice(_chain(wrapper), 1, None))


def _owners() -> Iterator[object]:
    """Whatever has such functions: modules of decompositions, which are shape functions, too, if they are imported."""
    yield from (torch.optim.Optimizer, torch.utils.checkpoint)
    for name, module in list(sys.modules.items()):
        if name.startswith(("torch._refs", "torch._decomp")) and module is not None:
            yield module


class _Settings(NotImported):
    """`torch._dynamo.config`."""

    error_on_nested_fx_trace = True
    """`torch.utils.checkpoint` reads it, for a compiler that calls it (torch/_dynamo/config.py)."""

    def __setattr__(self, name: str, value: object) -> None:
        setattr(import_module(self.__name__), name, value)


class _Compiler(NotImported):
    """`torch._dynamo`."""

    config = _Settings(f"{_DYNAMO}.config")

    @staticmethod
    def disable(*args: Any, **kwargs: Any) -> Any:
        """`torch._dynamo.disable`, which `torch.utils.checkpoint` calls for a hook."""
        if sys._getframe(1).f_globals is vars(torch.utils.checkpoint):
            return args[0]
        return import_module(_DYNAMO).disable(*args, **kwargs)


def install(patches: Patches) -> None:
    """Let optimizers, checkpoints and shape functions run without the compiler until it is imported."""
    if _DYNAMO in sys.modules:
        return
    own = Patches()
    for function in set(_marked(_owners())):
        own.set(function, "__dynamo_disable", function)  # what the wrapper calls instead (torch/_compile.py)
    for cls in _optimizers():
        step = vars(cls).get("step")
        while step is not None:
            code = getattr(step, "__code__", None)
            if code is not None and code.co_freevars == ("func",) and "_dynamo" in code.co_names:
                own.set_code(step, _without_breaks(None))
            step = getattr(step, "__wrapped__", None)
    own.set(torch, "_dynamo", _Compiler(_DYNAMO))
    patches.later(own.undo)
    when_imported(_DYNAMO, patches, lambda module: own.undo())
