"""Which calls of a program can be reached at all: code that never runs meets no expectation.

It reads the text, so it finds what the text shows: branches that a constant rules out, what follows a `return`, loops
over nothing, functions that nobody names. A call under a condition that only turns out false while it runs is reached.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

_ENDS = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_CONSTANT = (ast.Constant, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Tuple, ast.List, ast.Dict, ast.Set,
             ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context)  # fmt: skip
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def calls(tree: ast.Module, elsewhere: Collection[str] | None = None) -> list[ast.Call]:
    """The calls of a program that can be reached.

    Parameters
    ----------
    elsewhere
        Names that the rest of the notebook reads: functions of these names may be called from there. With None, any
        function may.
    """
    waiting: list[tuple[str, list[ast.AST]]] = []
    found: list[ast.AST] = []
    names = set(elsewhere or ())
    todo: list[ast.AST] = [tree]
    while todo:
        for node in _live(todo, waiting):
            found.append(node)
            names.update(_read(node))
        called = [one for one in waiting if elsewhere is None or not one[0] or one[0] in names]
        waiting = [one for one in waiting if one not in called]
        todo = [node for _, body in called for node in body]
    return [node for node in found if isinstance(node, ast.Call)]


def read_names(tree: ast.AST | None) -> set[str]:
    """The names that a program reads, by whatever way: as names, attributes, or texts."""
    return {name for node in (ast.walk(tree) if tree is not None else ()) for name in _read(node)}


def _read(node: ast.AST) -> Iterable[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        return (node.attr,)
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
        return (node.value,)
    return ()


def _live(nodes: Iterable[ast.AST], waiting: list[tuple[str, list[ast.AST]]]) -> Iterator[ast.AST]:
    """Nodes that run, and those below them; the bodies of functions go to `waiting`, with the names to call them by."""
    for node in nodes:
        yield node
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, _FUNCTIONS):
            name = "" if node.decorator_list or _is_special(node.name) else node.name
            waiting.append((name, _until_end(node.body)))
            children = [*node.decorator_list, node.args]
        elif isinstance(node, ast.ClassDef):
            methods = [one for one in node.body if isinstance(one, _FUNCTIONS)]
            name = "" if node.decorator_list else node.name
            waiting += [(name, [*one.decorator_list, one.args, *_until_end(one.body)]) for one in methods]
            children = [child for child in children if child not in methods]
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda) and _only_name(node):
            waiting.append((_only_name(node), [node.value.body]))
            children = [node.value.args]
        elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
            children = _of_condition(node)
        elif isinstance(node, ast.BoolOp):
            children = _of_operands(node)
        elif isinstance(node, (ast.For, ast.AsyncFor)) and _is_nothing(node.iter):
            children = [node.iter, *node.orelse]
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            children = [] if any(map(_never, node.generators)) else children
        yield from _live(_without_dead(node, children), waiting)


def _without_dead(node: ast.AST, children: list[Any]) -> list[ast.AST]:
    """Without the statements of a block that follow its end."""
    dead: set[ast.AST] = set()
    for block in ("body", "orelse", "finalbody"):
        statements = getattr(node, block, None)
        if isinstance(statements, list):
            dead.update(statements[len(_until_end(statements)) :])
    return [child for child in children if child not in dead]


def _until_end(body: list[Any]) -> list[ast.AST]:
    end = next((at + 1 for at, one in enumerate(body) if isinstance(one, _ENDS)), len(body))
    return list(body[:end])


def _of_condition(node: ast.If | ast.IfExp | ast.While) -> list[Any]:
    body, orelse = ([one] if isinstance(one, ast.AST) else one for one in (node.body, node.orelse))
    true = _truth(node.test)
    taken = {True: body if not isinstance(node, ast.While) else [*body, *orelse], False: orelse, None: [*body, *orelse]}
    return [node.test, *taken[true]]


def _of_operands(node: ast.BoolOp) -> list[ast.AST]:
    stops = isinstance(node.op, ast.Or)
    found: list[ast.AST] = []
    for one in node.values:
        found.append(one)
        if _truth(one) is stops:
            break
    return found


def _never(part: ast.comprehension) -> bool:
    return _is_nothing(part.iter) or any(_truth(one) is False for one in part.ifs)


def _is_nothing(node: ast.expr) -> bool:
    """Whether a loop over this has no turn."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        return len(node.args) == 1 and _truth(node.args[0]) is False
    return isinstance(node, (ast.Tuple, ast.List, ast.Dict, ast.Constant)) and _truth(node) is False


def _truth(node: ast.expr) -> bool | None:
    """Whether an expression is true, if its text alone says so; else None."""
    if isinstance(node, ast.Name):
        return {"__debug__": True, "TYPE_CHECKING": False}.get(node.id)
    if not all(isinstance(part, _CONSTANT) for part in ast.walk(node)):
        return None
    try:
        return bool(eval(compile(ast.Expression(node), "<constant>", "eval"), {"__builtins__": {}}))
    except Exception:  # a comparison of constants that cannot be compared fails there, too
        return None


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _only_name(node: ast.Assign) -> str:
    target = node.targets[0]
    return target.id if len(node.targets) == 1 and isinstance(target, ast.Name) else ""
