"""The table of changes to torch. A row says which attribute changes, how, why, and which releases of torch have it.

Rows stand beside what they install, as ``CHANGES`` of a module; `collected` finds the modules of a room, `apply` makes
the changes, and `lacking` has the rows whose attribute the installed torch does not have.

    CHANGES = [
        replaced("torch.Tensor.to", to, why="'cuda' is a simulated device"),
        wrapped("torch.arange", _guarded, why="…"),
    ]
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
import types
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base.patches import Patches, when_imported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

REPLACED, WRAPPED, ADDED, RECODED, APPENDED, ITEM, BEGUN, COMPUTED, IMPORTED = (
    "replaced", "wrapped", "added", "recoded", "appended", "item", "begun", "computed", "imported",
)  # fmt: skip

patches = Patches()
"""The changes in effect."""
lacking: list[Change] = []
"""The rows whose attribute the installed torch does not have: it has renamed or removed it. They changed nothing."""


@dataclass(frozen=True)
class Change:
    """A row of the table; the functions below make rows.

    Attributes
    ----------
    path
        The changed attribute: ``torch.Tensor.to``. Of `IMPORTED`, the module; empty if the row changes none.
    how, by
        What happens to it, and with what; see the functions below.
    why
        What would be wrong without it.
    since, until
        The first release of torch that has the attribute, and the first that has not: ``2.11``. Empty: any.
    when
        Whether the machine needs it; None: always.
    optional
        Whether some releases lack the attribute, and nothing is lost.
    key
        Of `ITEM`, the key in the dictionary.
    """

    path: str
    how: str
    by: Any
    why: str
    since: str = ""
    until: str = ""
    when: Callable[[], bool] | None = None
    optional: bool = False
    key: Any = None

    def of_this_torch(self) -> bool:
        """Whether the installed release of torch should have the attribute."""
        now = _release(sys.modules["torch"].__version__)
        return _release(self.since) <= now and (not self.until or now < _release(self.until))

    def owner(self) -> Any:
        """The module or class of the attribute; None if the installed torch does not have it."""
        first, *parts = self.path.split(".")[:-1]
        found, name = importlib.import_module(first), first
        for part in parts:
            name = f"{name}.{part}"
            inner = sys.modules.get(name, getattr(found, part, None))
            if inner is None:
                try:
                    inner = importlib.import_module(name)
                except ImportError:
                    return None
            found = inner
        return found

    @property
    def name(self) -> str:
        """The attribute's own name."""
        return self.path.rpartition(".")[2]

    def place(self) -> Any:
        """What this changes: the attribute's owner. None if the installed torch does not have the attribute."""
        if self.how in (BEGUN, COMPUTED):
            return self
        if self.how == IMPORTED:  # of another package's module, nothing is known
            return self if not self.path.startswith("torch.") or _has_file(self.path) else None
        owner = self.owner()
        if owner is None or self.how == ADDED:
            return owner
        return owner if self.name in vars(owner) or hasattr(owner, self.name) else None


def replaced(path: str, by: Any, why: str, **scope: Any) -> Change:
    """The attribute is `by` instead."""
    return Change(path, REPLACED, by, why, **scope)


def wrapped(path: str, by: Callable[[Any], Any], why: str, **scope: Any) -> Change:
    """The attribute is ``by(attribute)``. Several rows may wrap one attribute, one around the other."""
    return Change(path, WRAPPED, by, why, **scope)


def added(path: str, what: Any, why: str, **scope: Any) -> Change:
    """An attribute that this build of torch may not have."""
    return Change(path, ADDED, what, why, **scope)


def in_cuda_builds(functions: Mapping[str, Any]) -> list[Change]:
    """Functions of ``torch._C``, by name."""
    return [added(f"torch._C.{name}", function, "CPU builds lack it") for name, function in functions.items()]


def recoded(path: str, by: Any, why: str, **scope: Any) -> Change:
    """The function runs the code of `by`, also for those who have imported it."""
    return Change(path, RECODED, by, why, **scope)


def appended(path: str, what: Any, why: str, **scope: Any) -> Change:
    """The list has one more element."""
    return Change(path, APPENDED, what, why, **scope)


def item(path: str, key: Any, by: Callable[[Any], Any], why: str, **scope: Any) -> Change:
    """The dictionary's value for a key is ``by(value)``; of None, if there was none."""
    return Change(path, ITEM, by, why, key=key, **scope)


def begun(start: Callable[[], object], why: str, **scope: Any) -> Change:
    """State of our own, not an attribute: `start` is called; a function that it returns is called at the end."""
    return Change("", BEGUN, start, why, **scope)


def computed(rows: Callable[[], Iterable[Change]], why: str, **scope: Any) -> Change:
    """More rows, which depend on the machine or on what the program has imported."""
    return Change("", COMPUTED, rows, why, **scope)


def imported(module: str, rows: Callable[[Any], Iterable[Change]], why: str, **scope: Any) -> Change:
    """When the program has imported a module, now or later, the changes ``rows(module)`` are made."""
    return Change(module, IMPORTED, rows, why, **scope)


def collected(package: str, rooms: Iterable[str]) -> list[Change]:
    """The rows of all modules in the rooms (folders or files) of a package: rooms in their order, files by name.

    Raises
    ------
    ValueError
        If two rows replace one attribute.
    """
    rows = [
        row
        for room in rooms
        for module in _modules(f"{package}.{room}")
        for row in getattr(importlib.import_module(module), "CHANGES", ())
    ]
    refuse_duplicates(rows)
    rows = _wrapped_once(rows)
    # A build's own functions come first: torch's modules are executed again on top of them.
    return sorted(rows, key=lambda row: row.how != ADDED)


def _modules(name: str) -> list[str]:
    folder = getattr(importlib.import_module(name), "__path__", None)
    inside = pkgutil.walk_packages(folder, f"{name}.") if folder is not None else ()
    return [name, *sorted(one.name for one in inside)]


def _wrapped_once(rows: list[Change]) -> list[Change]:
    """One row for each attribute that several rows wrap."""
    wrappers: dict[tuple[Any, ...], list[Change]] = {}
    for row in rows:
        if row.how == WRAPPED:
            wrappers.setdefault((row.path, row.since, row.until, row.when), []).append(row)
    merged = []
    for row in rows:
        several = wrappers.get((row.path, row.since, row.until, row.when), []) if row.how == WRAPPED else []
        if len(several) < 2:
            merged.append(row)
        elif row is several[-1]:
            why = "; ".join(dict.fromkeys(one.why for one in several))
            merged.append(replace(row, by=partial(_around, [one.by for one in several]), why=why))
    return merged


def _around(wrappers: list[Callable[[Any], Any]], attribute: Any) -> Any:
    return reduce(lambda inner, wrapper: wrapper(inner), wrappers, attribute)


def refuse_duplicates(rows: Iterable[Change]) -> None:
    """Raise ValueError if two rows replace one attribute, or wrap one that another replaces."""
    rows = [row for row in rows if row.how in (REPLACED, WRAPPED, ADDED, RECODED) and row.when is None]
    times = Counter(row.path for row in rows if row.of_this_torch())
    replacing = {row.path for row in rows if row.how != WRAPPED and row.of_this_torch()}
    if twice := sorted(path for path in replacing if times[path] > 1):
        raise ValueError(f"changed by two rows: {', '.join(twice)}")


def apply(rows: Iterable[Change]) -> None:
    """Make the changes, in `patches`; note in `lacking` what torch does not have."""
    for row in rows:
        if row.of_this_torch() and (row.when is None or row.when()):
            place = row.place()
            if place is not None:
                _HOW[row.how](row, place)
            elif not row.optional:
                lacking.append(row)


def _set(row: Change, owner: Any) -> None:
    name = row.name
    old = getattr(owner, name, None)
    new = row.by(old) if row.how == WRAPPED else row.by
    if isinstance(owner, types.ModuleType):
        _name_in_torchscript(old, new)
    patches.set(owner, name, new)


_scripted: list[int] = []
"""The ids of our functions that TorchScript knows as its own."""


def _name_in_torchscript(old: Any, new: Any) -> None:
    """Let TorchScript, which knows functions by their ids, take `new` for the builtin that `old` is.

    Before `new` takes its place: the table is made of torch's functions, when it is first asked for.
    """
    from torch.jit import _builtins

    table = _builtins._get_builtin_table()  # type: ignore[no-untyped-call]
    if id(old) in table and id(new) not in table:
        if not _scripted:
            patches.later(lambda: [table.pop(_scripted.pop()) for _ in range(len(_scripted))])
        table[id(new)] = table[id(old)]
        _scripted.append(id(new))


def _set_item(row: Change, owner: Any) -> None:
    table = getattr(owner, row.name)
    patches.set_item(table, row.key, row.by(table.get(row.key)))


def _begin(row: Change, _: Any) -> None:
    end = row.by()
    if callable(end):
        patches.later(end)


_HOW: dict[str, Callable[[Change, Any], object]] = {
    REPLACED: _set,
    WRAPPED: _set,
    ADDED: _set,
    RECODED: lambda row, owner: patches.set_code(getattr(owner, row.name), row.by),
    APPENDED: lambda row, owner: patches.append(getattr(owner, row.name), row.by),
    ITEM: _set_item,
    BEGUN: _begin,
    COMPUTED: lambda row, _: apply(row.by()),
    IMPORTED: lambda row, _: when_imported(row.path, patches, lambda module: apply(row.by(module))),
}


def _has_file(module: str) -> bool:
    """Whether a module of torch exists; `importlib.util.find_spec` would import the packages around it."""
    file = Path(sys.modules["torch"].__path__[0], *module.split(".")[1:])
    return file.with_suffix(".py").exists() or file.is_dir()


@cache
def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
