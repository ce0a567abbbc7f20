"""Finds what ranks could pass data through without a message: they are threads, and share all that is around them.

A function that ranks run may collect results (``losses.append(loss)``), which are read when all have ended. What some
function changes and some function reads may carry data from one rank to another.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from fakegpu_lab.course.cell_text.source import root_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_CHANGES = frozenset({
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "put", "put_nowait", "remove", "set",
    "update", "write",
})  # fmt: skip
_TAKES = frozenset({"get", "get_nowait", "pop", "popitem", "popleft", "send", "setdefault"})
"""Methods that change something and return what was in it; `get` does so of a queue."""
_MAKES = frozenset({"__init__", "__new__", "__post_init__", "__enter__", "__exit__"})
"""Methods in which an honest object, such as a stopwatch, keeps what it reads later."""
_QUIET = frozenset({"print", "repr", "len", "display"})
_WRITES_FILES = frozenset(
    {"save", "savez", "write_text", "write_bytes", "dump", "tofile", "to_csv", "makedirs", "mkdir", "touch"}
)
_READS_FILES = frozenset(
    {"load", "read_text", "read_bytes", "fromfile", "loadtxt", "read_csv", "listdir", "iterdir", "scandir"}
)
_REMEMBERS = frozenset({"cache", "lru_cache"})


class Shared:
    """What the functions of a notebook's cells change, and what they read, of all that is around them.

    Parameters
    ----------
    used
        Paths that the lesson itself uses, such as ``torch.load``.
    """

    def __init__(self, used: set[str]) -> None:
        ends = {path.rpartition(".")[2] for path in used}
        self._files = not (ends & _READS_FILES and ends & _WRITES_FILES)
        self._changed: set[str] = set()
        self._read: dict[str, int] = {}

    def flags(self, tree: ast.Module, imported: Container[str] = ()) -> Iterator[str]:
        """Look at a cell; what is said of it, with those before it. Names in `imported` are those of libraries."""
        lines = dict[str, int]()
        for name, line, change in _uses(tree, self._files):
            if name in imported:
                continue
            if change:
                self._changed.add(name)
            else:
                self._read[name] = line
            lines[name] = max(lines.get(name, 0), line)
        for name in sorted(self._changed & self._read.keys() & lines.keys()):
            yield f"line {lines[name]}: ranks could pass data through {name}, without a message"


_A_FILE = "a file"


def _uses(tree: ast.Module, files: bool) -> Iterator[tuple[str, int, bool]]:
    """What functions use of all that ranks share: its name, the line, and whether it is changed."""
    shared = _Around(tree)
    for function, local, own in shared.functions():
        roots = _aliases(function, local, shared)
        for node in _inside(function):
            yield from _use(node, function, roots, own, shared)
            if files and isinstance(node, ast.Call):
                yield from _file(node)


class _Around:
    """The functions of a cell, with the names that belong to each of their calls alone."""

    def __init__(self, tree: ast.Module) -> None:
        self.parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self._tree = tree
        self._bindings: dict[ast.AST, set[str]] = {}
        outer = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and not self._function_of(node)]
        self.once = {node.func.id for node in outer if isinstance(node.func, ast.Name)}
        """Functions and classes that the cell itself calls: what they make is shared by all who use it."""
        self.own = {node.name for node in ast.walk(tree) if isinstance(node, _FUNCTION[:2])}
        self.remember = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, _FUNCTION[:2])
            and any(ast.unparse(getattr(one, "func", one)).split(".")[-1] in _REMEMBERS for one in node.decorator_list)
        }

    def _function_of(self, node: ast.AST) -> ast.AST | None:
        while (node := self.parents.get(node)) is not None:  # type: ignore[assignment]
            if isinstance(node, _FUNCTION):
                return node
        return None

    def functions(self) -> Iterator[tuple[ast.AST, set[str], str]]:
        """Each function; the names of its calls alone; and the name of a method's object, if that is shared."""
        for node in ast.walk(self._tree):
            if isinstance(node, _FUNCTION):
                local, around = set(self._bound(node)), self._function_of(node)
                while around is not None:
                    if getattr(around, "name", "") not in self.once:
                        local |= self._bound(around)
                    around = self._function_of(around)
                yield node, local, self._self_of(node)

    def _bound(self, function: ast.AST) -> set[str]:
        if function not in self._bindings:
            self._bindings[function] = _bound(function)
        return self._bindings[function]

    def _self_of(self, node: ast.AST) -> str:
        owner = self.parents.get(node)
        if not (isinstance(owner, ast.ClassDef) and owner.name in self.once and isinstance(node, _FUNCTION[:2])):
            return ""
        given = [*node.args.posonlyargs, *node.args.args]
        return given[0].arg if given and node.name not in _MAKES else ""


def _bound(function: ast.AST) -> set[str]:
    """The names that a function binds for each of its calls; a default that can change belongs to all of them."""
    assert isinstance(function, _FUNCTION)
    about = function.args
    given = [*about.posonlyargs, *about.args]
    pairs = [
        *zip(reversed(given), reversed(about.defaults), strict=False),
        *zip(about.kwonlyargs, about.kw_defaults, strict=True),
    ]
    kept = {
        one.arg
        for one, default in pairs
        if default is not None and not isinstance(default, (ast.Constant, ast.Name, ast.Attribute, ast.UnaryOp))
    }
    extra = [one for one in (about.vararg, about.kwarg) if one is not None]
    names = {one.arg for one in (*given, *about.kwonlyargs, *extra)} - kept
    outer = set[str]()
    for node in _inside(function):
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            outer |= set(node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (*_FUNCTION[:2], ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
    return names - outer


def _inside(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions in it."""
    body = getattr(function, "body", [])
    waiting: list[ast.AST] = [*body] if isinstance(body, list) else [body]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _FUNCTION):
            waiting += ast.iter_child_nodes(node)


def _aliases(function: ast.AST, local: set[str], shared: _Around) -> dict[str, str]:
    """By local name, what is around the function that it stands for."""
    found: dict[str, str] = {}
    for node in _inside(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Name, ast.Attribute, ast.Subscript)):
            root = root_of(node.value)
            if isinstance(root, ast.Name) and root.id not in local and not isinstance(node.value, ast.Subscript):
                found |= {one.id: root.id for one in node.targets if isinstance(one, ast.Name)}
    return found | dict.fromkeys(local - found.keys(), "")


def _use(
    node: ast.AST, function: ast.AST, roots: dict[str, str], own: str, shared: _Around
) -> Iterator[tuple[str, int, bool]]:
    if not isinstance(node, ast.Name):
        return
    name = roots.get(node.id, node.id)
    if node.id == own:
        name = f"{own} of {getattr(shared.parents[function], 'name', '')}"
    if not name:
        return
    if not isinstance(node.ctx, ast.Load):
        if name != node.id or node.id in roots:
            return
        yield name, node.lineno, True  # declared global
        return
    outermost, method, parent = _outermost(node, shared)
    if name in shared.remember and outermost is node:
        return
    stored = isinstance(outermost, (ast.Attribute, ast.Subscript)) and not isinstance(outermost.ctx, ast.Load)
    if stored or method in _CHANGES or (method.endswith("_") and not method.startswith("_")):
        yield name, node.lineno, True
    elif method in _TAKES or (isinstance(parent, ast.Call) and _called(parent) in {"next", *shared.own}
                              and outermost in parent.args and _called(parent) != name):  # fmt: skip
        if method != "get":
            yield name, node.lineno, True
        yield name, node.lineno, False
        if method == "get":
            return
    elif not (isinstance(parent, ast.Call) and _called(parent) in _QUIET):
        plain_call = isinstance(parent, ast.Call) and parent.func is node
        if not plain_call:
            yield name, node.lineno, False


def _outermost(node: ast.expr, shared: _Around) -> tuple[ast.expr, str, ast.AST | None]:
    """What a name leads to by attributes and items; the method that is called of it; and what is around it."""
    method = ""
    parent = shared.parents.get(node)
    while True:
        if isinstance(parent, (ast.Attribute, ast.Subscript)) and parent.value is node:
            above = shared.parents.get(parent)
            if isinstance(parent, ast.Attribute) and isinstance(above, ast.Call) and above.func is parent:
                method = parent.attr
                return parent, method, above
            node, parent = parent, above
        elif (
            isinstance(parent, ast.Call)
            and parent.func is node
            and isinstance(node, ast.Name)
            and node.id in shared.remember
        ):
            node, parent = parent, shared.parents.get(parent)
        else:
            return node, method, parent


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _file(call: ast.Call) -> Iterator[tuple[str, int, bool]]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else _called(call)
    if name in _WRITES_FILES or name in _READS_FILES:
        yield _A_FILE, call.lineno, name in _WRITES_FILES
    elif name == "open":
        mode = (
            call.args[1]
            if len(call.args) > 1
            else next((one.value for one in call.keywords if one.arg == "mode"), None)
        )
        reads = mode is None or (isinstance(mode, ast.Constant) and str(mode.value).startswith("r"))
        yield _A_FILE, call.lineno, not reads
