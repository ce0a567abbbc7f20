"""A cell's text as Python, and the names that it binds."""

from __future__ import annotations

import ast
import contextlib
import functools
import re
import symtable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.cell_text import bindings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_COMMANDS = 60
"""Lines of magics and shell commands in a cell that is read with them."""
DEEPEST = 150
"""Expressions and statements within one another in a cell that is read."""
_COMMAND = re.compile(r"^[ \t]*[%!?]|=[ \t]*[%!]|\?[ \t]*$", re.MULTILINE)
_WRITE = "%%writefile "
_RUN = frozenset({"time", "exercise", "check", "gpuprofile", "kernel", "ranks", "capture", "needs"})
"""Magics that run a cell as it is; ``%%timeit`` runs what is in its own line, too."""
RUNS = {"time": "", "timeit": "n:r:tcp:qov:", "memit": "r:t:ci:o"}
"""Magics whose argument is Python, with their options."""
_MOST_WITHIN = 5
"""Such magics in the argument of one another."""
EXPANDED = re.compile(r"[{$]")
"""IPython puts values of Python into a line of a magic, except of `RUNS`: ``%who {f(x)}``, ``!echo $name``."""


def code_of(source: str) -> str:
    """Return a cell's Python, with blank lines in place of magics and shell commands."""
    return "\n".join("" if re.match(r"\s*[%!?]", line) else line for line in source.split("\n"))


def python_of(source: str) -> str:
    """Return a cell's Python, with calls in the place of magics and shell commands, as IPython runs it.

    Its lines have the cell's numbers: an empty line is in the place of a magic that runs the cell.
    """
    text = transformed(source)
    lines = source.split("\n")
    empty = "\n" * next((at for at, line in enumerate(lines) if line.strip()), 0)  # IPython leaves them out
    words = _cell_magic(text)
    if len(words) == 3 and words[0] == "timeit":
        return empty + transformed(argument(*words[:2])).strip("\n") + "\n" + python_of(words[2])
    if len(words) == 3 and words[0] in _RUN and not EXPANDED.search(words[1]):
        return f"{empty}\n{python_of(words[2])}"
    return empty + text


def magics_of(source: str) -> list[tuple[str, str]]:
    r"""The magics around a cell that run it as it is, with their lines; the outermost is the first.

    >>> magics_of("%%time\n%%exercise one\nx = 1")
    [('time', ''), ('exercise', 'one')]
    """
    found: list[tuple[str, str]] = []
    words = _cell_magic(transformed(source))
    while len(words) == 3 and words[0] in _RUN | RUNS.keys() and len(found) < _MOST_WITHIN:
        found.append((words[0], words[1].strip()))
        words = _cell_magic(transformed(words[2]))
    return found


def _cell_magic(text: str) -> list[str]:
    """The magic's name, its line and its cell, if a cell is a call of a cell's magic and nothing else."""
    return _words(text) if text.startswith("get_ipython().run_cell_magic(") else []


def _words(text: str) -> list[str]:
    """The arguments of a call of the shell's, if that is all of a text, and they are texts."""
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        match ast.parse(text).body:
            case [ast.Expr(ast.Call(args=args))]:
                return [one.value for one in args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return []


def argument(magic: str, line: str) -> str:
    """The Python in a magic's line, as IPython takes it out; empty if it runs none."""
    from IPython.core import magic_arguments
    from IPython.core.error import UsageError
    from IPython.core.magic import Magics
    from IPython.core.magics.execution import ExecutionMagics

    if magic not in RUNS:
        return ""
    try:
        if magic == "time":
            function: Any = ExecutionMagics.time
            known = hasattr(function, "parser")  # since IPython 9
            return " ".join(magic_arguments.parse_argstring(function, line, partial=True)[1]) if known else line
        keep = magic == "timeit"
        options: Any = Magics.parse_options
        settings = {"posix": False, "strict": False, "preserve_non_opts": keep}
        return str(options(SimpleNamespace(options_table={}), line, RUNS[magic], **settings)[1])
    except (UsageError, ValueError):
        return ""  # IPython runs nothing of such a line


@functools.lru_cache(maxsize=1000)  # the lesson's own cells are in every notebook of a class
def transformed(text: str) -> str:
    """Return a text with calls in the place of magics and shell commands.

    IPython takes the square of their number: beyond `MOST_COMMANDS`, they are left out. A text that IPython cannot
    split into words stays as it is: Python will say what is wrong with it.
    """
    from IPython.core.inputtransformer2 import TransformerManager

    if commands(text) > MOST_COMMANDS:
        return code_of(text)
    try:
        return str(TransformerManager().transform_cell(text))
    except SyntaxError:
        return text


def commands(source: str) -> int:
    """The number of lines that may be magics or shell commands."""
    return len(_COMMAND.findall(source))


def written_file(source: str) -> tuple[str, str] | None:
    """Return the name and the text of the file that a cell writes with ``%%writefile``; None if it writes none."""
    first, _, text = source.lstrip().partition("\n")
    name = first.removeprefix(_WRITE).strip()
    if not first.startswith(_WRITE) or not name or name.startswith("-"):
        return None
    return name, text


def syntax_error(source: str, *, module: bool = False) -> str:
    """Return what Python says of a cell, or of a module, that it cannot parse; empty if it can."""
    try:
        ast.parse(source if module else python_of(source))
    except SyntaxError as error:
        return error.msg
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error) or "too deeply nested"
    return ""


def bound_names(source: str, *, definitions_only: bool = False) -> set[str]:
    """Names that a cell binds at its top level; with `definitions_only`, those of imports, functions and classes.

    A cell that cannot be parsed binds none.
    """
    return set(_bound_names(source, definitions_only))


@functools.lru_cache(maxsize=1000)
def _bound_names(source: str, definitions_only: bool) -> frozenset[str]:
    try:
        body = ast.parse(code_of(source)).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    kinds = (ast.Import, ast.ImportFrom, *bindings.DEFINITIONS) if definitions_only else ast.stmt
    return frozenset(name for node in body if isinstance(node, kinds) for name in bindings.names(node))


def tree_of(source: str, *, module: bool = False) -> ast.Module | None:
    """A cell's statements, or a module's; None if it is no Python, or if it is too deep to be read.

    What ``%time`` and the like run stands in their place.
    """
    try:
        tree = ast.parse(source) if module else _parsed(source, 0)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if depth(tree) <= DEEPEST else None


def _parsed(source: str, within: int) -> ast.Module:
    if within > _MOST_WITHIN:
        raise ValueError("magics within magics")
    tree: ast.Module = _Timed(within).visit(ast.parse(python_of(source)))
    return tree


class _Timed(ast.NodeTransformer):
    """Puts the Python that ``%time`` and the like run in their place, where they are statements."""

    def __init__(self, within: int) -> None:
        self._within = within

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        text = ""
        match node.value:
            case ast.Call(ast.Attribute(attr="run_line_magic"), [ast.Constant(str(magic)), ast.Constant(str(line))]):
                text = argument(magic, line)
        if not text:
            return self.generic_visit(node)
        try:
            found = _parsed(text, self._within + 1).body
        except SyntaxError:
            return node  # what is wrong with it is said where its text is looked at
        for one in [inner for statement in found for inner in ast.walk(statement)]:
            ast.copy_location(one, node)
        return found


def depth(tree: ast.AST) -> int:
    """How deep a tree is, found without recursion."""
    found, level = 0, [tree]
    while level:
        found, level = found + 1, [child for node in level for child in ast.iter_child_nodes(node)]
    return found


def class_names(source: str) -> set[str]:
    """The classes in a cell, by their qualified names: ``Loader``, ``make.<locals>.Loader``."""
    found: set[str] = set()

    def walk(node: ast.AST, before: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                found.add(before + child.name)
                walk(child, f"{before}{child.name}.")
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                walk(child, f"{before}{child.name}.<locals>.")
            else:
                walk(child, before)

    if (tree := tree_of(source)) is not None:
        walk(tree, "")
    return found


def binding(tree: ast.Module | None) -> Iterator[tuple[str, str]]:
    """Each name that a cell binds at its top level, with the statement that does so."""
    for statement in tree.body if tree is not None else ():
        text = ast.dump(statement)
        for name in bindings.names(statement):
            yield name, text


def read_names(checks: Iterable[str], given: Iterable[str], answers: Iterable[str]) -> set[str]:
    """Names that a lesson's own cells make and its checks read, also in the lesson's functions that they name.

    Parameters
    ----------
    checks, given, answers
        The texts of checks, of the lesson's other cells, and of its exercises with their solutions.
    """
    made = {name for source in given for name in bound_names(source)}
    functions = {one.get_name(): one for source in given for one in _scopes(source)}
    named = {name for source in checks for name in _outer_names(_table(source)) - bound_names(source)}
    read = bindings.reachable(named, lambda name: _outer_names(functions.get(name)))
    return (read & made) - {name for source in answers for name in bound_names(source) | _changed(source)}


class _AsGenerators(ast.NodeTransformer):
    """Comprehensions as generators, which have scopes of their own: those of lists are inlined since Python 3.13."""

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp) -> ast.GeneratorExp:
        self.generic_visit(node)
        return ast.GeneratorExp(node.elt, node.generators)

    def visit_SetComp(self, node: ast.SetComp) -> ast.GeneratorExp:
        return self.visit_ListComp(node)

    def visit_DictComp(self, node: ast.DictComp) -> ast.GeneratorExp:
        self.generic_visit(node)
        return ast.GeneratorExp(ast.Tuple([node.key, node.value], ast.Load()), node.generators)


@functools.lru_cache(maxsize=1000)
def _table(source: str) -> symtable.SymbolTable | None:
    tree = tree_of(source)
    try:
        return symtable.symtable(ast.unparse(_AsGenerators().visit(tree)), "<cell>", "exec") if tree else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _scopes(source: str) -> list[symtable.SymbolTable]:
    """The functions and classes at the top level of a cell."""
    table = _table(source)
    return table.get_children() if table is not None else []


def _outer_names(table: symtable.SymbolTable | None) -> set[str]:
    """The names that a scope and those within it read of the notebook."""
    if table is None:
        return set()
    top = table.get_type() == "module"
    own = {one.get_name() for one in table.get_symbols() if one.is_referenced() and (top or one.is_global())}
    return own.union(*map(_outer_names, table.get_children()))


def root_of(node: ast.AST) -> ast.AST:
    """Return what an attribute or an item is reached from: ``a`` of ``a.b[0].c``."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node


def _changed(source: str) -> set[str]:
    """The names of what a cell changes by assigning to its attributes or items."""
    tree = tree_of(source)
    roots = [
        root_of(node)
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store)
    ]
    return {root.id for root in roots if isinstance(root, ast.Name)}
