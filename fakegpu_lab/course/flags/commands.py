"""Lines of IPython's in an answer: magics and commands of the shell."""

from __future__ import annotations

import ast
import re

from fakegpu_lab.course.cell_text.source import EXPANDED, RUNS, argument
from fakegpu_lab.course.flags import allowed

OF_SHELL = frozenset({"run_line_magic", "run_cell_magic", "system", "getoutput"})
"""Methods of the shell that IPython writes in the place of such lines."""
_CONFIG = re.compile(r"InlineBackend\.\w+\s*=\s*(.+)", re.DOTALL)
_JOINED = re.compile(r"[;&|`$><{\n]| -c")
"""What makes another command of a line of the shell; ``%pip`` and ``%conda`` are such lines, too."""


def python_in(node: ast.Call) -> str:
    """The Python that a magic runs; empty if it runs none."""
    words = _words(node.args)
    return argument(*words) if len(words) == 2 else ""


def about(kind: str, arguments: list[ast.expr], own: set[tuple[str, str]]) -> str:
    """What is suspicious about a line.

    Parameters
    ----------
    kind
        The method of the shell, one of `OF_SHELL`.
    own
        The magics of the lesson's own cells, with their lines.
    """
    words = _words(arguments)
    if len(words) < len(arguments) or not words:
        return "puts a command together"
    if kind in ("system", "getoutput"):
        program = words[0].strip().split(" ")[0]
        fine = program in allowed.COMMANDS and not _JOINED.search(words[0])
        return "" if fine else f"runs {words[0][:60]!r}"
    if kind == "run_cell_magic":
        return f"runs a cell inside a cell (%%{words[0]})"
    name, rest = words[0], words[1].strip() if len(words) > 1 else ""
    if name == "load_ext":
        return "" if rest in ("fakegpu_lab", "autoreload", "memory_profiler") else f"loads {rest}"
    if name in ("pip", "conda") and _JOINED.search(rest):
        return f"runs {f'%{name} {rest}'[:60]!r}"
    if name == "config" and rest and not _is_plain(rest):
        return f"sets %config {rest[:60]}"
    if name not in RUNS and EXPANDED.search(rest):
        return f"runs Python inside the line %{name} {rest[:60]}"
    if name == "fakegpu" and rest.split(" ")[0] not in allowed.OF_FAKEGPU and (name, rest) not in own:
        return f"chooses the GPUs (%fakegpu {rest[:40]})"
    if name == "lesson" and rest and (name, rest) not in own:
        return f"chooses another lesson (%lesson {rest[:40]})"
    return "" if name in allowed.MAGICS else f"uses the magic {name}"


def _is_plain(setting: str) -> bool:
    """Whether a line of %config sets something of the plots to a literal: IPython evaluates what it is set to."""
    found = _CONFIG.fullmatch(setting)
    if found is None:
        return False
    try:
        ast.literal_eval(found[1])
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return True


def _words(arguments: list[ast.expr]) -> list[str]:
    return [one.value for one in arguments if isinstance(one, ast.Constant) and isinstance(one.value, str)]
