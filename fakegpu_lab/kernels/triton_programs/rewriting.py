"""Rewrites a kernel's source so that Python can run it: where Triton's compiler gives syntax a meaning of its own.

Calls, assignments, conditions, comparisons and `assert` become calls of `meaning`. The names of these functions reach
the kernel through a closure, so that the user's module gets no new names; lines stay those of the user's file.
"""

from __future__ import annotations

import ast
from typing import Any

from triton.runtime.jit import JITFunction

_PREFIX = "__lab_"
_HELPERS = ("call", "method", "value", "true", "both", "either", "invert", "compare", "claim", "plain", "again")


def _help(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(func=ast.Name(id=_PREFIX + name, ctx=ast.Load()), args=list(arguments), keywords=[])


def _later(expression: ast.expr) -> ast.Lambda:
    none = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(args=none, body=expression)


class _Rewriter(ast.NodeTransformer):
    def __init__(self, constants: set[str]) -> None:
        self._constants = constants

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self._constants and isinstance(node.ctx, ast.Load):
            return ast.copy_location(_help("plain", node), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute):
            helper = _help("method", node.func.value, ast.Constant(node.func.attr), *node.args)
        else:
            helper = _help("call", node.func, *node.args)
        helper.keywords = node.keywords
        return ast.copy_location(helper, node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        node.value = ast.copy_location(_help("value", node.value), node.value)
        return node

    def _condition(self, node: Any) -> ast.AST:
        self.generic_visit(node)
        node.test = ast.copy_location(_help("true", node.test), node.test)
        return node  # type: ignore[no-any-return]

    visit_If = visit_IfExp = _condition  # noqa: N815

    def visit_While(self, node: ast.While) -> ast.AST:
        self.generic_visit(node)
        node.test = ast.copy_location(_help("again", node.test), node.test)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = "both" if isinstance(node.op, ast.And) else "either"
        found = node.values[0]
        for value in node.values[1:]:
            found = ast.copy_location(_help(name, found, _later(value)), node)
        return found

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return ast.copy_location(_help("invert", node.operand), node) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        operands = [node.left, *node.comparators]
        pairs = [
            ast.Compare(left=left, ops=[op], comparators=[right])
            for left, op, right in zip(operands, node.ops, operands[1:], strict=False)
        ]
        return ast.copy_location(_help("compare", *pairs), node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self.generic_visit(node)
        message = node.msg or ast.Constant("")
        return ast.copy_location(ast.Expr(value=_help("claim", node.test, _later(message))), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list = []
        for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
            argument.annotation = None
        node.returns = None
        node.body = [self.visit(statement) for statement in node.body]
        return node


def rewritten(tree: ast.Module, first_line: int, function: Any, meaning: Any, constants: set[str]) -> Any:
    """The function that runs a kernel.

    Parameters
    ----------
    tree
        The parsed kernel, a module with one function.
    first_line
        The line of its ``def`` in the user's file.
    function
        The user's function: its globals, its closure and its defaults are used.
    meaning
        Has the functions that the new code calls.
    constants
        Names outside the kernel of constants (`tl.constexpr`): the kernel computes with their values.
    """
    definition: Any = _Rewriter(constants).visit(tree.body[0])
    closure = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    names = [*(_PREFIX + helper for helper in _HELPERS), *closure]
    module = ast.parse(f"def factory({', '.join(names)}):\n    pass")
    factory: Any = module.body[0]
    factory.body = [definition, ast.Return(value=ast.Name(id=definition.name, ctx=ast.Load()))]
    definition.args.defaults = [ast.Constant(None)] * len(definition.args.defaults)
    definition.args.kw_defaults = [None if one is None else ast.Constant(None) for one in definition.args.kw_defaults]
    ast.fix_missing_locations(module)
    ast.increment_lineno(module, first_line - 1)
    space: dict[str, Any] = {}
    exec(compile(module, function.__code__.co_filename, "exec"), function.__globals__, space)
    helpers = {_PREFIX + helper: getattr(meaning, helper) for helper in _HELPERS}
    made = space["factory"](**helpers, **{name: cell.cell_contents for name, cell in closure.items()})
    made.__defaults__ = function.__defaults__
    made.__kwdefaults__ = function.__kwdefaults__
    return made


_known: dict[int, tuple[Any, bool]] = {}


def may_order(kernel: Any) -> bool:
    """Whether atomic operations may order the programs: one of the kernel, or of what it calls, has a result in use.

    A lock, a flag, or a counter of finished programs is such a result. ``tl.atomic_add(x, 1)`` alone orders nothing.
    """
    known = _known.get(id(kernel))
    if known is None or known[0] is not kernel:
        known = _known[id(kernel)] = (kernel, _search(kernel, set()))
    return known[1]


def _search(kernel: Any, seen: set[int]) -> bool:
    seen.add(id(kernel))
    alone: set[int] = set()
    for node in ast.walk(kernel.parse()):
        if isinstance(node, ast.Expr):
            alone.add(id(node.value))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name in ("atomic_cas", "atomic_xchg", "atomic_poll"):
                return True
            if name.startswith("atomic_") and id(node) not in alone:
                return True
    scope = kernel.get_capture_scope()
    called = (scope.get(name) for name in kernel.fn.__code__.co_names)
    return any(_search(one, seen) for one in called if isinstance(one, JITFunction) and id(one) not in seen)
