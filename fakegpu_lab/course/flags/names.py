"""What the names in a submission's cells stand for: modules, their functions, the simulated machine, the lesson's."""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING

from fakegpu_lab.course.cell_text.bindings import reachable
from fakegpu_lab.course.cell_text.source import root_of
from fakegpu_lab.course.flags import allowed, public

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_OF_LAB = ("fakegpu_lab.machine", "fakegpu_lab.enable", "fakegpu_lab.record")
"""Functions whose results are followed: ``lab.machine().devices[0]``."""
_LEAD_ON = allowed.PASSED_ON | {"type", "vars", "super", "getattr"}
"""Builtins by whose results their arguments are reached."""
_NOTHING_NEW = frozenset({"type", "getattr", "vars", "super", "globals", "id"})
_MAKERS = ("torch", "numpy", "fakegpu_lab")
"""Their functions return something new; those of other modules may return what they are given, and these here."""
_RETURN_GIVEN = (
    "torch.as_tensor", "torch.asarray", "torch.compile", "torch.jit.", "torch.nn.", "torch.utils.",
    "fakegpu_lab.expect.run", "fakegpu_lab.run_ranks",
)  # fmt: skip
_NEW_OF_THESE = ("torch.nn.functional.",)
_HOLD_GIVEN = ("torch.utils.data.", "torch.optim.", "torch.nn.parallel.")
_CONTAINERS = frozenset({"Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "DataParallel"})
"""Classes of torch.nn whose objects, as all of `_HOLD_GIVEN`, hold what they are given."""
_DISPLAYS = (ast.List, ast.Tuple, ast.Set, ast.Dict)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_IN_PAIRS = frozenset({"zip", "enumerate"})
"""Builtins that pass items on in tuples."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
MOST_STEPS = 1_000_000
"""From one expression to another, while the names of a submission are followed."""
MOST_MEANINGS = 12
"""Modules, or parts of them, that a name may stand for."""
_PUT = frozenset(
    {"append", "appendleft", "add", "insert", "extend", "extendleft", "setdefault", "update", "put", "put_nowait"}
)
"""Methods that put something into what they are called on."""
_PUT_ELSEWHERE = ("heapq.", "bisect.")
"""Modules whose functions put something into a list that they are given."""
_MOST_TEXTS, _LONGEST_TEXT = 200, 10_000
"""Texts that an expression can be, and their characters, as far as they are read."""


class TooMuchError(Exception):
    """The names of a submission lead to too many expressions."""


class Names:
    """The names of a notebook, as far as its text tells what they stand for.

    Attributes
    ----------
    paths
        After ``import torch.nn as nn``, ``nn`` is ``torch.nn``. Of a name that stands for several things, the last.
    meanings
        All that a name stands for anywhere in the notebook.
    starred
        Those that ``from torch.nn import *`` bound: its author may not know of them.
    brought
        For each module that was handed in, what its names stand for.
    functions, classes, private
        The functions and classes of the notebook's own, and the private attributes of these classes.
    of_self
        Methods that set, or reach into, what they are called on: it must be an object of their class.
    formats
        Classes whose objects take a format string.
    inherits
        By class, the private names of the libraries' classes that it inherits from.
    changes
        By function, the places of the parameters that it changes in place.
    """

    def __init__(self) -> None:
        self.paths: dict[str, str] = {}
        self.meanings: dict[str, set[str]] = {}
        self.starred: set[str] = set()
        self.brought: dict[str, dict[str, str]] = {}
        self.functions: set[str] = set()
        self.classes: set[str] = set()
        self.private: set[str] = set()
        self.of_self: set[str] = set()
        self._aliases: dict[str, set[str]] = {}
        self.formats: set[str] = set()
        self.changes: dict[str, set[int]] = {}
        self.inherits: dict[str, frozenset[str]] = {}
        self._bound: dict[str, list[ast.expr]] = {}
        self._held: dict[str, list[ast.expr]] = {}
        self._leads: dict[str, set[str]] = {}
        self._attributes: dict[str, list[tuple[ast.expr, frozenset[str]]]] = {}
        self._made: set[str] = set()
        self._fields: set[str] = set()
        self._in_class: dict[str, list[ast.expr]] = {}
        self._returns: dict[str, list[tuple[ast.expr, frozenset[str]]]] = {}
        self._odd_classes: set[str] = set()
        self._generators: set[str] = set()
        self._putting: set[str] = set()
        self._passed_on: set[str] = set()
        self.steps = 0
        """How many expressions have been followed."""

    def _step(self) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise TooMuchError

    def learn(self, tree: ast.Module | None, *, own: bool = False) -> None:
        """Remember what a cell's names stand for; with `own`, it is an answer's, and what it makes is its own."""
        if tree is None:
            return
        classes = [one for one in ast.walk(tree) if isinstance(one, ast.ClassDef)]
        methods = {id(one) for found in classes for one in found.body}
        called = {id(one.func) for one in ast.walk(tree) if isinstance(one, ast.Call)}
        self._passed_on |= _passed_on(tree) if own else set()
        self._putting |= {one.name for one in ast.walk(tree) if own and _puts(one)}  # type: ignore[attr-defined]
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.name if alias.asname else alias.name.split(".")[0]
                    self._mean(alias.asname or name, name)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if alias.name == "*":
                        stars = self.brought.get(node.module or "") or public.star(node.module or "")
                        for name, path in stars.items():
                            self._mean(name, path)
                        self.starred |= {name for name, path in stars.items() if path != name}  # no module by its name
                    else:
                        self._mean(alias.asname or alias.name, self._within(f"{node.module}.{alias.name}"))
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                self.functions.add(node.name)
                if own and not isinstance(node, ast.ClassDef):
                    given = parameters_of(node, method=id(node) in methods)
                    inside = [one for one in ast.walk(node) if isinstance(one, (ast.Return, ast.Yield, ast.YieldFrom))]
                    found = [_item(one.value) if isinstance(one, ast.YieldFrom) else one.value for one in inside]
                    if not all(isinstance(one, ast.Return) for one in inside):
                        self._generators.add(node.name)
                    self._returns.setdefault(node.name, []).extend((one, given) for one in found if one is not None)
                if isinstance(node, ast.ClassDef):
                    self.classes.add(node.name)
                    if _may_make_anything(node) or not all(map(self._is_plain_base, node.bases)) or node.keywords:
                        self._odd_classes.add(node.name)
                    self._fields |= {one.target.id for one in node.body if _is_field(one)}  # type: ignore[attr-defined]
                    for target, value in (pair for inner in node.body if own for pair in bindings(inner)):
                        if isinstance(target, ast.Name):
                            self._in_class.setdefault(target.id, []).append(value)
                    for target, value in (pair for one in ast.walk(node) for pair in bindings(one)):
                        for one in ast.walk(target):
                            if isinstance(one, ast.Name):
                                self._aliases.setdefault(one.id, set()).update(names_loaded(value))
                if own and id(node) not in methods:
                    self._made.add(node.name)
                    for decorator in node.decorator_list:
                        if isinstance(decorator, ast.Name) and not self.path(decorator):
                            self._bound.setdefault(node.name, []).append(ast.Call(decorator, [ast.Constant(0)], []))
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                self.private.add(node.attr)
            else:
                for target, value in bindings(node):
                    self._bind(target, value, own=own)
                if isinstance(node, ast.Call):
                    self._put(node, own=own)
                if own and isinstance(node, ast.Attribute) and node.attr in _PUT and id(node) not in called:
                    self._hold(node.value, [_UNKNOWN])  # what the method is called with later is not followed
        for place, parameters in _scopes(tree) if own else ():
            for target, value in bindings(place):
                if isinstance(target, ast.Attribute):
                    self._attributes.setdefault(target.attr, []).append((value, parameters))
                    self._call_of(target.attr, value)

    def _is_plain_base(self, base: ast.expr) -> bool:
        """Whether a call of a class that inherits from this one gives an object of it."""
        if path := self.path(base):
            return public.makes_objects(path)
        name = base.id if isinstance(base, ast.Name) else ""
        known = name in self.classes - self._odd_classes or isinstance(vars(builtins).get(name), type)
        return known and name not in self._bound and name not in ("type", "super")

    def _bind(self, target: ast.expr, value: ast.expr, *, own: bool) -> None:
        if isinstance(target, ast.Starred):
            self._bind(target.value, value, own=own)
        elif isinstance(target, (ast.Tuple, ast.List)):
            same = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
            for number, one in enumerate(target.elts):
                self._bind(one, value.elts[number] if same else _item(value), own=own)  # type: ignore[attr-defined]
        elif isinstance(target, ast.Name):
            for path in self._all_paths(value):
                self._mean(target.id, path)
            if own:
                self._bound.setdefault(target.id, []).append(value)
                self._call_of(target.id, value)
                self._leads.setdefault(target.id, set()).update(_names_in(value))
        elif isinstance(target, ast.Subscript) and isinstance(root := root_of(target), ast.Name) and own:
            self._hold(root, [value])
            self._leads.setdefault(root.id, set()).update(_names_in(value))

    def _call_of(self, name: str, value: ast.expr) -> None:
        """Remember what a call of a name or an attribute returns, if a lambda is bound to it."""
        if isinstance(value, ast.Lambda):
            self._returns.setdefault(name, []).append((value.body, parameters_of(value, method=False)))

    def _put(self, call: ast.Call, *, own: bool) -> None:
        """Remember what a call puts into a list: a method of the list's, a library, or a function of the notebook's."""
        func, path = call.func, self.path(call.func)
        given = [*call.args, *(one.value for one in call.keywords)]
        if isinstance(func, ast.Attribute) and func.attr in _PUT:
            self._hold(func.value, given)
        elif path.startswith(_PUT_ELSEWHERE) and call.args:
            self._hold(call.args[0], call.args[1:])
        elif own and isinstance(func, ast.Name) and func.id in self._putting:
            for one in given:
                self._hold(one, [_UNKNOWN])

    def _hold(self, container: ast.expr, values: list[ast.expr]) -> None:
        if isinstance(root := root_of(container), ast.Name):
            self._held.setdefault(root.id, []).extend(values)

    def _mean(self, name: str, path: str) -> None:
        self.paths[name] = path
        self.meanings.setdefault(name, set()).add(path)

    def _all_paths(self, node: ast.expr) -> list[str]:
        """What an expression names of an imported module, in each meaning of its first name; the last at the end."""
        root, found = root_of(node), [self.path(node)]
        if isinstance(root, ast.Name):
            kept = self.paths
            for one in self.meanings.get(root.id, ()):
                self.paths = kept | {root.id: one}
                found.insert(0, self.path(node))
            self.paths = kept
        return [path for path in found if path]

    def look_ahead(self, trees: Iterable[ast.Module]) -> None:
        """Remember all that names stand for in cells to come: a function runs later than it is written."""
        ahead = Names()
        ahead.paths, ahead.meanings = dict(self.paths), self.meanings
        for tree in trees:
            ahead.learn(tree)

    def readings(self) -> Iterator[dict[str, str]]:
        """Paths of names, so often that each name has each of its meanings once."""
        several = {name: sorted(found) for name, found in self.meanings.items() if found != {self.paths.get(name)}}
        most = max(map(len, several.values()), default=1)
        if most > MOST_MEANINGS:
            raise TooMuchError
        for at in range(most):
            yield self.paths | {name: found[at % len(found)] for name, found in several.items()}

    def binds(self, name: str) -> bool:
        """Whether a cell gives a name a meaning of its own."""
        return name in self.functions or name in self._bound or name in self.meanings

    def binds_path(self, tree: ast.AST, name: str) -> bool:
        """Whether anything in a program makes a name stand for a module, or a part of one."""
        for node in ast.walk(tree):
            if isinstance(node, ast.alias) and name in (node.asname or node.name.split(".")[0], "*"):
                return True
            targets = [value for target, value in bindings(node) for one in ast.walk(target) if _is_named(one, name)]
            if any(map(self._all_paths, targets)):
                return True
        return False

    def path(self, node: ast.expr | None) -> str:
        """What an expression names of an imported module, such as ``torch.cuda``; empty if it is something else."""
        if isinstance(node, ast.Name):
            return self.paths.get(node.id, "")
        if isinstance(node, ast.Attribute) and (path := self.path(node.value)):
            return self._within(f"{path}.{node.attr}")
        if isinstance(node, ast.Call):
            if self.path(node.func) in _OF_LAB:
                return f"{self.path(node.func)}()"
            if isinstance(node.func, ast.Name) and node.func.id in allowed.PASSED_ON:
                return next((path for path in map(self.path, node.args) if "()" in path), "")
        if isinstance(node, ast.Subscript) and "()" in (path := self.path(node.value)):
            return path
        return ""

    def bring(self, module: str, tree: ast.Module) -> None:
        """Remember what the names of a module that was handed in stand for: ``helper.lab``."""
        inside = Names()
        inside.brought = self.brought
        inside.learn(tree)
        self.brought[module] = inside.paths

    def _within(self, path: str) -> str:
        """A path that leads through a module that was handed in, as what it leads to."""
        module, _, rest = path.partition(".")
        name, dot, more = rest.partition(".")
        found = self.brought.get(module, {}).get(name)
        return f"{found}{dot}{more}" if found else path

    def reached_from(self, node: ast.AST | None) -> set[str]:
        """The names by which an expression reaches what it stands for: ``model`` of ``[*model.parameters()][0]``."""

        def leads(name: str) -> set[str]:
            self._step()
            return self._leads.get(name, set())

        return reachable(_names_in(node), leads)

    def is_own(
        self,
        node: ast.AST,
        parameters: frozenset[str],
        seen: dict[str, bool] | None = None,
        held: frozenset[str] = frozenset(),
    ) -> bool:
        """Whether the answer itself made what an expression stands for: a list, an object, a function of its own.

        Parameters
        ----------
        parameters
            Those of the functions around the expression, without a method's first: what they are is not known.
        held
            The attributes, and `__getitem__` for an item, by which something is reached from it: if there are any, what
            it holds must be the answer's own, too.
        """
        self._step()
        root, seen = root_of(node), {} if seen is None else seen
        held = held.union(_held_in(node, root))
        if isinstance(root, ast.Name):
            if root.id in parameters:
                return False
            key = ".".join((root.id, *sorted(held)))
            if key not in seen:
                seen[key] = False  # what leads to itself was made nowhere
                bound, made = self._bound.get(root.id, []), root.id in self._made
                seen[key] = (self._hold_own(held, parameters, seen) if made else bool(bound)) and all(
                    self.is_own(one, parameters, seen, held) for one in [*bound, *self._held.get(root.id, ())]
                )
            return seen[key]
        if isinstance(root, ast.Call):
            return self._makes(root, parameters, seen, held)
        parts: list[ast.expr] = []
        if isinstance(root, (*_DISPLAYS, *_COMPREHENSIONS)):
            held = _of_items(held)
        if (items := _items(root)) is not None:
            parts = items
        elif isinstance(root, ast.DictComp):
            parts = [root.value]
        elif isinstance(root, ast.Starred):
            parts = [_item(root.value)]
        elif isinstance(root, ast.IfExp):
            parts = [root.body, root.orelse]
        elif isinstance(root, ast.BinOp):  # of two lists, a list with the items of both
            parts = [root.left, root.right]
        elif isinstance(root, ast.UnaryOp):
            parts = [root.operand]
        elif not isinstance(root, (ast.Constant, ast.Lambda, ast.JoinedStr, ast.Compare)):
            return False
        return all(self.is_own(one, parameters, seen, held) for one in parts)

    def _hold_own(self, held: Iterable[str], parameters: frozenset[str], seen: dict[str, bool]) -> bool:
        """Whether attributes, as far as classes of the notebook's have them, hold what the answer made."""
        return all(
            name not in self._fields
            and (name not in self._returns or self._returned_own(name, parameters, seen, given=False))
            and (name not in self._attributes or self.is_own_attribute(name))
            and all(self.is_own(one, parameters, seen) for one in self._in_class.get(name, ()))
            for name in {one.rstrip(_DEPTHS) for one in held}
        )

    def displays(self, node: ast.expr) -> list[ast.Dict]:
        """The ``{…}`` that an expression is, or that its name is bound to."""
        found = [node, *(self._bound.get(node.id, ()) if isinstance(node, ast.Name) else ())]
        return [one for one in found if isinstance(one, ast.Dict)]

    def is_written_out(self, node: ast.expr) -> bool:
        """Whether an expression is a ``{…}`` whose keys can be read, or a name that is bound to such alone."""
        parts = self._bound.get(node.id, []) if isinstance(node, ast.Name) else [node]
        filled = isinstance(node, ast.Name) and node.id in self._held
        return (
            bool(parts)
            and not filled
            and all(
                isinstance(one, ast.Dict) and all(isinstance(key, ast.Constant) for key in one.keys) for one in parts
            )
        )

    def may_be(self, method: str) -> set[str]:
        """The names that a method may have in the bodies of classes: with ``b = a`` there, `a` for `b`."""
        return reachable([method], lambda name: self._aliases.get(name, ()))

    def is_class(self, node: ast.expr) -> bool:
        """Whether an expression is, or holds, a class: one of the notebook's own, or the type of something."""
        names = self.reached_from(node)
        bound = [value for name in names for value in self._bound.get(name, ())]
        if names & self.classes or any(map(self._is_librarys_class, [node, *bound])):
            return True
        return any(
            (isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "type")
            or (isinstance(one, ast.Attribute) and one.attr == "__class__")
            for value in [node, *bound]
            for one in ast.walk(value)
        )

    def _is_librarys_class(self, node: ast.expr) -> bool:
        """Whether an expression is a class of a module, or an item of a list in which one stands."""
        if path := self.path(node):
            return path.rpartition(".")[2][:1].isupper()
        root = root_of(node)
        items: list[ast.expr] = getattr(root, "elts", None) or getattr(root, "values", None) or []
        return isinstance(root, _DISPLAYS) and any(map(self._is_librarys_class, items))

    def is_of_own_class(self, node: ast.expr, parameters: frozenset[str] = frozenset()) -> bool:
        """Whether an expression is a name that only stands for objects of the notebook's own classes."""
        made = self._bound.get(node.id, []) if isinstance(node, ast.Name) else [node]
        entered = all(_is_named(one, "self") for one, _ in self._returns.get("__enter__", ()))
        made = [one.value if entered and isinstance(one, _Entered) else one for one in made]
        functions = [one.func for one in made if isinstance(one, ast.Call)]
        known = self.classes - self._odd_classes - parameters
        return (
            bool(made)
            and len(functions) == len(made)
            and all(isinstance(one, ast.Name) and one.id in known for one in functions)
        )

    def is_object(self, node: ast.expr, parameters: frozenset[str], seen: frozenset[str] = frozenset()) -> bool:
        """Whether an expression is a name that only stands for objects that were made where they got it.

        Also for a function or a class of the answer's. This is what attributes may be set of. `is_own` follows what
        lists, methods and functions pass on; here nothing counts but a call of a class, or of a function of torch's or
        of the notebook's that makes something.
        """
        self._step()
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            if path := self.path(node.func):
                return "()" not in self.path(node) and _is_object_of(path)
            if name in self._bound or name in parameters | seen or not name:
                return False
            if name in self.classes:
                return name not in self._odd_classes
            returned = self._returns.get(name, [])
            return bool(returned) and all(self.is_object(one, given, seen | {name}) for one, given in returned)
        if isinstance(node, ast.IfExp):
            return all(self.is_object(one, parameters, seen) for one in (node.body, node.orelse))
        if isinstance(node, ast.Subscript):  # an item: of a list or a dict that the answer has written out
            return self._has_objects(node.value, parameters, seen)
        if isinstance(node, ast.Attribute):
            own = self.is_of_own_class(node.value, parameters) and self.is_object(node.value, parameters, seen)
            return own and self.is_object_attribute(node.attr, seen)
        if not isinstance(node, ast.Name) or node.id in parameters | seen:
            return False
        bound = self._bound.get(node.id, [])
        return (bool(bound) or node.id in self._made) and all(
            self.is_object(one, parameters, seen | {node.id}) for one in bound
        )

    def _has_objects(self, node: ast.expr, parameters: frozenset[str], seen: frozenset[str]) -> bool:
        """Whether all items of a list or a dict are objects that were made where they were put into it.

        Of a list that goes by its name alone: nothing else can put anything into it.
        """
        self._step()
        if isinstance(node, ast.Name) and node.id not in parameters | seen | self._passed_on:
            lists = self._bound.get(node.id, [])
            return (
                bool(lists)
                and all(self._has_objects(one, parameters, seen | {node.id}) for one in lists)
                and all(self.is_object(one, parameters, seen) for one in self._held.get(node.id, ()))
            )
        items = _items(node)
        return items is not None and all(self.is_object(one, parameters, seen) for one in items)

    def is_object_attribute(self, name: str, seen: frozenset[str] = frozenset()) -> bool:
        """Whether an attribute of that name holds only objects that were made where it is set."""
        bound, elsewhere = self._attributes.get(name, []), {*self._in_class, *self._returns, *self._fields}
        return (
            bool(bound)
            and name not in elsewhere
            and f".{name}" not in seen
            and all(self.is_object(value, parameters, seen | {f".{name}"}) for value, parameters in bound)
        )

    def is_own_attribute(self, name: str) -> bool:
        """Whether an attribute of that name holds only what the answer itself made, wherever it is set."""
        bound = self._attributes.get(name, [])
        return bool(bound) and all(self.is_own(value, parameters) for value, parameters in bound)

    def texts(
        self, node: ast.expr, parameters: frozenset[str], seen: frozenset[str] = frozenset(), *, part: bool = False
    ) -> list[str] | None:
        """The texts that an expression can be, if they can be read off the cells; None if they cannot.

        What no answer makes, such as an attribute of a library's object, is no text: that gives none. As `part` of a
        longer text, it may be one.
        """
        self._step()
        if isinstance(node, ast.Constant):
            return [node.value] if isinstance(node.value, str) else []
        parts: list[ast.expr] = []
        if isinstance(node, ast.Name):
            if node.id in parameters or (node.id not in self._bound and (part or node.id in self._made)):
                return None
            parts = [] if node.id in seen else self._bound.get(node.id, [])
            seen |= {node.id}
        elif isinstance(node, ast.Attribute):
            held = [] if f".{node.attr}" in seen else self._attributes.get(node.attr, [])
            parts = [*self._bound.get(node.attr, []), *(value for value, _ in held)]
            parameters = parameters.union(*(given for _, given in held))
            seen |= {f".{node.attr}"}
        elif isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            parts = node.elts
        elif isinstance(node, ast.Dict):
            parts = node.values
        elif isinstance(node, ast.IfExp):
            parts = [node.body, node.orelse]
        elif isinstance(node, ast.Subscript):
            parts = [node.value]
        elif isinstance(node, ast.JoinedStr) and all(isinstance(one, ast.Constant) for one in node.values):
            parts = node.values
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mult)):
            sides = [self.texts(one, parameters, seen, part=True) for one in (node.left, node.right)]
            if isinstance(node.op, ast.Mult) and any(sides):  # how often does not matter: three times show every seam
                return _as_far_as_read([text * 3 for side in sides for text in side or ()])
            left, right = sides
            if left is None or right is None or len(left) * len(right) > _MOST_TEXTS:
                return None
            return _as_far_as_read([one + other for one in left for other in right])
        else:
            return None
        found = [self.texts(one, parameters, seen, part=part) for one in parts]
        return None if None in found else _as_far_as_read([text for texts in found for text in texts or ()])

    def _makes(self, node: ast.Call, parameters: frozenset[str], seen: dict[str, bool], held: frozenset[str]) -> bool:
        """Whether a call makes something new: of a class or a function, not an accessor of what was there before."""
        func, path = node.func, self.path(node.func)
        name = func.id if isinstance(func, ast.Name) else ""
        if "()" in self.path(node) or name in parameters | _NOTHING_NEW:
            return False
        if path:
            objects = any(one.arg == "dtype" and ast.unparse(one.value) == "object" for one in node.keywords)
            passed_on = not _is_new(path) or (bool(held) and (objects or _holds_given(path)))
            return not passed_on or self._is_given_own(node, parameters, seen)
        if isinstance(func, ast.Lambda):
            return self.is_own(func.body, parameters | parameters_of(func, method=False), seen, held)
        if isinstance(func, ast.Attribute):
            name = func.attr
            if not self.is_own(func.value, parameters, seen):
                return False
        if name in self._returns:
            held = _of_items(held) if name in self._generators else held
            given = self._is_given_own(node, parameters, seen, held)
            return self._returned_own(name, parameters, seen, held, given=given)
        builtin = isinstance(func, ast.Name) and name in allowed.PASSED_ON and not self._bound.get(name)
        if not builtin and not self._hold_own(held, parameters, seen):
            return False
        if not name or not all(self._calls_own(one, parameters, seen) for one in self._bound.get(name, ())):
            return False
        passing = allowed.ITEMS_OF | allowed.GIVES_BACK if isinstance(func, ast.Attribute) else allowed.PASSED_ON
        if name in passing:
            return self._is_given_own(
                node, parameters, seen, _of_items(held) if builtin and name in _IN_PAIRS else held
            )
        known = {*self._attributes, *self._returns, *self._in_class}
        inherited = bool(held) and isinstance(func, ast.Name) and not any(one.rstrip(_DEPTHS) in known for one in held)
        return not inherited or self._is_given_own(node, parameters, seen)

    def _calls_own(self, function: ast.expr, parameters: frozenset[str], seen: dict[str, bool]) -> bool:
        """Whether calling what is bound to a name gives what the answer made: of a closure, its inner function."""
        made = function.func.id if isinstance(function, ast.Call) and isinstance(function.func, ast.Name) else ""
        inner = [
            one.id for one, _ in self._returns.get(made, ()) if isinstance(one, ast.Name) and one.id in self._returns
        ]
        return all(self._returned_own(one, parameters, seen, given=True) for one in inner)

    def _is_given_own(
        self, call: ast.Call, parameters: frozenset[str], seen: dict[str, bool], held: frozenset[str] = frozenset()
    ) -> bool:
        """Whether the answer made all that a call is given, and with `held`, what is reached by that."""
        given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg != "key")]
        made = [one.body if isinstance(one, ast.Lambda) else one for one in given]  # it may be called, and returned
        return all(self.is_own(one, parameters, seen, held) for one in made)

    def _returned_own(
        self,
        name: str,
        parameters: frozenset[str],
        seen: dict[str, bool],
        held: frozenset[str] = frozenset(),
        *,
        given: bool,
    ) -> bool:
        """Whether a function of the notebook's returns what the answer made: not what it was given, or has found.

        Parameters
        ----------
        given
            Whether the answer made what it was given.
        """
        key = f"{name}({given}){sorted(held)}"
        known = seen.get(key)
        if known is None:
            seen[key] = True  # what it returns of itself is what it returns else
            known = seen[key] = all(
                True
                if _is_named(one, "self")  # an object of a class of its own
                else given
                if isinstance(root := root_of(one), ast.Name) and root.id in inner
                else self.is_own(one, inner, seen, held)
                for one, inner in self._returns[name]
            )
        return known


def _puts(node: ast.AST) -> bool:
    """Whether a node is a function that puts something into what it is given."""
    given = parameters_of(node, method=False) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else ()
    calls = (one for one in ast.walk(node) if given and isinstance(one, ast.Call))
    return any(
        isinstance(one.func, ast.Attribute)
        and one.func.attr in _PUT
        and isinstance(root := root_of(one.func), ast.Name)
        and root.id in given
        for one in calls
    )


def _passed_on(tree: ast.AST) -> set[str]:
    """The names whose values are reached in other ways than by them: as an argument, by another name, in a list."""
    kept = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Subscript, ast.For, ast.comprehension)):
            kept.add(id(node.iter if isinstance(node, (ast.For, ast.comprehension)) else node.value))
        elif isinstance(node, ast.Call):
            func = node.func
            if isinstance(func, ast.Attribute) and func.attr in _PUT | allowed.ITEMS_OF:
                kept.add(id(func.value))
            elif isinstance(func, ast.Name) and func.id in _ONLY_READ:
                kept |= set(map(id, node.args))
    loaded = (one for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load))
    return {one.id for one in loaded if id(one) not in kept}


_ONLY_READ = frozenset({"len", "enumerate", "zip", "sum", "any", "all", "print", "reversed", "sorted"})
"""Builtins that put nothing into what they are given, and do not return it."""


def _held_in(node: ast.AST, root: ast.AST) -> set[str]:
    """The attributes, and `__getitem__` for items, by which an expression leads from its root."""
    held, depth = set[str](), 0
    while node is not root and isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, _Item):
            depth += 1
            held.add(f"{node.by}{depth}")
        else:
            held.add(node.attr if isinstance(node, ast.Attribute) else "__getitem__")
        node = node.value
    return held


_UNKNOWN = ast.Await(ast.Constant(0))
"""Something that the answer did not make, as far as is known."""


class _Item(ast.Subscript):
    """An item that a loop, a pattern or unpacking takes from something, or what ``with`` makes of it."""

    by = "__iter__"


class _Entered(_Item):
    by = "__enter__"


_DEPTHS = "123456789"
"""What `_held_in` writes behind the name of a method: an item of an item is one deeper."""


def _item(value: ast.expr, kind: type[_Item] = _Item) -> ast.expr:
    return kind(value, ast.Constant(0), ast.Load())


def _of_items(held: frozenset[str]) -> frozenset[str]:
    """What is reached from the items of a list, where `held` is reached from the list."""
    deepest = max((one for one in held if one.startswith(_Item.by)), default="")
    return held - {deepest}


def _is_field(node: ast.stmt) -> bool:
    """Whether a statement in a class is a field, as dataclasses and named tuples have them."""
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)


def _holds_given(path: str) -> bool:
    """Whether objects of a class of torch's hold what they are given."""
    return path.startswith(_HOLD_GIVEN) or path.rpartition(".")[2] in _CONTAINERS


_FACTORIES = frozenset({"zeros", "ones", "empty", "full", "tensor", "arange", "linspace", "eye", "rand", "randn"})
"""Functions of torch's that make a tensor of numbers."""


def _is_object_of(path: str) -> bool:
    """Whether a library's class or function makes an object that nothing else can stand for."""
    home, _, name = path.rpartition(".")
    return (home == "torch" and name in _FACTORIES) or (name[:1].isupper() and not path.startswith("typing"))


def _may_make_anything(node: ast.ClassDef) -> bool:
    """Whether a call of a class may give something else than an object of it: by `__new__`, or by a decorator."""
    words = {ast.unparse(getattr(one, "func", one)).rpartition(".")[2] for one in node.decorator_list}
    return not words <= {"dataclass"} or any(getattr(one, "name", "") == "__new__" for one in node.body)


def _items(node: ast.AST) -> list[ast.expr] | None:
    """What stands for the items of a list, a tuple, a set or a dictionary that is written out; None for all else."""
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return node.elts
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        return [node.elt]
    return node.values if isinstance(node, ast.Dict) else None


def _is_new(path: str) -> bool:
    """Whether what a library's function or class returns is new, and not what it is given."""
    is_class = path.rpartition(".")[2][:1].isupper()
    kept = path.startswith(_RETURN_GIVEN) and not path.startswith(_NEW_OF_THESE)
    return path.partition(".")[0] in _MAKERS and (is_class or not kept)


def names_loaded(node: ast.AST) -> set[str]:
    """All names that are read in an expression or a statement."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}


def _names_in(node: ast.AST | None) -> set[str]:
    """The names by which an expression itself, as it is written, reaches what it stands for."""
    found, waiting = set[str](), [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.Name):
            found.add(one.id)
        elif isinstance(one, (ast.Attribute, ast.Subscript, ast.Starred, ast.NamedExpr)):
            waiting.append(one.value)
        elif isinstance(one, (ast.List, ast.Tuple, ast.Set)):
            waiting += one.elts
        elif isinstance(one, (ast.Dict, ast.BoolOp)):
            waiting += one.values
        elif isinstance(one, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            waiting += [part.iter for part in one.generators]
            waiting += [one.elt] if isinstance(one.elt, ast.Name) else []
        elif isinstance(one, ast.BinOp) and any(isinstance(part, _DISPLAYS) for part in (one.left, one.right)):
            waiting += [one.left, one.right]
        elif isinstance(one, ast.IfExp):
            waiting += [one.body, one.orelse]
        elif isinstance(one, ast.Call):
            if isinstance(one.func, ast.Name) and one.func.id in _LEAD_ON:
                waiting += one.args
            elif isinstance(one.func, ast.Attribute) and one.func.attr in allowed.ITEMS_OF:
                waiting.append(one.func.value)
    return found


def _is_named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _as_far_as_read(texts: list[str]) -> list[str] | None:
    return texts if len(texts) <= _MOST_TEXTS and sum(map(len, texts)) <= _LONGEST_TEXT else None


def bindings(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets with what they are bound to; to an item of it, in loops."""
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, ast.AugAssign):
        yield node.target, ast.BinOp(node.target, ast.Sub(), node.value)  # no text that can be read off
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        yield node.target, _item(node.iter)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield node.optional_vars, _item(node.context_expr, _Entered)
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield ast.Name(node.name, ast.Store()), ast.Call(ast.Name("Exception", ast.Load()), [_UNKNOWN], [])
    elif isinstance(node, ast.Call) and _is_named(node.func, "setattr") and len(node.args) == 3:
        owner, name, value = node.args
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            yield ast.Attribute(owner, name.value, ast.Store()), value
    elif isinstance(node, ast.Match):
        for case in node.cases:
            for pattern in ast.walk(case.pattern):
                if isinstance(pattern, (ast.MatchAs, ast.MatchStar)) and pattern.name:
                    whole = pattern is case.pattern
                    yield ast.Name(pattern.name, ast.Store()), node.subject if whole else _item(node.subject)
                elif isinstance(pattern, ast.MatchMapping) and pattern.rest:
                    yield ast.Name(pattern.rest, ast.Store()), node.subject


def _scopes(tree: ast.AST, parameters: frozenset[str] = frozenset()) -> Iterator[tuple[ast.AST, frozenset[str]]]:
    """Every node, with the parameters of the functions around it."""
    for node in ast.iter_child_nodes(tree):
        yield node, parameters
        yield from _scopes(node, parameters | parameters_of(node, method=isinstance(tree, ast.ClassDef)))


def parameters_of(node: ast.AST, *, method: bool) -> frozenset[str]:
    """The parameters of a function, without the first of a method."""
    if not isinstance(node, _FUNCTIONS):
        return frozenset()
    given = [*node.args.posonlyargs, *node.args.args][1 if method else 0 :] + node.args.kwonlyargs
    return frozenset(one.arg for one in [*given, node.args.vararg, node.args.kwarg] if one is not None)


class _Getattr(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        named = isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) >= 2
        if named and isinstance(name := node.args[1], ast.Constant) and str(name.value).isidentifier():
            read: ast.expr = ast.Attribute(node.args[0], str(name.value), ast.Load())
            if len(node.args) == 3:  # or the default
                read = ast.IfExp(ast.Constant(True), ast.copy_location(read, node), node.args[2])
            return ast.copy_location(ast.fix_missing_locations(read), node)
        return node


def without_getattr(tree: ast.Module) -> ast.Module:
    """Write ``getattr(x, "name")`` as ``x.name``, and with a default as ``x.name if True else default``."""
    changed: ast.Module = _Getattr().visit(tree)
    return changed
