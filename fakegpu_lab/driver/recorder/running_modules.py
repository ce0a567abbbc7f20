"""The modules whose forward runs in each thread, and the module of each node of autograd's graph.

`recording` puts the hooks in place while somebody records.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class Modules(threading.local):
    """The modules whose forward is running in this thread, outermost first: (module, its path)."""

    def __init__(self) -> None:
        self.stack: list[tuple[torch.nn.Module, str]] = []


modules = Modules()
forward_modules: dict[int, str] = {}
_forward_order: deque[int] = deque()
_REMEMBERED = 100_000


def enter(module: torch.nn.Module, args: Any) -> None:
    """Note that a module's forward begins: a forward pre-hook of all modules."""
    stack = modules.stack
    if not stack:
        path = type(module).__name__
        _models.add(module)
    else:
        parent, above = stack[-1]
        name = next((name for name, child in parent._modules.items() if child is module), None)
        path = f"{above}.{name or type(module).__name__}"
    stack.append((module, path))


def leave(module: torch.nn.Module, args: Any, output: Any) -> None:
    """Note that a module's forward has ended, by an error too: a forward hook of all modules."""
    stack = modules.stack
    while stack:  # a module that raised is still on it
        if stack.pop()[0] is module:
            break


_models: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
_optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()


def seen() -> tuple[list[torch.nn.Module], list[torch.optim.Optimizer]]:
    """The models whose forward ran, and the optimizers that stepped, since somebody began to record."""
    return list(_models), list(_optimizers)


def remember_optimizer(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """Note that an optimizer steps: a pre-hook of all optimizers."""
    _optimizers.add(optimizer)


def remember(number: int, path: str) -> None:
    """Note which module made the node of autograd's graph with this sequence number."""
    if number not in forward_modules:
        forward_modules[number] = path
        _forward_order.append(number)
        if len(_forward_order) > _REMEMBERED:
            forward_modules.pop(_forward_order.popleft(), None)  # threads number their nodes each for itself


def forget() -> None:
    """Forget all modules, models and optimizers: nobody records any more."""
    modules.stack.clear()
    _models.clear()
    _optimizers.clear()
    forward_modules.clear()
    _forward_order.clear()
