"""The outcome of one expectation: whether it is met, and the sentences that say so."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from fakegpu_lab.recording_views.labels import place
from fakegpu_lab.user_code.frames import position, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from fakegpu_lab.course.expect.attempt import Attempt
    from fakegpu_lab.course.expect.plain_data.in_place import InPlace
    from fakegpu_lab.trace import Trace


class Said(TypedDict, total=False):
    """What an author can say about any expectation.

    Attributes
    ----------
    points
        What the part is worth (default: 1). It is read from the check's source, so it must be a plain number.
    what
        The author's own sentence for the expectation.
    hint
        The author's own advice, shown if the expectation is not met.
    success, failure
        A remark, shown if the expectation is met or if it is not.
    """

    points: float
    what: str
    hint: str
    success: str
    failure: str


@dataclass(frozen=True)
class Outcome:
    """The outcome of one expectation.

    Attributes
    ----------
    met
        Whether the expectation is met.
    what
        What was expected, as a sentence without a full stop.
    expected, found
        The two values, if they say more than `what`.
    line
        The student's line that it is about, as ``file:number``; may be empty.
    hint, message
        What to try; the author's remark on this outcome.
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
        """Write all of it, one item a line."""
        where = " ".join(place(self.line)).strip() if self.line else ""
        rows = (("expected", self.expected), ("found", self.found), ("line", where), ("hint", self.hint))
        lines = [f"  {name}: {text}" for name, text in rows if text and not self.met]
        return "\n".join([stated(self.what, self.met), *([f"  {self.message}"] if self.message else []), *lines])


NOTHING = "A value is None here: is a `return` missing in your code?"
"""What to try where something is needed, and there is none."""

_ONE = r"(?:`[^`]+`|it|value \d+|the \w+)"
_IS = re.compile(rf"((?:(?:all|every parameter) of )?{_ONE}(?: and {_ONE})*) (?:(is|are|has)( not)?|runs)\b")


def stated(what: str, met: bool) -> str:
    """An expectation as a statement, or, if it is not met, as what should be.

    >>> stated("`total` is 3.0", True), stated("`total` is 3.0", False), stated("`x` and `y` are not alike", False)
    ('`total` is 3.0', '`total` should be 3.0', '`x` and `y` should not be alike')
    >>> stated("the tensor has the shape (2,)", False), stated("your code calls `mm`", False)
    ('the tensor should have the shape (2,)', 'your code calls `mm`')
    >>> stated("`f(4)` runs without an error", False), stated("`x` has not changed", False)
    ('`f(4)` should run without an error', '`x` should not have changed')
    """
    found = None if met else _IS.match(what)
    if found is None:
        return what
    verb = {"has": "have", None: "run"}.get(found[2], "be")
    return f"{found[1]} should{found[3] or ''} {verb}{what[found.end() :]}"


class Unmet(AssertionError):  # noqa: N818 - reads as in a sentence
    """An expectation outside a check is not met: any test can use `expect` for its assertions."""


@dataclass(slots=True, eq=False)
class RunningCheck:
    """A check while it runs.

    Attributes
    ----------
    attempt
        What the student's cell did; None if it has not run.
    file, statement
        The check's file name, and the part that is running.
    own
        Names that the check itself binds, also within functions and comprehensions: they are not the student's.
    earlier
        The file names of checks that ran before: this one may call what they defined.
    outcomes
        The outcomes of that part so far.
    trace
        The last recording of ``expect.run``.
    run_error
        What that run raised.
    not_made
        Names that the check would have assigned in statements that failed.
    function
        The expectation that is looked at.
    call
        Its call in the check's source, if that is known already.
    observed
        Called with each expectation's name and what it saw; it cannot be replaced.
    crashed
        The outcomes that say that a statement failed.
    endless
        Whether a statement had no end.
    answered
        The attributes that the check read of objects of the notebook's own classes: names of class and attribute.
    keep
        Called with the recording of ``expect.run``, and with what the function returned and was given; None outside
        grading.
    used
        Looks at the values that a statement computes with, to find those that change in place; None outside grading.
    """

    attempt: Attempt | None
    file: str
    statement: ast.stmt | None = None
    own: frozenset[str] = frozenset()
    earlier: Collection[str] = ()
    outcomes: list[Outcome] = field(default_factory=list)
    trace: Trace | None = None
    run_error: BaseException | None = None
    not_made: set[str] = field(default_factory=set)
    function: str = ""
    call: ast.Call | None = None
    observed: Callable[[str, dict[str, Any]], None] | None = None
    crashed: list[Outcome] = field(default_factory=list)
    endless: bool = False
    answered: list[tuple[type, str]] = field(default_factory=list)
    keep: Callable[[Trace, Any], None] | None = None
    used: InPlace | None = None

    def __setattr__(self, name: str, value: object) -> None:
        if name == "observed" and hasattr(self, name):
            raise AttributeError("What a check reports to cannot be replaced.")
        object.__setattr__(self, name, value)

    def expect_call(self) -> ast.Call | None:
        """The call of an ``expect`` function that is running, in the check's source."""
        if self.call is not None:
            return self.call
        stack = list(walk(sys._getframe(1)))
        frame = next((frame for frame in stack if frame.f_code.co_filename == self.file), stack[-1])
        calls = [
            node
            for node in (ast.walk(self.statement) if self.statement is not None else ())
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == self.function
        ]
        here = [node for node in calls if node.lineno <= frame.f_lineno <= (node.end_lineno or node.lineno)]
        return next(
            (node for node in here if position(frame.f_code, frame.f_lasti) == (node.lineno, node.col_offset)),
            here[0] if here else None,
        )


_running: list[RunningCheck] = []
"""The checks that are running, the innermost last."""


def running_check() -> RunningCheck | None:
    """The check that is running, if any."""
    return _running[-1] if _running else None


def begin(check: RunningCheck) -> None:
    """Collect outcomes in `check` until `end`."""
    _running.append(check)


def end(check: RunningCheck) -> None:
    """Collect outcomes where they went before `check` began."""
    del _running[_running.index(check) :]


def subject(default: str, position: int = 0) -> str:
    """The source of the argument at `position` in the running ``expect`` call, between backquotes.

    It is `default` outside a check, and if the source is long.
    """
    check = running_check()
    call = check.expect_call() if check is not None else None
    if call is None or len(call.args) <= position:
        return default
    text = ast.unparse(call.args[position])
    return f"`{text}`" if len(text) <= 48 else default


def asks_for(name: str) -> bool:
    """Whether the first argument of the running ``expect`` call reads an attribute of that name."""
    check = running_check()
    call = check.expect_call() if check is not None else None
    first = call.args[0] if call is not None and call.args else ast.Constant(None)
    return any(isinstance(node, ast.Attribute) and node.attr == name for node in ast.walk(first))


def student_line() -> str:
    """The student's line that made the value under test, as ``file:number``; empty if none is found."""
    check = running_check()
    if check is None or check.attempt is None:
        return ""
    call = check.expect_call()
    names: Iterable[ast.AST] = ast.walk(call) if call is not None else ()
    for node in names:
        if isinstance(node, ast.Name) and node.id != "expect" and node.id not in check.own:
            line = check.attempt.made(node.id)
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
    """Add an outcome to the running check, and return whether the expectation is met.

    Parameters
    ----------
    said
        What the author says about the expectation.
    line
        The student's line; by default the one that made the value under test.
    credit
        The part of the points that it earns; by default all or nothing.

    Raises
    ------
    Unmet
        The expectation is not met, and no check is running.
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
    check = running_check()
    if check is not None:
        check.outcomes.append(outcome)
    elif not met:
        raise Unmet(str(outcome))
    return met


def _sentence(text: Any) -> str:
    return str(text).strip().rstrip(".")
