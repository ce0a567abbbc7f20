"""A shorter way through torch's table of dispatch rules.

Before it calls `__torch_dispatch__`, C++ asks `torch._library.simple_registry.find_torch_dispatch_rule` whether a rule
is registered for this op and class: three Python calls and a name built anew, for every op. None can be registered for
FakeCudaTensor, so the function is given code that answers for it at once. C++ keeps a pointer to the function; that is
why its code is exchanged, not the name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch._library import simple_registry

from fakegpu_lab.driver.base.tensor import FakeCudaTensor

if TYPE_CHECKING:
    from fakegpu_lab.driver.base.patches import Patches

singleton: Any = None  # both are looked up in simple_registry's namespace: that is where the code runs
_fakegpu_class: Any = None


def _find_torch_dispatch_rule(op: Any, torch_dispatch_class: type) -> Any:
    if torch_dispatch_class is _fakegpu_class:
        return None
    return singleton.find(op.__qualname__).torch_dispatch_rules.find(torch_dispatch_class)


def install(patches: Patches) -> None:
    """Shorten the look-up, where torch has it in the form that was read (2.10 to 2.14)."""
    if hasattr(simple_registry, "find_torch_dispatch_rule") and hasattr(simple_registry, "singleton"):
        patches.set(simple_registry, "_fakegpu_class", FakeCudaTensor)
        patches.set_code(simple_registry.find_torch_dispatch_rule, _find_torch_dispatch_rule)
