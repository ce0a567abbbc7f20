"""Puts what a check compares through `seen.comparable`: an answer cannot return what says yes to every question."""

from __future__ import annotations

import ast
import copy

NAME = "_compared_by_check"
"""The name by which a check's statements find `seen.comparable`."""


def guarded(statement: ast.stmt) -> ast.stmt:
    """Return a statement in which what is compared is looked at before."""
    changed: ast.stmt = _Guard().visit(copy.deepcopy(statement))
    return changed


class _Guard(ast.NodeTransformer):
    def _guarded(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Constant):
            return node
        call = ast.Call(ast.Name(NAME, ast.Load()), [node], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        node.left, node.comparators = self._guarded(node.left), [self._guarded(one) for one in node.comparators]
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        node.operand = self._guarded(node.operand) if isinstance(node.op, ast.Not) else node.operand
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "bool") and node.args:
            node.args[0] = self._guarded(node.args[0])
        return node


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp,
           ast.GeneratorExp)  # fmt: skip


def assigned(node: ast.AST) -> set[str]:
    """The names that a statement sets where it stands, not in functions, classes and comprehensions within it."""
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Store) else set()
    return {name for child in ast.iter_child_nodes(node) if not isinstance(child, _SCOPES) for name in assigned(child)}
