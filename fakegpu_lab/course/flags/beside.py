"""Libraries that no exercise needs, in functions of answers: there, a check runs them.

Tables, figures and command lines are at home in a student's own cells, and nobody minds them. But each large library
has its own ways of running text, setting attributes and reaching others' objects. So what a check calls is flagged if
it uses one of them, directly or through names of the notebook's own.
"""

from __future__ import annotations

import ast
import symtable
from typing import TYPE_CHECKING

from fakegpu_lab.course.cell_text.bindings import reachable
from fakegpu_lab.course.cell_text.source import tree_of
from fakegpu_lab.course.flags.names import Names, bindings, names_loaded
from fakegpu_lab.course.flags.policy import LONGEST

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

LIBRARIES = (
    "argparse", "base64", "calendar", "colorsys", "csv", "cycler", "difflib", "gzip", "hashlib", "html", "locale",
    "matplotlib", "mpl_toolkits", "pandas", "platform", "plotly", "rich", "scipy", "seaborn", "sympy", "tabulate",
    "uuid", "yaml", "zipfile", "zlib", "torch.export", "torch.fx", "torch.hub", "torch.jit", "torch.onnx",
    "torch.package", "torch.overrides", "torch.library", "torch.autograd.graph", "torch.autograd.profiler",
    "torch.profiler", "torch.utils.benchmark", "torch.utils.collect_env",
)  # fmt: skip
"""Libraries and parts of torch, unless the lesson itself uses them."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Beside:
    """What a submission's own cells use of such libraries.

    Parameters
    ----------
    used
        The paths that the lesson itself uses.
    given
        What names of the lesson's own cells stand for, of imported modules.
    """

    def __init__(self, used: Collection[str], given: Mapping[str, str] | None = None) -> None:
        self._libraries = [one for one in LIBRARIES if not any(_is_within(path, one) for path in used)]
        self._names = Names()
        self._names.paths |= given or {}
        self._names.meanings |= {name: {path} for name, path in (given or {}).items()}
        self._leads: dict[str, set[str]] = {}
        self._touched: dict[str, str] = {}

    def flags(self, texts: Iterable[tuple[str, str, bool, bool]]) -> Iterator[tuple[str, str]]:
        """What functions of answers use: the cell's id, and a phrase.

        Parameters
        ----------
        texts
            The id of each cell or file, its text, whether it is an exercise's answer, and whether it is a file.
        """
        read = (
            (place, tree_of(text, module=file), answer) for place, text, answer, file in texts if len(text) < LONGEST
        )
        cells = [(place, tree, answer) for place, tree, answer in read if tree is not None]
        for _, tree, _ in cells:
            self._names.learn(tree, own=True)
        for _, tree, _ in cells:
            for name, value in _bound(tree):
                self._leads.setdefault(name, set()).update(_free(value))
                if found := self._library(value):
                    self._touched.setdefault(name, found)
        for cell, tree, answer in cells:
            for node in ast.walk(tree) if answer else ():
                if isinstance(node, _FUNCTIONS) or _is_other_name(node):
                    yield from ((cell, f"line {getattr(node, 'lineno', 0)} {what}") for what in self._of(node))

    def _of(self, node: ast.AST) -> Iterator[str]:
        if found := self._library(node):
            yield f"uses {found} where a check runs it"
            return
        reached = reachable(_free(node), lambda name: self._leads.get(name, ())) & self._touched.keys()
        yield from (f"uses {name}, and so {self._touched[name]}, where a check runs it" for name in sorted(reached)[:1])

    def _library(self, node: ast.AST) -> str:
        """The first of the libraries that an expression or a function names; else empty."""
        for one in ast.walk(node):
            if not isinstance(one, (ast.Name, ast.Attribute)):
                continue
            paths = set(self._names.meanings.get(one.id, ())) if isinstance(one, ast.Name) else set()
            paths.add(self._names.path(one))
            for name in self._libraries:
                if any(_is_within(path, name) for path in paths):
                    return name
        return ""


def _is_within(path: str, library: str) -> bool:
    return f"{path}.".startswith(f"{library}.")


def _bound(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What names outside of functions are bound to; and attributes, with a dot, wherever they are."""
    inner = {
        id(one) for node in ast.walk(tree) if isinstance(node, _FUNCTIONS) for one in ast.walk(node) if one is not node
    }
    methods = {id(one) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for one in node.body}
    for node in ast.walk(tree):
        if isinstance(node, (*_FUNCTIONS[:2], ast.ClassDef)):
            yield f".{node.name}", node
            if id(node) not in inner and id(node) not in methods:
                yield node.name, node
        for target, value in bindings(node):
            for one in ast.walk(target):
                if isinstance(one, ast.Attribute):
                    yield f".{one.attr}", value
                elif isinstance(one, ast.Name) and id(one) not in inner:
                    yield one.id, value


def _free(node: ast.AST) -> set[str]:
    """The names of the notebook's that a function or an expression reads, and its attributes, with a dot."""
    read = {f".{one.attr}" for one in ast.walk(node) if isinstance(one, ast.Attribute)}
    if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        return read | names_loaded(node)
    try:
        table = symtable.symtable(ast.unparse(node), "", "exec")
    except SyntaxError:  # a part that cannot stand alone
        return read | names_loaded(node)
    scopes = [table]
    for scope in scopes:
        scopes += scope.get_children()
    return read | {one.get_name() for scope in scopes[1:] for one in scope.get_symbols() if one.is_global()}


def _is_other_name(node: ast.AST) -> bool:
    """Whether a statement gives a function another name: ``answer = helper``."""
    return isinstance(node, ast.Assign) and isinstance(node.value, (ast.Name, ast.Attribute))
