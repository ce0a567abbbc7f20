"""What a kernel's source says about it before it runs."""

from __future__ import annotations

import ast
from typing import Any

from triton.runtime.jit import JITFunction

_known: dict[int, tuple[Any, bool]] = {}


def may_order(kernel: Any) -> bool:
    """Whether atomic operations may order the programs: one of the kernel, or of what it calls, has a result in use.

    A lock, a flag, or a counter of finished programs is such a result. ``tl.atomic_add(x, 1)`` alone orders nothing.
    """
    known = _known.get(id(kernel))
    if known is None or known[0] is not kernel:
        known = _known[id(kernel)] = (kernel, _search(kernel, set()))
    return known[1]


def _search(kernel: Any, seen: set[int]) -> bool:
    seen.add(id(kernel))
    alone: set[int] = set()
    for node in ast.walk(kernel.parse()):
        if isinstance(node, ast.Expr):
            alone.add(id(node.value))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name in ("atomic_cas", "atomic_xchg", "atomic_poll"):
                return True
            if name.startswith("atomic_") and id(node) not in alone:
                return True
    scope = kernel.get_capture_scope()
    called = (scope.get(name) for name in kernel.fn.__code__.co_names)
    return any(_search(one, seen) for one in called if isinstance(one, JITFunction) and id(one) not in seen)
