"""Runs a check: each of its parts, even after another one failed."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.cell_text.bindings import names as names_bound_by
from fakegpu_lab.course.cell_text.bindings import names_anywhere
from fakegpu_lab.course.checks import guard, statements, without_end
from fakegpu_lab.course.checks.crashed import FOLLOWS, UNWRITTEN, crashed, describe, short
from fakegpu_lab.course.checks.record import CheckRecord, PartRecord
from fakegpu_lab.course.checks.result import Result
from fakegpu_lab.course.expect import outcome, runs
from fakegpu_lab.course.expect.attempt import unwritten
from fakegpu_lab.course.expect.outcome import Outcome, RunningCheck
from fakegpu_lab.recording_views.labels import place

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from fakegpu_lab.course.checks.statements import Part
    from fakegpu_lab.course.expect.attempt import Attempt

_TO_DO = "Write your code in the cell above, where it says YOUR CODE HERE; run that cell, then this one."

_LATER = "Return what is done: a list, a tensor or a number, not a generator."

REPAIR = "Nothing in that cell ran: correct the line, run the cell, then this one."
"""What to do about a cell that is not Python."""


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
    earlier: Collection[str] = (),
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
    earlier
        The file names of checks that ran before.

    Returns
    -------
    Result
        A float: the points earned.
    """
    if tree is None:
        tree = ast.parse(source, file)
    todo = statements.of_tree(tree, source)
    told: list[tuple[Part, list[Outcome]]] = []
    stderr = io.StringIO()
    if attempt is None or not (attempt.unsolved or attempt.unreadable):
        check = RunningCheck(attempt, file, own=statements.bound_in(todo), earlier=earlier)
        with running(check, stderr):
            told = [(part, run_part(part, check, names)) for part in todo]
    return result(todo, told, attempt, stderr.getvalue(), exercise=exercise, title=title, points=points, hints=hints)


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
    shown = (
        (part, outcomes) for part, outcomes in told if part.expects or any(one.found != FOLLOWS for one in outcomes)
    )
    records = _after_one_another([(part, _record(part, outcomes, show)) for part, outcomes in shown])
    if (attempt is not None and attempt.unsolved) or _is_unwritten(records, attempt):
        return Result(CheckRecord(score=0.0, unsolved=True, note=_TO_DO, **about))
    if attempt is not None and attempt.unreadable:  # what parts find of an earlier cell would mislead
        return Result(CheckRecord(score=0.0, note=f"{_note(attempt, stderr)}. {REPAIR}", **about))
    score = round(sum(record.earned for record in records), 6)
    return Result(CheckRecord(score=score, parts=tuple(records), note=_note(attempt, stderr), **about))


def _after_one_another(of_parts: list[tuple[Part, PartRecord]]) -> list[PartRecord]:
    """The records, whose hints count one after the other: what fails further down may only follow from what is above.

    A hint is written for somebody whose answer does all that was asked before: the first one on a card stands as it is,
    and so do those of choices.
    """
    told, failed = [], False
    for part, record in of_parts:
        alone = bool(_STANDS_ALONE.match(record.hint)) or statements.only_chooses(part.statement)
        later = failed and not record.met and record.hint and not alone
        told.append(record.model_copy(update={"hint": f"{STILL} {record.hint}"}) if later else record)
        failed = failed or bool(record.hint and not record.met)
    return told


STILL = "If it is still wrong once the lines above pass:"
"""What a hint begins with where a line above has not passed."""
_STANDS_ALONE = re.compile(
    "First |If (all|the|threads|it is) |Your code |This error |A value is None|Is `|Does a loop |Likely "
)
"""How hints begin that speak of other lines themselves, or of an error that came up in their own."""


@contextlib.contextmanager
def running(check: RunningCheck, stderr: io.StringIO) -> Iterator[None]:
    """Let expectations be part of `check`; what is written to stderr meanwhile is kept in `stderr`."""
    outcome.begin(check)
    try:
        with contextlib.redirect_stderr(stderr):
            yield
    finally:
        outcome.end(check)


def run_part(part: Part, check: RunningCheck, names: dict[str, Any]) -> list[Outcome]:
    """Run one statement, and return its outcomes."""
    from fakegpu_lab.course import expect

    names = names if part.names is None else part.names
    names |= {"expect": expect, **guard.NAMES}
    check.statement, check.outcomes = part.statement, []
    loaded, stored = _loaded(part.statement), names_bound_by(part.statement)
    own = names_anywhere(part.statement)  # also those of its comprehensions
    follows = part.names is None and (loaded - own) & check.not_made  # a canary has names of its own
    if follows and not isinstance(part.statement, ast.FunctionDef):
        check.not_made |= stored  # nor does it take what another check left under that name
        return _failed(Outcome(met=False, what=describe(part.statement), found=FOLLOWS), check)
    last_run = check.trace
    try:
        if statements.has_recording(part.statement):
            runs.synchronize()
        guarded = guard.guarded(part.statement)
        with without_end.stopped_in_time(without_end.LATER if check.endless else without_end.SECONDS):
            exec(compile(ast.Module([guarded], []), check.file, "exec"), names)
    except BaseException as error:  # a student's sys.exit() is an outcome, too
        endless = isinstance(error, without_end.WithoutEndError)
        if isinstance(error, KeyboardInterrupt) and not endless:
            raise
        check.endless |= endless
        _failed(crashed(error, part.statement, check), check)
        check.not_made |= stored
        if check.trace is last_run and statements.has_run(part.statement):
            check.run_error = error  # later parts are about this run, and none before it
    else:
        check.not_made -= stored
        if statements.has_recording(part.statement):
            late = sorted(name for name in stored if isinstance(names.get(name), Iterator))
            if late:
                check.not_made |= stored
                found = f"`{late[0]}` is a {type(names[late[0]]).__name__}, which does its work later"
                _failed(Outcome(met=False, what=describe(part.statement), found=found, hint=_LATER), check)
    return check.outcomes


def _failed(one: Outcome, check: RunningCheck) -> list[Outcome]:
    """The outcomes of the running statement, which did not finish."""
    check.crashed.append(one)
    check.outcomes.append(one)
    return check.outcomes


def _is_unwritten(records: list[PartRecord], attempt: Attempt | None) -> bool:
    """Whether the student has written nothing yet: parts that are met all the same are not their work."""
    blank = [record.found == UNWRITTEN for record in records]
    left = attempt is not None and attempt.tree is not None and unwritten(attempt.tree)
    return bool(blank) and (all(blank) or (any(blank) and left))


def _note(attempt: Attempt | None, stderr: str) -> str:
    """What the card says in addition to its parts."""
    notes = [f"The cell above ended with an error: {attempt.error}"] if attempt is not None and attempt.error else []
    stderr = _GARBAGE.sub("", stderr)
    if stderr.strip():
        notes.append(f"While it was checked, your code wrote to stderr: {short(_PLACE.sub(_named, stderr))}")
    return " ".join(notes)


_GARBAGE = re.compile(
    r"Exception ignored in: .*\n(?:Traceback .*\n)?(?: .*\n)*? .*torch/_dynamo/.*\n(?: .*\n)*(?:\w.*\n?)?"
)
"""What Python says when a check has reset torch's compiler, and its own tables lose a key: nobody's code failed."""
_PLACE = re.compile(r"(?m)^(\S+:\d+)(?=: \w*Warning: )")
"""Where a warning comes from (`warnings.formatwarning`)."""


def _named(found: re.Match[str]) -> str:
    return place(found[1]).label


def _loaded(statement: ast.stmt) -> set[str]:
    """The names that a statement reads."""
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _record(part: Part, outcomes: list[Outcome], show: Callable[[str], tuple[str, str]]) -> PartRecord:
    """A part is met if every outcome is; the record describes the first that is not, else the last."""
    if not outcomes:
        follows = any(isinstance(node, ast.BoolOp) for node in ast.walk(part.statement))  # first and expect.equal(…)
        found = "it counts once the lines above pass" if follows else "nothing to compare"
        outcomes = [Outcome(met=False, what=describe(part.statement), found=found)]
    worst = next((one for one in outcomes if not one.met), outcomes[-1])
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
