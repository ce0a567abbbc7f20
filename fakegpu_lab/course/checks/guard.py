"""Puts what a check compares and computes with through `comparable`: no answer can say yes to every question."""

from __future__ import annotations

import ast
from typing import Any

from fakegpu_lab.course.expect.comparable import asked, comparable, genuine
from fakegpu_lab.user_code import captured

NAMES: dict[str, Any] = {"_compared_by_check": comparable, "_used_by_check": genuine, "_asked_by_check": asked}
"""What a guarded statement needs."""
_COMPARED, _USED, _ASKED = NAMES
captured.leave_out(*NAMES.values())  # a function that a check defines and compiles has one graph


def guarded(statement: ast.stmt) -> ast.stmt:
    """Return a statement in which what is compared, and what is computed with, is looked at before."""
    changed: ast.stmt = _Guard().visit(_copied(statement))
    return changed


def _copied(tree: ast.AST) -> Any:
    """A copy of a tree, by its fields.

    ``copy.deepcopy`` would follow what others hang on nodes that all trees share: executing, with which IPython shows
    an error, gives ``Load()`` a parent in the file of that error.
    """

    def of(value: object) -> object:
        if isinstance(value, list):
            return [of(one) for one in value]
        return _copied(value) if isinstance(value, ast.AST) else value

    return ast.copy_location(type(tree)(**{name: of(value) for name, value in ast.iter_fields(tree)}), tree)


def _through(name: str, node: ast.expr, *texts: str) -> ast.expr:
    if isinstance(node, (ast.Constant, ast.Starred, ast.Lambda)):
        return node
    if name == _USED and isinstance(node, ast.Name):
        texts = (node.id,)
    call = ast.Call(ast.Name(name, ast.Load()), [node, *map(ast.Constant, texts)], [])
    return ast.fix_missing_locations(ast.copy_location(call, node))


class _Guard(ast.NodeTransformer):
    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        node.left, *node.comparators = (_through(_COMPARED, one) for one in (node.left, *node.comparators))
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        node.operand = _through(_COMPARED if isinstance(node.op, ast.Not) else _USED, node.operand)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        node.left, node.right = _through(_USED, node.left), _through(_USED, node.right)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Of a value; modules have no class of the notebook's own, and stay."""
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load) and not (isinstance(node.value, ast.Name) and node.value.id in _MODULES):
            node.value = _through(_ASKED, node.value, node.attr)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            node.value = _through(_USED, node.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        asks = isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "bool")
        node.args = [_through(_COMPARED if asks and not at else _USED, one) for at, one in enumerate(node.args)]
        for keyword in node.keywords:
            keyword.value = _through(_USED, keyword.value)
        return node


_MODULES = frozenset({"expect", "lab", "torch"})
