"""Flags for what an instructor should look at in a submission's source. They cost no points: it may be honest."""

from __future__ import annotations

import ast
import re

INSIDE = ("ledger", "recorder", "_recorder", "timeline", "counters", "_done", "_kept")
"""Attributes in which the simulated machine keeps its books; lessons read `record()` and `snapshot()` instead."""
FRAMES = ("_getframe", "f_back", "f_locals", "f_globals", "tb_frame", "gi_frame")
INNER = ("__code__", "__globals__", "__setattr__")
SHELL = ("ast_transformers", "input_transformers_cleanup", "input_transformers_post", "magics_manager")
_MODULES = ("fakegpu_lab.hardware", "fakegpu_lab.driver", "fakegpu_lab.session", "fakegpu_lab.course.grade")
_COURSE_FILES = re.compile(r"gradebook\.db|grades\.csv|HIDDEN TESTS|/proc/")
_NEVER_NEEDED = {"gc": "get_referrers", "os": "_exit"}


def code_of(source: str) -> str:
    """Return a cell's Python, with blank lines in place of magics and shell commands."""
    lines = source.split("\n")
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if lines[first].startswith("%%"):
        lines[: first + 1] = [""] * (first + 1)
    return "\n".join("" if re.match(r"\s*[%!?]", line) else line for line in lines)


def bound_names(source: str, *, definitions_only: bool = False) -> set[str]:
    """Names that a cell binds at its top level; with `definitions_only`, those of imports, functions and classes.

    A cell that cannot be parsed binds none.
    """
    try:
        body = ast.parse(code_of(source)).body
    except SyntaxError:
        return set()
    found: set[str] = set()
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif not definitions_only:
            found |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return found


def flags_in(source: str) -> list[str]:
    """Return what is suspicious in one of a student's cells, a phrase for each."""
    try:
        tree = ast.parse(code_of(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found = {
        f"line {getattr(node, 'lineno', 0)} {what}" for node in ast.walk(tree) for what in _suspicions(node) if what
    }
    return sorted(found)


def _suspicions(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Attribute):
        return [_about_attribute(node)]
    if isinstance(node, ast.Import):
        return [_about_import(alias.name) for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [_about_import(node.module or "")]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return [_about_call(node, node.func.id)]
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and _COURSE_FILES.search(node.value):
        return [f"names {node.value[:60]!r}"]
    return []


def _about_attribute(node: ast.Attribute) -> str:
    if node.attr in (*FRAMES, *INNER):
        return f"reads {node.attr}"
    if node.attr in INSIDE and _of_machine(node.value):
        return f"reaches into the simulated machine's books (.{node.attr})"
    if node.attr in SHELL:
        return f"changes how cells run (.{node.attr})"
    if isinstance(node.value, ast.Name) and _NEVER_NEEDED.get(node.value.id) == node.attr:
        return f"uses {node.value.id}.{node.attr}"
    if isinstance(node.ctx, ast.Store) and _of_package(node.value):
        return f"assigns to {ast.unparse(node)}"
    return ""


def _about_import(module: str) -> str:
    return f"imports {module}" if module.startswith(_MODULES) else ""


def _about_call(node: ast.Call, name: str) -> str:
    constant = all(isinstance(arg, ast.Constant) for arg in node.args[:2])
    if name in ("exec", "eval", "compile", "__import__") and not constant:
        return f"runs text as code ({name})"
    if name in ("setattr", "delattr") and node.args and _of_package(node.args[0]):
        return f"calls {ast.unparse(node)[:80]}"
    if name == "getattr" and not constant and len(node.args) > 1 and not _plain_name(node.args[1]):
        return f"puts an attribute's name together ({ast.unparse(node)[:80]})"
    return ""


def _plain_name(node: ast.expr) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute, ast.Constant))


def _of_machine(node: ast.expr) -> bool:
    """Whether this reaches the machine, as ``machine().…`` or ``….devices[0]`` does."""
    text = ast.unparse(node)
    return "machine" in text or "device" in text or "fakegpu" in text or "trace" in text or text == "lab"


def _of_package(node: ast.expr) -> bool:
    """Whether this belongs to the package, to ``expect`` or to builtins."""
    text = ast.unparse(node)
    return text.split(".")[0].split("(")[0] in ("fakegpu_lab", "lab", "expect", "builtins") or "machine()" in text
