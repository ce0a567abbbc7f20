"""``fakegpu-lab lesson check``: tests a lesson as students will get it, before they do."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import nbformat

from fakegpu_lab.course.authoring import rules
from fakegpu_lab.course.authoring.answers import Answer, grade_id, grade_together, handed_in, replaced
from fakegpu_lab.course.grade import graded_lesson as graded
from fakegpu_lab.course.grade.one_submission import grade
from fakegpu_lab.course.grade.sandbox.limits import Limits
from fakegpu_lab.course.grade.sandbox.process import ASLEEP
from fakegpu_lab.course.lessons import extras
from fakegpu_lab.course.lessons import lesson as lessons
from fakegpu_lab.course.lessons.lesson import WrongSolution
from fakegpu_lab.course.lessons.release import released
from fakegpu_lab.formatting.units import several, size
from fakegpu_lab.hardware.catalogue.sizes import format_size, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fakegpu_lab.course.grade.graded_lesson import GradedLesson
    from fakegpu_lab.course.grade.outcome import CheckOutcome, Outcome
    from fakegpu_lab.course.lessons.lesson import Lesson, Solution


LIMITS = Limits(cell_seconds=120, total_seconds=600, memory_bytes=4 * 2**30)
FOR_MANY = LIMITS.model_copy(update={"total_seconds": 3600.0, "output_chars": 20_000_000})

LEAST = 10
"""With fewer wrong answers, a second run of the whole lesson takes longer than it saves."""


class Finding(NamedTuple):
    """The result of one test of a lesson.

    Attributes
    ----------
    what
        What should be true.
    wrong
        Sentences about where it is not; empty if it is true.
    """

    what: str
    wrong: list[str]


def check(
    folder: Path,
    show: Callable[[Finding], None],
    *,
    jobs: int = 2,
    nbval: bool = True,
    only: str | None = None,
    begun: Callable[[str], None] = lambda what: None,
) -> bool:
    """Test one lesson, and return whether everything is right.

    Parameters
    ----------
    folder
        The lesson's source.
    show
        Called with each finding at once.
    jobs
        How many notebooks to run at once.
    nbval
        Whether to run nbval, too.
    only
        The one exercise to run: its solution, and its wrong ones.
    begun
        Called with what takes minutes, when it begins.

    Raises
    ------
    FakeGpuError
        There is no lesson or no such exercise, it cannot be read, or what it needs is not installed.
    """
    lesson = lessons.load(folder)
    extras.require(lesson)
    exercises = [lesson.exercise(only)] if only else list(lesson.exercises)
    loaded = graded.load(folder)
    source = nbformat.read(folder / f"{loaded.notebook}.ipynb", as_version=4)
    starter = released(source)
    findings: list[Finding] = []

    def found(what: str, wrong: list[str]) -> None:
        findings.append(Finding(what, wrong))
        show(findings[-1])

    misnamed = [] if loaded.notebook == folder.resolve().name else [f"It is called {loaded.notebook}."]
    found("the notebook has its folder's name", misnamed)
    problems = rules.problems(lesson, source)
    found("the notebook and lesson.yaml match", problems)
    found("every hint can be reached", rules.hints(lesson, folder))
    if problems:  # what follows would only say so again, in other words
        return False
    with ThreadPoolExecutor(jobs) as pool:
        until = f"{only}-check" if only else None
        right = pool.submit(grade, handed_in(source, starter, {}, "solution"), loaded, LIMITS, [], until=until)
        untouched = pool.submit(grade, handed_in(source, starter, None, "starter"), loaded, LIMITS, [], until=until)
        tries = [
            (one, _answer(source, exercise.id, one.code))
            for exercise in exercises
            for one in (*exercise.wrong, *exercise.right)
        ]
        solved = handed_in(source, starter, {}, "solution")
        runs = min(jobs, -(-len(tries) // LEAST))
        dealt = [[answer for _, answer in tries[run::runs]] for run in range(runs)]
        together = [pool.submit(grade_together, solved, loaded, FOR_MANY, answers) for answers in dealt]
        ran = pool.submit(_nbval, folder / f"{loaded.notebook}.ipynb") if nbval and not only else None
        begun(
            f"running the notebook with its solutions, without answers, and with {several(len(tries), 'other answer')}"
        )
        solution = right.result()
        found("the solution passes every check", _solution(solution, loaded, until))
        found("the solution is not flagged", solution.flags)
        found("nothing is printed to stderr, and no cell fails", _stderr_and_errors(solution, source))
        found(*_budget(solution, lesson))
        found("the untouched starter fails every check", _starter(untouched.result(), loaded))
        known = {answer: outcome for batch in together for answer, outcome in batch.result().items()}
        doubtful = [
            (one, answer, pool.submit(_alone, source, starter, loaded, answer))
            for one, answer in tries
            if answer not in known or _surprise(one, known[answer])
        ]
        said = [(one, answer, _surprise(one, alone.result())) for one, answer, alone in doubtful]
        for wrong, expected in (
            (True, "{} wrong solution{} fails, as lesson.yaml says"),
            (False, "{} other right solution{} passes"),
        ):
            if number := sum(isinstance(one, WrongSolution) == wrong for one, _ in tries):
                surprises = [
                    f"{answer.exercise} ({one.why}): {sentence}"
                    for one, answer, sentence in said
                    if sentence and isinstance(one, WrongSolution) == wrong
                ]
                found(expected.format(*(("the one", "") if number == 1 else (f"each of {number}", "s"))), surprises)
        if ran is not None:
            found("nbval passes", ran.result())
    return not any(finding.wrong for finding in findings)


def _answer(source: Any, name: str, code: str) -> Answer:
    cell = next((cell for cell in source.cells if grade_id(cell) == name), None)
    return Answer(name, replaced(cell.source, code) if cell is not None else code)


def _alone(source: Any, starter: Any, loaded: GradedLesson, answer: Answer) -> CheckOutcome | str:
    """What an answer earns in a notebook of its own; a sentence if that cannot be said."""
    submission = handed_in(source, starter, {answer.exercise: answer.source}, answer.exercise)
    outcome = grade(submission, loaded, LIMITS, [], until=f"{answer.exercise}-check")
    if outcome.status not in ("graded", "timeout"):
        return f"it did not finish: {outcome.reason}."
    check = next((check for check in outcome.checks if check.grade_id == f"{answer.exercise}-check"), None)
    return "there is no check to run." if check is None or check.points is None else check


def _solution(outcome: Outcome, loaded: GradedLesson, only: str | None = None) -> list[str]:
    if outcome.status != "graded":
        return [f"It did not finish: {outcome.reason}."]
    automatic = {cell.grade_id for cell in loaded.checks if not cell.manual}
    return [
        f"{check.grade_id} gives {check.points:g} of {check.max_points:g} points: {'; '.join(check.wrong)}"
        for check in outcome.checks
        if check.grade_id in automatic
        and only in (None, check.grade_id)
        and check.points is not None
        and not check.passed
    ]


def _stderr_and_errors(outcome: Outcome, source: Any) -> list[str]:
    expected = {
        name
        for i, cell in enumerate(source.cells)
        for name in (grade_id(cell) or f"cell {i + 1}",)
        if "raises-exception" in cell.metadata.get("tags", [])
    }
    found = []
    for cell in outcome.cells:
        for out in cell.outputs:
            if out.get("name") == "stderr":
                found.append(f"{cell.id} prints to stderr: {str(out['text']).strip()[:200]}")
            elif out["output_type"] == "error" and cell.id not in expected and cell.kind != "check":
                found.append(f"{cell.id} fails: {out['ename']}: {out['evalue'][:200]}")
    return found


def _budget(outcome: Outcome, lesson: Lesson) -> tuple[str, list[str]]:
    allowed = parse_size(lesson.budget.memory)
    over = []
    used, slept, may = outcome.processor_seconds, outcome.asleep_seconds, lesson.budget.seconds
    if used > may:
        over.append(f"It took {used:.0f} s of processor time; the budget is {may:g} s.")
    elif slept > ASLEEP * may:
        over.append(f"It slept for {slept:.0f} s, and took {used:.0f} s of processor time: what does it wait for?")
    if outcome.peak_bytes > allowed:
        over.append(f"It used {format_size(outcome.peak_bytes)} of memory; the budget is {format_size(allowed)}.")
    spent = f"{used:.0f} s of processor time, {size(outcome.peak_bytes)}"
    return f"time and memory stay within the budget ({spent})", over


def _starter(outcome: Outcome, loaded: GradedLesson) -> list[str]:
    if outcome.status != "graded":
        return [f"It did not finish: {outcome.reason}."]
    return [
        f"{check.grade_id} gives {check.points:g} points although nothing was written."
        for check in outcome.checks
        if check.points and check.max_points
    ]


def _surprise(one: Solution, earned: CheckOutcome | str) -> str:
    """A sentence if a solution does not fail, or pass, as its author says; otherwise empty."""
    if isinstance(earned, str):
        return earned
    points = earned.points or 0.0
    if not isinstance(one, WrongSolution):
        return (
            "" if earned.passed else f"it earns {points:g} of {earned.max_points:g} points: {'; '.join(earned.wrong)}"
        )
    if one.score is not None and abs(points - one.score) > 1e-6:
        return f"it earns {points:g}, and should earn {one.score:g}."
    if one.score is None and earned.passed:
        return f"it earns all {earned.max_points:g} points."
    return ""


def _nbval(notebook: Path) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-q", "--nbval-lax", "--nbval-current-env", "-p", "no:cacheprovider"]
    environment = {**os.environ, "FAKEGPU_LAB_PROGRESS": "off"}
    done = subprocess.run(
        [*command, notebook.name], cwd=notebook.parent, env=environment, capture_output=True, text=True, check=False
    )
    return [] if done.returncode == 0 else [(done.stdout + done.stderr).strip()[-1500:]]
