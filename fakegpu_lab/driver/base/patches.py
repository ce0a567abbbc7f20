"""`Patches`: changes to torch and other modules that can be undone."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from typing import TYPE_CHECKING, Any

from fakegpu_lab.user_code import interrupts

if TYPE_CHECKING:
    from collections.abc import Callable


_MISSING: Any = object()
_CALL: Any = object()


class Patches:
    """Sets attributes on modules and classes, remembers what was there, and puts everything back with `undo`.

    An attribute that a class had inherited is inherited again.
    """

    def __init__(self) -> None:
        self._done: list[tuple[Any, Any, Any]] = []
        self._set: dict[tuple[int, str], Any] = {}

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set ``owner.name`` to `value` and remember what was there."""
        old = vars(owner).get(name, _MISSING)
        setattr(owner, name, value)  # may refuse: then there is nothing to undo
        if (id(owner), name) not in self._set:
            self._done.append((owner, name, old))
        self._set[id(owner), name] = value

    def set_code(self, function: Any, replacement: Any) -> None:
        """Make `function` run the code of `replacement`, also when called through a pointer that C++ keeps.

        The code stays where it was, in `function`'s file: by the file, Dynamo decides what it compiles.
        """
        old = function.__code__
        self._done.append((function, "__code__", old))
        function.__code__ = replacement.__code__.replace(co_filename=old.co_filename, co_firstlineno=old.co_firstlineno)

    def append(self, items: list[Any], value: Any) -> None:
        """Append to a list; `undo` removes it."""
        items.append(value)
        self._done.append((items, "", value))

    def set_item(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Set ``table[key]`` and remember what was there."""
        self._done.append((table, key, table.get(key, _MISSING)))
        table[key] = value

    def later(self, restore: Callable[[], object]) -> None:
        """Let `undo` call `restore`: for state that is not an attribute."""
        self._done.append((restore, "", _CALL))

    @interrupts.whole
    def undo(self) -> None:
        """Put everything back, last change first."""
        self._set.clear()
        while self._done:
            owner, name, old = self._done.pop()
            if old is _CALL:
                owner()
            elif isinstance(owner, list):
                owner.remove(old)
            elif isinstance(owner, dict):
                if old is _MISSING:
                    del owner[name]
                else:
                    owner[name] = old
            elif old is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, old)

    @property
    def replaced(self) -> list[tuple[Any, Any]]:
        """(value before, value now) of every attribute that had one."""
        return [
            (old, vars(owner).get(name))
            for owner, name, old in self._done
            if name and old is not _MISSING and not isinstance(owner, dict)
        ]

    def __len__(self) -> int:
        """How many changes are not yet undone."""
        return len(self._done)

    def made(self, owner: Any, name: str, otherwise: Any) -> Any:
        """What `set` has put there; `otherwise` where it has put nothing, or that is undone."""
        return self._set.get((id(owner), name), otherwise)


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
