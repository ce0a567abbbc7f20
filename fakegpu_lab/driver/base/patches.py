"""A reversible list of changes to other modules' attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_MISSING: Any = object()
_CALL: Any = object()


class Patches:
    """Attributes set on modules and classes, each remembered, all put back by `undo`.

    A class's attribute is restored to its own ``__dict__``: what was inherited is inherited again.
    """

    def __init__(self) -> None:
        self._done: list[tuple[Any, Any, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set ``owner.name`` to `value` and remember what was there."""
        old = vars(owner).get(name, _MISSING)
        setattr(owner, name, value)  # may refuse: then there is nothing to undo
        self._done.append((owner, name, old))

    def set_code(self, function: Any, replacement: Any) -> None:
        """Make `function` run `replacement`'s code, also where C++ keeps a pointer to it."""
        self._done.append((function, "__code__", function.__code__))
        function.__code__ = replacement.__code__

    def append(self, items: list[Any], value: Any) -> None:
        """Append to a list and remember to take it out again."""
        items.append(value)
        self._done.append((items, "", value))

    def set_item(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Set ``table[key]`` and remember what was there."""
        self._done.append((table, key, table.get(key, _MISSING)))
        table[key] = value

    def wrap_function(self, name: str, wrapper: Callable[..., Callable[..., Any]]) -> None:
        """Put ``wrapper(torch.name)`` in the place of ``torch.name``, for eager code and for TorchScript's builtins."""
        import torch  # not before it is needed: `fakegpu-lab run` patches before torch is there
        from torch.jit import _builtins

        original = getattr(torch, name)
        wrapped = wrapper(original)
        self.set(torch, name, wrapped)
        table = _builtins._get_builtin_table()  # type: ignore[no-untyped-call]
        if id(original) in table:
            self.set_item(table, id(wrapped), table[id(original)])

    def later(self, restore: Callable[[], object]) -> None:
        """Have `restore` called by `undo`: for state that is not an attribute."""
        self._done.append((restore, "", _CALL))

    def undo(self) -> None:
        """Put everything back, last change first."""
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
    def places(self) -> list[tuple[Any, str]]:
        """What is patched: (owner, name) of every change not yet undone."""
        return [(owner, name) for owner, name, _ in self._done]
