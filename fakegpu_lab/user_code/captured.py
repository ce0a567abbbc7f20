"""Functions of this package that a program calls unknowingly, and that no compiler should capture."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PASSING: list[Callable[..., Any]] = []
"""Functions that return their first argument; in a captured program, that argument stands for the call."""


def leave_out(*functions: Callable[..., Any]) -> None:
    """Add functions to `PASSING`, also after the first compilation."""
    PASSING.extend(functions)
    rules = sys.modules.get("torch._dynamo.trace_rules")
    if rules is not None:
        rules.get_torch_obj_rule_map.cache_clear()
