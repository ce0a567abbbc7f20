"""What the names in a submission's cells stand for: modules, their functions, the simulated machine, recordings."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_OF_LAB = ("fakegpu_lab.machine", "fakegpu_lab.enable", "fakegpu_lab.record")
"""Functions whose results are followed: ``lab.machine().devices[0]``."""
_PASSED_ON = frozenset({"enumerate", "iter", "list", "next", "reversed", "sorted", "tuple", "zip"})
"""Builtins whose results have the items of their argument."""


class Meanings:
    """Names and the paths that they stand for: after ``import torch.nn as nn``, ``nn`` is ``torch.nn``.

    A name that stands for several things keeps the last path.
    """

    def __init__(self) -> None:
        self.paths: dict[str, str] = {}
        self.functions: set[str] = set()
        self.private: set[str] = set()

    def learn(self, tree: ast.Module | None) -> None:
        """Remember what a cell's names stand for, its functions, and the private attributes of its classes."""
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.name if alias.asname else alias.name.split(".")[0]
                    self.paths[alias.asname or name] = name
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.paths[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                self.private.add(node.attr)
            else:
                for target, value in _bindings(node):
                    self._bind(target, self.path(value))

    def _bind(self, target: ast.expr, path: str) -> None:
        if path and isinstance(target, ast.Name):
            self.paths[target.id] = path
        elif path and isinstance(target, (ast.Tuple, ast.List)):
            for one in target.elts:
                self._bind(one, path)

    def path(self, node: ast.expr | None) -> str:
        """What an expression names of an imported module, such as ``torch.cuda``; empty if it is something else."""
        if isinstance(node, ast.Name):
            return self.paths.get(node.id, "")
        if isinstance(node, ast.Attribute) and (path := self.path(node.value)):
            return f"{path}.{node.attr}"
        if isinstance(node, ast.Call):
            if self.path(node.func) in _OF_LAB:
                return f"{self.path(node.func)}()"
            if isinstance(node.func, ast.Name) and node.func.id in _PASSED_ON:
                return next((path for path in map(self.path, node.args) if "()" in path), "")
        if isinstance(node, ast.Subscript) and "()" in (path := self.path(node.value)):
            return path
        return ""


def _bindings(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets with what they are bound to; to an item of it, in loops."""
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, (ast.For, ast.comprehension)):
        yield node.target, node.iter
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield node.optional_vars, node.context_expr


class _Getattr(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        named = isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) >= 2
        if named and isinstance(name := node.args[1], ast.Constant) and str(name.value).isidentifier():
            return ast.copy_location(ast.Attribute(node.args[0], str(name.value), ast.Load()), node)
        return node


def without_getattr(tree: ast.Module) -> ast.Module:
    """Write ``getattr(x, "name")`` as ``x.name``."""
    changed: ast.Module = _Getattr().visit(tree)
    return changed
