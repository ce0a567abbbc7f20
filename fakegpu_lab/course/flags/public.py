"""What a dotted path leads to: something public of an allowed module, or what an answer has no business with.

The path is followed through the real modules, where the grader has them: only so is it seen that ``enum.bltns`` is
Python's builtins, and ``torch.nn.functional.importlib`` not a part of torch. Nothing of a submission is imported.
"""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from fakegpu_lab.course.flags import allowed

_LOADED = frozenset({"torch", "numpy"})
"""Libraries that the grader has loaded anyway."""
_MISSING = object()
_PRIVATE = re.compile(r"\b_\w+")


def hidden_names(word: str) -> bool:
    """Whether a name is private: it begins with an underscore, and is no method that honest answers have."""
    return word.startswith("_") and word not in allowed.SPECIAL and word not in allowed.RECORDS


@cache
def taken_names() -> frozenset[str]:
    """The private names that this package and torch's own classes have: on any object, they may mean these."""
    package = Path(__file__).parents[2]
    words = {word for file in package.rglob("*.py") for word in _PRIVATE.findall(file.read_text("utf-8"))}
    return private_of_torch().union(words)


@cache
def private_of_torch() -> frozenset[str]:
    """Those of torch's own classes: of an object that inherits from one, they are torch's."""
    import torch

    things = [torch.Tensor, torch.nn.Module(), torch.optim.Optimizer, torch.autograd.Function, torch.Generator,
              torch.UntypedStorage, torch.cuda.Stream, torch.cuda.Event, type(torch.ops)]  # fmt: skip
    return frozenset(name for thing in things for name in dir(thing) if hidden_names(name))


@cache
def private_of(path: str) -> frozenset[str]:
    """The private names of a library's class, which a class that inherits from it may replace without knowing them."""
    thing = _at(path)
    if thing is None or path.startswith("torch"):
        return private_of_torch()
    return frozenset(name for name in dir(thing) if hidden_names(name) and not name.startswith("__"))


@cache
def attributes_of_tensors() -> frozenset[str]:
    """All public names that tensors, modules, parameters and optimizers have."""
    import torch

    kinds = (torch.Tensor, torch.nn.Parameter, torch.nn.Linear(1, 1), torch.optim.Optimizer)
    return frozenset(name for kind in kinds for name in dir(kind) if name[0] != "_")


@cache
def methods_of_tensors() -> frozenset[str]:
    """The public methods of tensors, modules and optimizers: an attribute of the same name would stand before them."""
    import torch

    kinds = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer)
    return frozenset(name for kind in kinds for name in dir(kind) if name[0] != "_" and callable(getattr(kind, name)))


@cache
def refused(path: str) -> bool:
    """Whether a path leads out of what is public in its module. Its first word is an allowed module."""
    words = path.split(".")
    thing: Any = _module(words[0])
    for position, word in enumerate(words[1:], 1):
        owner, so_far = ".".join(words[:position]), ".".join(words[: position + 1])
        parts = allowed.PARTS.get(owner)
        if hidden_names(word) or so_far in allowed.HIDDEN or (parts is not None and word not in parts):
            return True
        if thing is None:
            if word in allowed.MODULE_NAMES and parts is None:
                return True
            continue
        inside = _attribute(thing, word)
        if isinstance(thing, ModuleType) and parts is None and _is_foreign(inside, thing, word, so_far):
            return True
        if isinstance(inside, ModuleType) and not isinstance(thing, ModuleType):  # a class has one
            return True
        thing = None if inside is _MISSING else inside
    return False


def is_module(path: str) -> bool:
    """Whether a path leads to a module."""
    words = path.split(".")
    thing: Any = _module(words[0])
    for word in words[1:]:
        if thing is None:
            return path in allowed.PARTS
        thing = _attribute(thing, word)
    return len(words) == 1 or path in allowed.PARTS or isinstance(thing, ModuleType)


@cache
def star(module: str) -> dict[str, str]:
    """What ``from module import *`` binds, with its path; nothing where the module is not loaded here.

    A module that it binds has a path of its own: ``torch`` is no part of ``torch.nn.functional``.
    """
    thing = _at(module)
    if not isinstance(thing, ModuleType):
        return {}
    words = getattr(thing, "__all__", None) or [name for name in vars(thing) if not name.startswith("_")]
    inside = {word: _attribute(thing, word) for word in words}
    return {word: one.__name__ if isinstance(one, ModuleType) else f"{module}.{word}" for word, one in inside.items()}


@cache
def _module(root: str) -> ModuleType | None:
    """An allowed module; None if it is not installed here: then its names alone are judged."""
    if root not in allowed.MODULES | allowed.THREADS:
        return None
    try:
        return importlib.import_module(root)
    except Exception:  # whatever a library that is installed wrongly may raise
        return None


@cache
def makes_objects(path: str) -> bool:
    """Whether a call of a class, or of one that inherits from it, gives an object of it, and nothing else.

    ``torch.no_grad`` has a ``__new__`` that may return what it is given.
    """
    kind = _at(path)
    if not isinstance(kind, type):
        return False
    ways = [vars(one).get("__new__") for one in kind.__mro__]
    return not any(isinstance(one, (staticmethod, FunctionType)) for one in ways) and not isinstance(
        vars(type(kind)).get("__call__"), FunctionType
    )


def _at(path: str) -> Any:
    """What a path leads to; None if nothing is there."""
    root, *words = path.split(".")
    thing: Any = _module(root)
    for word in words:
        thing = _MISSING if thing is None else _attribute(thing, word)
    return None if thing is _MISSING else thing


def _attribute(thing: Any, word: str) -> Any:
    try:
        return getattr(thing, word, _MISSING)
    except Exception:  # a module that loads its parts lazily may lack what they need
        return _MISSING


def _is_foreign(inside: Any, module: ModuleType, word: str, path: str) -> bool:
    """Whether a module's attribute is not its own public one: another module, or what it has imported for itself."""
    root = path.split(".", maxsplit=1)[0]
    if isinstance(inside, ModuleType):
        return (inside.__name__ != path and path != "os.path") or not _is_listed(path, root)
    if inside is _MISSING:
        return root in allowed.SUBMODULES and not _is_listed(path, root)  # a submodule that is not loaded, or nothing
    public = getattr(module, "__all__", None)
    if public is not None and word in public:
        return False
    home = getattr(inside, "__module__", None)
    if not isinstance(home, str):
        return False  # a number, a text, a function of C
    if root in _LOADED:
        return home.split(".")[0] not in (root, "builtins", "typing") or word in ("Any", "Callable", "cast")
    return public is not None or home.split(".")[0].lstrip("_") not in (root, "builtins", "", "sre", "functools")


def _is_listed(path: str, root: str) -> bool:
    listed = allowed.SUBMODULES.get(root)
    return (
        listed is None
        or path.removeprefix(f"{root}.") in listed
        or path.startswith(tuple(f"{one}." for one in allowed.WHOLE))
    )
