"""What came of one expectation: met or not, and how that is told."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fakegpu_lab.course.expect.attempt import Attempt
    from fakegpu_lab.trace import Trace


class Said(TypedDict, total=False):
    """What an author may say about any expectation.

    Attributes
    ----------
    points
        What the part is worth (default: 1). Read from the check's text, so it must be a plain number there.
    what
        The expectation in a sentence of the author's, in place of the one it has.
    hint
        What to try, shown where it is not met, in place of the one it has.
    success, failure
        A word on it, shown where it is met, where it is not.
    """

    points: float
    what: str
    hint: str
    success: str
    failure: str


@dataclass(frozen=True)
class Outcome:
    """One expectation, after it was looked at.

    Attributes
    ----------
    met
        Whether it holds.
    what
        What was expected, as a sentence without a full stop.
    expected, found
        The two sides, where that says more than `what`.
    line
        The student's line that it is about, as ``file:number``; may be empty.
    hint, message
        What to try; what the author says to this outcome.
    credit
        The part of the points that it earns, from 0 to 1.
    """

    met: bool
    what: str
    expected: str = ""
    found: str = ""
    line: str = ""
    hint: str = ""
    message: str = ""
    credit: float = 0.0

    def __str__(self) -> str:
        """Tell all of it, a line each."""
        from fakegpu_lab.timeline.labels import place

        where = " ".join(place(self.line)).strip() if self.line else ""
        rows = (("expected", self.expected), ("found", self.found), ("your line", where), ("hint", self.hint))
        told = [f"  {name}: {text}" for name, text in rows if text and not self.met]
        return "\n".join([self.what, *([f"  {self.message}"] if self.message else []), *told])


class Unmet(AssertionError):  # noqa: N818 - reads as in a sentence
    """An expectation outside a check is not met: `expect` can be used as assertions in any test."""


@dataclass
class Looking:
    """A check that is being run.

    Attributes
    ----------
    attempt
        What the student's cell did; None if it has not run.
    file, statement
        The check's file name, and the part that is being run.
    outcomes
        Those of the part so far.
    trace
        The recording that ``expect.run`` made last.
    failed
        What that run raised.
    lost
        Names of the check's own that could not be made.
    """

    attempt: Attempt | None
    file: str
    statement: ast.stmt | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    trace: Trace | None = None
    failed: BaseException | None = None
    lost: set[str] = field(default_factory=set)

    def asked(self) -> ast.Call | None:
        """The call of an ``expect`` function that is being run, in the check's text."""
        frame = sys._getframe(1)
        function = ""
        while frame.f_back is not None and frame.f_code.co_filename != self.file:
            function = frame.f_code.co_name if frame.f_globals.get("__package__") == __package__ else function
            frame = frame.f_back
        line = frame.f_lineno
        for node in ast.walk(self.statement) if self.statement is not None else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == function:
                first, last = node.lineno, node.end_lineno or node.lineno
                if first <= line <= last:
                    return node
        return None


_looking: list[Looking] = []
"""The checks that are being run, the innermost last."""


def looking() -> Looking | None:
    """The check that is being run, if one is."""
    return _looking[-1] if _looking else None


def begin(look: Looking) -> None:
    """Let outcomes go to `look` until `end`."""
    _looking.append(look)


def end(look: Looking) -> None:
    """Let outcomes go where they went before."""
    del _looking[_looking.index(look) :]


def subject(default: str, position: int = 0) -> str:
    """How the check's text calls the argument at `position` of the expectation that is being run, between backquotes.

    Where there is no check, or the text is long, it is called by the `default`.
    """
    look = looking()
    call = look.asked() if look is not None else None
    if call is None or len(call.args) <= position:
        return default
    text = ast.unparse(call.args[position])
    return f"`{text}`" if len(text) <= 48 else default


def student_line() -> str:
    """The student's line that made what the expectation is about, as ``file:number``; empty if none is found."""
    look = looking()
    if look is None or look.attempt is None:
        return ""
    call = look.asked()
    names: Iterable[ast.AST] = ast.walk(call) if call is not None else ()
    for node in names:
        if isinstance(node, ast.Name) and node.id != "expect":
            line = look.attempt.made(node.id)
            if line:
                return line
    return ""


def report(
    said: Said,
    *,
    met: bool,
    what: str,
    expected: str = "",
    found: str = "",
    line: str = "",
    hint: str = "",
    credit: float | None = None,
) -> bool:
    """Tell the check that is being run what came of an expectation, and return whether it is met.

    Parameters
    ----------
    said
        What the author said of it.
    line
        The student's line; by default the one that made what it is about.
    credit
        The part of the points that it earns; by default all or nothing.

    Raises
    ------
    Unmet
        It is not met, and there is no check.
    """
    outcome = Outcome(
        met=met,
        what=_sentence(said.get("what", what)),
        expected=expected,
        found=found,
        line=line or ("" if met else student_line()),
        hint=said.get("hint", hint),
        message=said.get("success", "") if met else said.get("failure", ""),
        credit=float(met) if credit is None else min(max(credit, 0.0), 1.0),
    )
    look = looking()
    if look is not None:
        look.outcomes.append(outcome)
    elif not met:
        raise Unmet(str(outcome))
    return met


def _sentence(text: Any) -> str:
    return str(text).strip().rstrip(".")
