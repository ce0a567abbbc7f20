"""The names that a program binds, in its own scope: not those of functions, classes and comprehensions within it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def bindings(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Each name that a program or a statement binds, with the line, in the order of the text."""
    if isinstance(node, DEFINITIONS):
        yield node.name, node.lineno
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id, node.lineno
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).split(".")[0], node.lineno
    elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name, node.lineno
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest, node.lineno
    inner: list[ast.AST] = []
    if isinstance(node, _COMPREHENSIONS):  # of these, only `:=` binds a name around them
        inner = [one.target for one in ast.walk(node) if isinstance(one, ast.NamedExpr)]
    elif isinstance(node, (*DEFINITIONS, ast.Lambda)):
        inner = _run_around(node)
    else:
        inner = list(ast.iter_child_nodes(node))
    for child in inner:
        yield from bindings(child)


def _run_around(node: ast.AST) -> list[ast.AST]:
    """What a definition or a lambda runs in the scope around it: decorators, defaults, annotations, bases."""
    inside = {id(one) for one in (node.body if isinstance(getattr(node, "body", None), list) else [node.body])}  # type: ignore[attr-defined]
    arguments = [node.args] if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) else []
    outside = [one for one in ast.iter_child_nodes(node) if id(one) not in inside and one not in arguments]
    given = [one for of in arguments for one in ast.iter_child_nodes(of)]
    annotations = [one.annotation for one in given if isinstance(one, ast.arg) and one.annotation is not None]
    return [*outside, *annotations, *(one for one in given if not isinstance(one, ast.arg))]


def names(node: ast.AST) -> set[str]:
    """The names that a program or a statement binds."""
    return {name for name, _ in bindings(node)}


def names_anywhere(tree: ast.AST) -> set[str]:
    """The names that a program binds, also within functions, classes and comprehensions."""
    found = names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, (*DEFINITIONS, ast.ExceptHandler)) and node.name:
            found.add(node.name)
    return found


def reachable(start: Iterable[str], leads: Callable[[str], Collection[str]]) -> set[str]:
    """The names, and all that they lead to, each by itself or through others."""
    found = set(start)
    waiting = [*found]
    while waiting:
        new = set(leads(waiting.pop())) - found
        found |= new
        waiting += new
    return found


def declared_global(node: ast.AST) -> set[str]:
    """The names that functions within a program may bind around them."""
    return {name for one in ast.walk(node) if isinstance(one, ast.Global) for name in one.names}
