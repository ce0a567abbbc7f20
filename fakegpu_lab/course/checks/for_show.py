"""Finds what a check counts of a recording although no result uses it: work for show.

A statement that counts kernels, copies or collectives is run a second time, on recordings without those whose results
lead nowhere (`results`): neither to what the check looks at, nor to the host. If it is met only the first time, the
work was for show. Only statements that call nothing of the notebook's are run again. Copies are told apart from other
work: that the result of ``x.to("cuda")`` is thrown away is a common mistake of beginners.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import io
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.cell_text.bindings import names as bound_by
from fakegpu_lab.course.checks import checking
from fakegpu_lab.course.expect.outcome import RunningCheck
from fakegpu_lab.course.expect.plain_data.held import tensors_in
from fakegpu_lab.driver.recorder import results

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fakegpu_lab.course.checks.statements import Part
    from fakegpu_lab.trace import Trace

_RECORDS = frozenset({"kernels", "transfers", "collectives"})
_COUNTING = frozenset({"overlaps", "moves", "coalesced", "no_bank_conflicts"})
_RUNNING = frozenset({"run", "draw", "raises", "raises_oom", "allocated"})
_METHODS = frozenset({"append", "count", "endswith", "format", "get", "index", "items", "join", "keys", "lower",
                      "partition", "rpartition", "split", "startswith", "strip", "values"})  # fmt: skip
_BUILTINS = frozenset(name for name, value in vars(builtins).items() if callable(value)) - {"exec", "eval", "open"}


def keep(trace: Trace, *things: Any) -> None:
    """Let what a run returned and was given count as used in its recording."""
    results.keep(trace._recorder, tensors_in(things))


class ForShow:
    """The second run of a check's statements: its names, and which of the check's functions it may call."""

    def __init__(self) -> None:
        self._names: dict[str, Any] = {}
        self._functions: set[str] = set()
        self._counting: set[str] = set()

    def counted(self, part: Part, check: RunningCheck, names: dict[str, Any], held: Iterable[Any]) -> str:
        """Whether a statement that was met is met by ``"copies"`` or ``"work"`` for show alone; else empty.

        Parameters
        ----------
        check
            The check, which has run the statement.
        names
            Its names.
        held
            Values that it looks at: what they depend on is no show.
        """
        statement, met = part.statement, all(one.met for one in check.outcomes)
        bound = bound_by(statement)
        if isinstance(statement, ast.FunctionDef):
            if self._is_plain(statement):
                self._functions.add(statement.name)
                self._counting |= {statement.name} if self._counts(statement) else set()
            return ""
        if not (
            isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr, ast.If))
            and self._counts(statement)
            and self._is_plain(statement)
        ):
            for name in bound:
                self._names.pop(name, None)
            return ""
        tensors = list(tensors_in(held))
        again, mine = self._is_met_without(part, check, names, tensors, copies=True)
        kind = ""
        if check.outcomes and met and not again:
            kind = "copies" if self._is_met_without(part, check, names, tensors, copies=False)[0] else "work"
        self._names |= {name: mine[name] for name in bound if name in mine}
        return kind

    def _is_met_without(
        self, part: Part, check: RunningCheck, names: dict[str, Any], tensors: list[Any], *, copies: bool
    ) -> tuple[bool, dict[str, Any]]:
        """Whether a statement is met without the work on which no tensor depends; and its names then."""
        mine = {**names, **self._names}
        again = RunningCheck(check.attempt, check.file, trace=check.trace, run_error=check.run_error)
        again.not_made = set(check.not_made)
        with results.only_used(tensors, copies=copies), checking.running(again, io.StringIO()):
            outcomes = checking.run_part(dataclasses.replace(part, names=mine), again, mine)
        return all(one.met for one in outcomes), mine

    def _counts(self, node: ast.AST) -> bool:
        """Whether something looks at what a recording counts, or at what was made of that."""
        return any(
            (isinstance(one, ast.Attribute) and one.attr in _RECORDS | _COUNTING)
            or (isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load) and one.id in self._names)
            or (isinstance(one, ast.Name) and one.id in self._counting)
            for one in ast.walk(node)
        )

    def _is_plain(self, node: ast.AST) -> bool:
        """Whether it calls nothing that the notebook may have made."""
        return all(self._may_call(one.func) for one in ast.walk(node) if isinstance(one, ast.Call))

    def _may_call(self, function: ast.expr) -> bool:
        if isinstance(function, ast.Name):
            return function.id in _BUILTINS or function.id in self._functions
        if isinstance(function, ast.Attribute):
            of_expect = isinstance(function.value, ast.Name) and function.value.id == "expect"
            return function.attr not in _RUNNING if of_expect else function.attr in _METHODS
        return False
