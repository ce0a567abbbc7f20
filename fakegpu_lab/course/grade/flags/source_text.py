"""What in a submission's text an instructor should look at. Nothing of it costs points: it may be honest."""

from __future__ import annotations

import ast
import re

INSIDE = ("ledger", "recorder", "_recorder", "timeline", "counters", "_done", "_kept")
"""Attributes of the simulated machine that are its books; a lesson reads `record()` and `snapshot()`."""
FRAMES = ("_getframe", "f_back", "f_locals", "f_globals", "tb_frame", "gi_frame")
INNER = ("__code__", "__globals__", "__setattr__")
SHELL = ("ast_transformers", "input_transformers_cleanup", "input_transformers_post", "magics_manager")
_MODULES = ("fakegpu_lab.hardware", "fakegpu_lab.driver", "fakegpu_lab.session", "fakegpu_lab.course.grade")
_COURSE = re.compile(r"gradebook\.db|grades\.csv|HIDDEN TESTS|/proc/")
_NEVER = {"gc": "get_referrers", "os": "_exit"}


def code_of(source: str) -> str:
    """Return a cell's Python: without the line of its cell magic, and with blank lines for line magics and commands."""
    lines = source.split("\n")
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if lines[first].startswith("%%"):
        lines[: first + 1] = [""] * (first + 1)
    return "\n".join("" if re.match(r"\s*[%!?]", line) else line for line in lines)


def look(source: str) -> list[str]:
    """Return sentences about one cell of a student's."""
    try:
        tree = ast.parse(code_of(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found: list[str] = []
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Attribute):
            if node.attr in (*FRAMES, *INNER):
                found.append(f"line {line} reads {node.attr}")
            elif node.attr in INSIDE and _of_machine(node.value):
                found.append(f"line {line} reaches into the simulated machine's books (.{node.attr})")
            elif node.attr in SHELL:
                found.append(f"line {line} changes how cells run (.{node.attr})")
            elif isinstance(node.value, ast.Name) and _NEVER.get(node.value.id) == node.attr:
                found.append(f"line {line} uses {node.value.id}.{node.attr}")
            elif isinstance(node.ctx, ast.Store) and _of_package(node.value):
                found.append(f"line {line} assigns to {ast.unparse(node)}")
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [f"line {line} imports {name}" for name in names if name.startswith(_MODULES)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            constant = all(isinstance(arg, ast.Constant) for arg in node.args[:2])
            if name in ("exec", "eval", "compile", "__import__") and not constant:
                found.append(f"line {line} runs text as code ({name})")
            elif name in ("setattr", "delattr") and node.args and _of_package(node.args[0]):
                found.append(f"line {line} calls {ast.unparse(node)[:80]}")
            elif name == "getattr" and not constant and len(node.args) > 1 and not _plain_name(node.args[1]):
                found.append(f"line {line} puts an attribute's name together ({ast.unparse(node)[:80]})")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _COURSE.search(node.value):
            found.append(f"line {line} names {node.value[:60]!r}")
    return sorted(set(found))


def _plain_name(node: ast.expr) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute, ast.Constant))


def _of_machine(node: ast.expr) -> bool:
    """Whether this is ``machine().…`` or ``….devices[0]``, however it is reached."""
    text = ast.unparse(node)
    return "machine" in text or "device" in text or "fakegpu" in text or "trace" in text or text == "lab"


def _of_package(node: ast.expr) -> bool:
    text = ast.unparse(node)
    return text.split(".")[0].split("(")[0] in ("fakegpu_lab", "lab", "expect", "builtins") or "machine()" in text
