"""A shortcut through torch's table of dispatch rules.

Before C++ calls `__torch_dispatch__`, it calls `torch._library.simple_registry.find_torch_dispatch_rule` to see whether
a rule is registered for this op and class. For every op, that costs three Python calls and a new string. The function
gets code that returns one rule for FakeCudaTensor at once. C++ keeps a pointer to the function: replacing the name
would have no effect, so its code is replaced.

The rule calls `__torch_dispatch__`, as C++ would. But where there is no rule, C++ first looks whether the tensor is a
DTensor (`is_dtensor` in torch/csrc/utils/python_arg_parser.cpp); at the first op of a process this imports
torch.distributed.tensor and sympy, 500 modules and a second that most programs do not need.
"""

from __future__ import annotations

from typing import Any

from torch._library import simple_registry

from fakegpu_lab.driver.base.changes import added, recoded
from fakegpu_lab.driver.base.tensor import FakeCudaTensor

singleton: Any = None  # only for linters: the code runs in simple_registry's namespace
_fakegpu_class: Any = None
_fakegpu_rule: Any = None
_DECLINED = object()


def _find_torch_dispatch_rule(op: Any, torch_dispatch_class: type) -> Any:
    if torch_dispatch_class is _fakegpu_class:
        return _fakegpu_rule
    return singleton.find(op.__qualname__).torch_dispatch_rules.find(torch_dispatch_class)


def rule(cls: Any, func: Any, types: Any, args: Any, kwargs: Any = _DECLINED) -> Any:
    """Call `__torch_dispatch__`, as C++ does without a rule.

    If that returns NotImplemented, C++ calls the rule again, with the four arguments of a `__torch_dispatch__`.
    """
    if kwargs is _DECLINED:
        return NotImplemented
    return cls.__torch_dispatch__(func, types, args, kwargs)


_WHY = "ops of torch.library with a rule for device tensors"
CHANGES = (
    [
        added("torch._library.simple_registry._fakegpu_class", FakeCudaTensor, _WHY),
        added("torch._library.simple_registry._fakegpu_rule", rule, _WHY),
        recoded("torch._library.simple_registry.find_torch_dispatch_rule", _find_torch_dispatch_rule, _WHY),
    ]
    if hasattr(simple_registry, "find_torch_dispatch_rule") and hasattr(simple_registry, "singleton")
    else []
)
"""The function's code, if this torch has it as torch 2.10 to 2.14 do."""
