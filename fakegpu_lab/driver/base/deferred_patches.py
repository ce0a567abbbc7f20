"""Patches for modules that may not be imported yet: importing torch.utils.benchmark alone takes 0.1 s."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.base.patches import Patches


class _Waiting(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, action: Callable[[Any], object]) -> None:
        self.name = name
        self.action = action
        self.searching = False

    def _found(self, name: str, path: Any, target: Any) -> importlib.machinery.ModuleSpec | None:
        for finder in list(sys.meta_path):
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None:
                return spec
        return None

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != self.name or self.searching:
            return None
        self.searching = True  # a finder may ask all finders again, as numba-cuda's does
        try:
            spec = self._found(name, path, target)
        finally:
            self.searching = False
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            run = loader.exec_module

            def exec_module(module: Any) -> None:
                run(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    self.action(module)

            loader.exec_module = exec_module
        return spec


def when_imported(name: str, patches: Patches, action: Callable[[Any], object]) -> None:
    """Call `action` with the module `name`: now if it is imported, else as soon as it is.

    `action` may add to `patches`. After `patches.undo` it is no longer called.
    """
    module = sys.modules.get(name)
    if module is not None:
        action(module)
        return
    waiting = _Waiting(name, action)
    sys.meta_path.insert(0, waiting)
    patches.later(lambda: sys.meta_path.remove(waiting) if waiting in sys.meta_path else None)
