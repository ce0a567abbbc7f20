"""Running a check: every part of it, whatever happens in the others."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.checks.record import CheckRecord, PartRecord
from fakegpu_lab.course.checks.result import Result
from fakegpu_lab.course.expect import outcome
from fakegpu_lab.course.expect.attempt import unwritten
from fakegpu_lab.course.expect.outcome import Looking, Outcome
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.timeline.labels import place

if TYPE_CHECKING:
    from types import TracebackType
    from typing import TypeGuard

    from fakegpu_lab.course.expect.attempt import Attempt

PREPARES = frozenset({"run"})
"""Functions of ``expect`` that expect nothing: a statement that calls no other is no part."""

_TO_DO = "Write your code in the cell above, where it says YOUR CODE HERE; run that cell, then this one."
_UNWRITTEN = "this is not written yet (NotImplementedError)"
_BEGIN, _END = re.compile(r"#+ ?BEGIN HIDDEN TESTS", re.IGNORECASE), re.compile(r"#+ ?END HIDDEN TESTS", re.IGNORECASE)


@dataclass(frozen=True)
class Part:
    """A statement of a check.

    Attributes
    ----------
    points
        What it is worth; 0 for a statement that only prepares.
    hidden
        Whether it stands between the markers of hidden tests.
    expects
        Whether it is a part, or only prepares one.
    """

    statement: ast.stmt
    points: float
    hidden: bool
    expects: bool


def parts(source: str) -> list[Part]:
    """Read a check's text: its statements, and what each is worth.

    Parameters
    ----------
    source
        The text of the cell, without or with its ``%%check`` line.

    Raises
    ------
    ValueError
        ``points=`` is not a plain number.
    """
    if source.lstrip().startswith("%%"):
        source = "\n" + source.lstrip().partition("\n")[2]
    return _parts(ast.parse(source), source)


def _parts(tree: ast.Module, source: str) -> list[Part]:
    hidden = _hidden_lines(source)
    found = []
    for statement in tree.body:
        calls = [node for node in ast.walk(statement) if _is_expectation(node)]
        worth = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == "points"]
        points = sum(_number(value) for value in worth) if worth else float(bool(calls))
        found.append(Part(statement, points, statement.lineno in hidden, bool(calls)))
    return found


def _hidden_lines(source: str) -> set[int]:
    lines, inside = set(), False
    for number, line in enumerate(source.splitlines(), 1):
        inside = bool(_BEGIN.search(line)) or (inside and not _END.search(line))
        if inside:
            lines.add(number)
    return lines


def _is_expectation(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether it is a call of ``expect.something``, or of ``lab.expect.something``."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)) or node.func.attr in PREPARES:
        return False
    owner = node.func.value
    return (owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")) == "expect"


def _number(value: ast.expr) -> float:
    if isinstance(value, ast.Constant) and isinstance(value.value, (int, float)):
        return float(value.value)
    raise ValueError(f"points={ast.unparse(value)} must be a plain number: it is read from the check's text.")


def run(
    source: str,
    names: dict[str, Any],
    exercise: str,
    attempt: Attempt | None = None,
    *,
    file: str = "<check>",
    tree: ast.Module | None = None,
    title: str = "",
    points: float | None = None,
    hints: int = 0,
) -> Result:
    """Run a check: each statement by itself, whatever happened in those before.

    What it prints to stderr is shown on the card instead, because nbgrader takes that for an error.

    Parameters
    ----------
    source
        The check's text, without its ``%%check`` line.
    names
        Where it runs: the student's names. ``expect`` is put among them.
    exercise
        Its id.
    attempt
        What the exercise's cell did, if it has run.
    file, tree
        The text's file name and its statements, where they are known already.
    title
        The exercise's title.
    points
        What all parts are worth, hidden ones too; None if that is not known.
    hints
        How many hints the exercise has.

    Returns
    -------
    Result
        A float: the points earned.
    """
    from fakegpu_lab.course import expect

    if tree is None:
        tree = ast.parse(source, file)
    todo = _parts(tree, source)
    total = sum(part.points for part in todo)
    more = max(points - total, 0.0) if points is not None else 0.0
    about: dict[str, Any] = {"exercise": exercise, "title": title, "points": total, "more_points": more, "hints": hints}
    if attempt is not None and attempt.unsolved:
        return Result(CheckRecord(score=0.0, unsolved=True, note=_TO_DO, **about))
    look = Looking(attempt, file)
    records: list[PartRecord] = []
    said = io.StringIO()
    outcome.begin(look)
    try:
        with contextlib.redirect_stderr(said):
            for part in todo:
                names["expect"] = expect
                outcomes = _look(part, look, names)
                if part.expects or outcomes:
                    records.append(_record(part, outcomes))
    finally:
        outcome.end(look)
    blank = [one.found == _UNWRITTEN for one in records]
    left = attempt is not None and attempt.tree is not None and unwritten(attempt.tree)
    if blank and (all(blank) or (any(blank) and left)):  # what came true all the same is not the student's
        return Result(CheckRecord(score=0.0, unsolved=True, note=_TO_DO, **about))
    notes = [f"The cell above ended with an error: {attempt.error}"] if attempt is not None and attempt.error else []
    if said.getvalue().strip():
        notes.append(f"While it was checked, your code wrote to stderr: {_short(said.getvalue())}")
    return Result(CheckRecord(score=_score(records), parts=tuple(records), note=" ".join(notes), **about))


def _score(records: list[PartRecord]) -> float:
    return round(sum(record.earned for record in records), 6)


def _look(part: Part, look: Looking, names: dict[str, Any]) -> list[Outcome]:
    """Run one statement."""
    look.statement, look.outcomes = part.statement, []
    try:
        exec(compile(ast.Module([part.statement], []), look.file, "exec"), names)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a student's sys.exit() is one more thing to tell
        look.outcomes.append(_crashed(error, part, look))
        look.lost.update(node.id for node in ast.walk(part.statement) if _is_set(node))
    if part.expects and not look.outcomes:
        what = "Something is there to be looked at"
        look.outcomes.append(Outcome(met=False, what=what, found="nothing: this part had nothing to check"))
    return look.outcomes


def _crashed(error: BaseException, part: Part, look: Looking) -> Outcome:
    what = _told(part.statement)
    line = _innermost(error.__traceback__, look)
    if isinstance(error, NotImplementedError) and not str(error):
        return Outcome(met=False, what=what, found=_UNWRITTEN, line=line)
    name = getattr(error, "name", None) or str(error)
    if isinstance(error, NameError) and name in look.lost:
        return Outcome(met=False, what=what, found="what it needs could not be made: see above")
    if isinstance(error, NameError) and not line:
        hint = "Run the cells above from the top; if it still is missing, give your result this name."
        if look.attempt is not None and look.attempt.error:
            hint = "The cell above ended with an error before it was made: mend that first."
        return Outcome(met=False, what=what, found=f"there is no `{name}`", hint=hint)
    if isinstance(error, FakeGpuError) and not line:
        return Outcome(met=False, what=what, found=_short(str(error)))
    found = f"{type(error).__name__}: {_short(str(error))}" if str(error) else type(error).__name__
    hint = (
        "Your code raised this error when it was called: call it yourself in a new cell, and read all of the message."
    )
    return Outcome(met=False, what=what, found=found, line=line, hint=hint if line else "")


def _is_set(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _told(statement: ast.stmt) -> str:
    """What a part that did not come to its end is about: what the author says, or its text."""
    for node in ast.walk(statement):
        if _is_expectation(node):
            for keyword in node.keywords:
                if keyword.arg == "what" and isinstance(keyword.value, ast.Constant):
                    return str(keyword.value.value)
            call = ast.Call(
                node.func, node.args, [k for k in node.keywords if k.arg not in outcome.Said.__annotations__]
            )
            return f"`{_short(ast.unparse(call), 100)}`"
    return f"`{_short(ast.unparse(statement), 100)}`"


def _innermost(traceback: TracebackType | None, look: Looking) -> str:
    """The student's line in a traceback: the innermost in a notebook's cell or a file of theirs, not in the check."""
    line = ""
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if file != look.file and (place(f"{file}:1").label.startswith(("In[", "Cell")) or _is_attempt(file, look)):
            line = f"{file}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return line


def _is_attempt(file: str, look: Looking) -> bool:
    return look.attempt is not None and file == look.attempt.name


def _record(part: Part, outcomes: list[Outcome]) -> PartRecord:
    """A part is met if all that it expects is; of the rest, what failed first is told."""
    worst = next((one for one in outcomes if not one.met), outcomes[0])
    where = place(worst.line)
    credit = min(one.credit for one in outcomes)
    return PartRecord(
        what=worst.what,
        met=all(one.met for one in outcomes),
        points=part.points,
        earned=round(part.points * credit, 6),
        expected=worst.expected,
        found=worst.found,
        line=where.label,
        code=where.text,
        hint=worst.hint,
        message=worst.message,
        hidden=part.hidden,
    )


def _short(text: str, most: int = 240) -> str:
    """The first lines of a text, on one."""
    flat = " ".join(text.split())
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"
