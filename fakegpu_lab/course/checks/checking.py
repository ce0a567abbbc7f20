"""Runs a check: each of its parts, even after another one failed."""

from __future__ import annotations

import ast
import contextlib
import io
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.checks import guard, statements
from fakegpu_lab.course.checks.record import CheckRecord, PartRecord
from fakegpu_lab.course.checks.result import Result
from fakegpu_lab.course.expect import outcome
from fakegpu_lab.course.expect.attempt import unwritten
from fakegpu_lab.course.expect.outcome import Outcome, RunningCheck
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.recording_views.labels import place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import TypeGuard

    from fakegpu_lab.course.checks.statements import Part
    from fakegpu_lab.course.expect.attempt import Attempt

_TO_DO = "Write your code in the cell above, where it says YOUR CODE HERE; run that cell, then this one."
_UNWRITTEN = "this is not written yet (NotImplementedError)"


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

    The card shows what the check prints to stderr: nbgrader would take it for an error.

    Parameters
    ----------
    source
        The check's source, without its ``%%check`` line.
    names
        The student's names, in which it runs. ``expect`` is added to them.
    exercise
        The exercise's id.
    attempt
        What the exercise's cell did, if it has run.
    file, tree
        The source's file name and its statements, if they are known already.
    title
        The exercise's title.
    points
        What all parts are worth, hidden ones included; None if that is not known.
    hints
        How many hints the exercise has.

    Returns
    -------
    Result
        A float: the points earned.
    """
    if tree is None:
        tree = ast.parse(source, file)
    todo = statements.of_tree(tree, source)
    told: list[tuple[Part, list[Outcome]]] = []
    stderr = ""
    if attempt is None or not attempt.unsolved:
        check = RunningCheck(attempt, file)
        with running(check) as written:
            told = [(part, run_part(part, check, names)) for part in todo]
        stderr = written.getvalue()
    return result(todo, told, attempt, stderr, exercise=exercise, title=title, points=points, hints=hints)


def result(
    todo: list[Part],
    told: list[tuple[Part, list[Outcome]]],
    attempt: Attempt | None,
    stderr: str,
    *,
    exercise: str,
    title: str,
    points: float | None,
    hints: int,
    show: Callable[[str], tuple[str, str]] = place,
) -> Result:
    """Add up what each statement of a check came to.

    Parameters
    ----------
    todo
        All statements.
    told
        Those that have run, with their outcomes.
    show
        Where a line (``file:number``) is, for people.
    """
    total = sum(part.points for part in todo)
    more = max(points - total, 0.0) if points is not None else 0.0
    about: dict[str, Any] = {"exercise": exercise, "title": title, "points": total, "more_points": more, "hints": hints}
    records = [_record(part, outcomes, show) for part, outcomes in told if part.expects or outcomes]
    if (attempt is not None and attempt.unsolved) or _is_unwritten(records, attempt):
        return Result(CheckRecord(score=0.0, unsolved=True, note=_TO_DO, **about))
    score = round(sum(record.earned for record in records), 6)
    return Result(CheckRecord(score=score, parts=tuple(records), note=_note(attempt, stderr), **about))


@contextlib.contextmanager
def running(check: RunningCheck) -> Iterator[io.StringIO]:
    """Let expectations be part of `check`; what is written to stderr meanwhile is kept."""
    stderr = io.StringIO()
    outcome.begin(check)
    try:
        with contextlib.redirect_stderr(stderr):
            yield stderr
    finally:
        outcome.end(check)


def run_part(part: Part, check: RunningCheck, names: dict[str, Any]) -> list[Outcome]:
    """Run one statement, and return its outcomes."""
    from fakegpu_lab.course import expect

    names = names if part.names is None else part.names
    names |= {"expect": expect, **guard.NAMES}
    check.statement, check.outcomes = part.statement, []
    last_run = check.trace
    try:
        guarded = guard.guarded(part.statement)
        exec(compile(ast.Module([guarded], []), check.file, "exec"), names)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a student's sys.exit() is an outcome, too
        check.crashed.append(_crashed(error, part, check))
        check.outcomes.append(check.crashed[-1])
        check.not_made.update(node.id for node in ast.walk(part.statement) if _is_assigned(node))
        if check.trace is last_run and any(map(statements.is_run, ast.walk(part.statement))):
            check.run_error = error  # later parts are about this run, and none before it
    return check.outcomes


def _is_unwritten(records: list[PartRecord], attempt: Attempt | None) -> bool:
    """Whether the student has written nothing yet: parts that are met all the same are not their work."""
    blank = [record.found == _UNWRITTEN for record in records]
    left = attempt is not None and attempt.tree is not None and unwritten(attempt.tree)
    return bool(blank) and (all(blank) or (any(blank) and left))


def _note(attempt: Attempt | None, stderr: str) -> str:
    """What the card says besides its parts."""
    notes = [f"The cell above ended with an error: {attempt.error}"] if attempt is not None and attempt.error else []
    if stderr.strip():
        notes.append(f"While it was checked, your code wrote to stderr: {_short(stderr)}")
    return " ".join(notes)


def _crashed(error: BaseException, part: Part, check: RunningCheck) -> Outcome:
    what = _describe(part.statement)
    line = _student_line(error.__traceback__, check)
    if isinstance(error, NotImplementedError) and not str(error):
        return Outcome(met=False, what=what, found=_UNWRITTEN, line=line)
    name = getattr(error, "name", None) or str(error)
    if isinstance(error, NameError) and name in check.not_made:
        return Outcome(met=False, what=what, found="what it needs could not be made: see above")
    if isinstance(error, NameError) and not line:
        hint = "Run the cells above from the top; if it still is missing, give your result this name."
        if check.attempt is not None and check.attempt.error:
            hint = "The cell above ended with an error before it was made: mend that first."
        return Outcome(met=False, what=what, found=f"there is no `{name}`", hint=hint)
    if isinstance(error, FakeGpuError) and not line:
        return Outcome(met=False, what=what, found=_short(str(error)))
    if _HANG in str(error):
        return _hang(str(error), what, line)
    found = f"{type(error).__name__}: {_short(str(error))}" if str(error) else type(error).__name__
    hint = (
        "Your code raised this error when it was called: call it yourself in a new cell, and read all of the message."
    )
    return Outcome(met=False, what=what, found=found, line=line, hint=hint if line else "")


_HANG, _CAUSE = "No rank can go on", "Likely cause: "
"""What `ranks.diagnosis.hang_messages` writes of a hang, after NCCL's own words."""


def _hang(text: str, what: str, line: str) -> Outcome:
    """A hang: where each rank waits, and the likely cause in full."""
    ranks = "; ".join(row.strip() for row in text.splitlines() if row.startswith("  rank "))
    _, found, cause = text.partition(_CAUSE)
    return Outcome(
        met=False,
        what=what,
        found=f"the ranks wait for each other forever: {_short(ranks, 600)}",
        line=line,
        hint=_short(f"{found}{cause}", 1000),
    )


def _is_assigned(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _describe(statement: ast.stmt) -> str:
    """What a part that did not finish expects: in the author's words (``what=``), or as its source."""
    for node in ast.walk(statement):
        if statements.is_expectation(node):
            for keyword in node.keywords:
                if keyword.arg == "what" and isinstance(keyword.value, ast.Constant):
                    return str(keyword.value.value)
            call = ast.Call(
                node.func, node.args, [k for k in node.keywords if k.arg not in outcome.Said.__annotations__]
            )
            return f"`{_short(ast.unparse(call), 100)}`"
    return f"`{_short(ast.unparse(statement), 100)}`"


def _student_line(traceback: TracebackType | None, check: RunningCheck) -> str:
    """The student's line in a traceback: the innermost one in a cell of the notebook, but not in the check itself."""
    line = ""
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if file != check.file and (place(f"{file}:1").label.startswith(("In[", "Cell")) or _is_attempt(file, check)):
            line = f"{file}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return line


def _is_attempt(file: str, check: RunningCheck) -> bool:
    return check.attempt is not None and file == check.attempt.name


def _record(part: Part, outcomes: list[Outcome], show: Callable[[str], tuple[str, str]]) -> PartRecord:
    """A part is met if every outcome is; the record describes the first that is not."""
    if not outcomes:
        what = "Something is there to be looked at"
        outcomes = [Outcome(met=False, what=what, found="nothing: this part had nothing to check")]
    worst = next((one for one in outcomes if not one.met), outcomes[0])
    label, code = show(worst.line)
    credit = min(one.credit for one in outcomes)
    return PartRecord(
        what=worst.what,
        met=all(one.met for one in outcomes),
        points=part.points,
        earned=round(part.points * credit, 6),
        expected=worst.expected,
        found=worst.found,
        line=label,
        code=code,
        hint=worst.hint,
        message=worst.message,
        hidden=part.hidden,
    )


def _short(text: str, most: int = 240) -> str:
    """A text on one line, shortened to `most` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"
