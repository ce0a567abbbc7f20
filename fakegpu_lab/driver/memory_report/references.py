"""Names the variables and containers that hold device memory."""

from __future__ import annotations

import gc
import sys
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.autograd import gradient_lock
from fakegpu_lab.driver.memory_report import categories
from fakegpu_lab.user_code import environment
from fakegpu_lab.user_code.frames import SHOWN, kind, walk

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from fakegpu_lab.driver.base.tensor import FakeCudaTensor

_FEW = 64
"""At most this many tensors' holders are looked up."""


def training() -> tuple[list[torch.optim.Optimizer], list[torch.Tensor]]:
    """All live optimizers, and the device tensors that have gradients."""
    found = categories.live()
    with gradient_lock.held() as may_look:
        trained: list[torch.Tensor]
        trained = [t for t in found.tensors if may_look and t.requires_grad and t.is_leaf and t.grad is not None]
    return found.optimizers, trained


def holder(addresses: Iterable[int]) -> str:
    """Name what holds the memory at these addresses, such as ``the list `losses```; empty if it is not found.

    Memory without a Python tensor is held by autograd: then tensors whose graphs may hold it are looked up, which are
    the non-leaves that a program keeps.
    """
    wanted = set(addresses)
    tensors = categories.live().tensors
    here = [t for t in tensors if t._buffer.block is not None and t._buffer.block.address in wanted]
    for found in ([t for t in here if t.grad_fn is not None], here, [t for t in tensors if t.grad_fn is not None]):
        names = Counter(name for tensor in found[:_FEW] if (name := _named(tensor, (found, here, tensors))))
        if names:
            return names.most_common(1)[0][0]
    return ""


def _named(tensor: FakeCudaTensor, own_lists: tuple[Any, ...]) -> str:
    """The variable or container that refers to a tensor, other than this module's own lists."""
    own = {id(one) for one in own_lists}
    for referrer in gc.get_referrers(tensor):
        if id(referrer) in own:
            continue
        if isinstance(referrer, (list, deque, tuple, set)):
            name = _variable(referrer)
            if name:
                return f"the {type(referrer).__name__} `{name}`"
        if isinstance(referrer, dict):
            name = next((str(key) for key, value in list(referrer.items()) if value is tensor), "")
            if "__name__" in referrer or "get_ipython" in referrer:
                if name and not name.startswith("_"):
                    return f"the variable `{name}`"
            elif owner := _variable(referrer):
                return f"the dict `{owner}`"
    name = _variable(tensor)
    return f"the variable `{name}`" if name else ""


def _variable(thing: object) -> str:
    """The variable of the main program, the notebook or a running frame that is `thing`; empty if there is none."""
    spaces: list[dict[str, Any]] = [vars(sys.modules["__main__"])]
    shell = environment.shell()
    if shell is not None:
        spaces.append(shell.user_ns)
    spaces += [frame.f_locals for frame in walk(sys._getframe(1)) if kind(frame.f_code.co_filename) & SHOWN]
    for space in spaces:
        for name, value in list(space.items()):
            if value is thing and not name.startswith("_"):
                return name
    return ""
