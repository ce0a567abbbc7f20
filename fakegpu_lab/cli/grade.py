"""``fakegpu-lab grade``: grades a class's submissions and writes what the instructor asked for."""

from __future__ import annotations

import errno
import logging
import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fakegpu_lab.cli import grade_options
from fakegpu_lab.cli.plain_console import PlainConsole
from fakegpu_lab.course import whole_file
from fakegpu_lab.course.grade import graded_lesson, submissions, versions, whole_class
from fakegpu_lab.course.grade.flagged import Acknowledged
from fakegpu_lab.course.grade.outcome import Journal, journal_of
from fakegpu_lab.course.grade.outputs import autograded, comments, gradebook, lateness, pages, platforms, tables
from fakegpu_lab.course.grade.sandbox.limits import LEAST_MEMORY, Limits
from fakegpu_lab.course.lessons import extras
from fakegpu_lab.course.lessons import lesson as lessons
from fakegpu_lab.formatting.units import several, size
from fakegpu_lab.hardware.catalogue.sizes import parse_size
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from rich.console import Console
    from typing_extensions import Self

    from fakegpu_lab.course.grade.graded_lesson import GradedLesson
    from fakegpu_lab.course.grade.outcome import Outcome
    from fakegpu_lab.course.grade.outputs.lateness import Deadline
    from fakegpu_lab.course.grade.submissions import Submission


class Request(NamedTuple):
    """The command's arguments and options."""

    lesson: str
    submitted: str
    out: str
    feedback: str | None
    summary: str | None
    gradebook: str | None
    jobs: int
    dask: str | None
    resume: bool
    student: str | None
    cell_seconds: float
    total_seconds: float
    memory: str
    processes: int
    format: str | None
    roster: str | None
    due: str | None
    late_days: int
    late_penalty: float
    extensions: str | None
    times: str | None
    comments: str | None
    similar: str | None
    regrade: str | None


def grade(request: Request, given: set[str]) -> int:
    """Grade, write the files, and print a table of how the class did.

    A run with ``--resume`` or ``--regrade`` has the options of the run before, except for those that are `given` now.

    Raises
    ------
    FakeGpuError
        If anything is wrong with the request, and nothing has run then; or the disk is full.
    """
    try:
        return _grade(request, given)
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
        where = f" for {error.filename}" if error.filename else ""
        raise FakeGpuError(
            f"The disk has no space left{where}. Every grade given so far is in {journal_of(Path(request.out))}: "
            "make room, and run the same command with --resume. Nothing is graded twice."
        ) from None


_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""A full disk, a user's quota, and a limit on the size of files."""


def _grade(request: Request, given: set[str]) -> int:
    submitted, out = Path(request.submitted), Path(request.out)
    roots = [Path.cwd(), Path.cwd() / "lessons", submitted.absolute().parent, *_shipped()]
    folder = lessons.find_source(request.lesson, roots)
    graded = graded_lesson.load(folder)
    earlier = versions.earlier(folder)
    if (folder / lessons.FILE).is_file():
        extras.require(lessons.load(folder))
    if not graded.checks:
        raise FakeGpuError(f"The lesson {graded.name} has no exercise worth points.")
    goes_on = request.resume or request.regrade
    before = grade_options.earlier(out, graded.name, given) if goes_on else {}
    request = request._replace(**before)
    extensions = Path(request.extensions) if request.extensions else None
    late = lateness.deadline(request.due, request.late_days, request.late_penalty, extensions)
    exercises = [cell.grade_id.removesuffix("-check") for cell in graded.checks]
    wanted = comments.read(Path(request.comments), exercises) if request.comments else {}
    if (request.format is None) != (request.roster is None):
        raise FakeGpuError(
            "--format and --roster must be used together: the roster lists the students, as the platform exported them."
        )
    roster = platforms.Roster(request.format, Path(request.roster)) if request.format and request.roster else None
    only = _check_of(graded, request.regrade) if request.regrade else None
    memory = parse_size(request.memory)
    if memory < LEAST_MEMORY:
        raise FakeGpuError(f"--memory {request.memory}: a notebook needs {size(LEAST_MEMORY)} to import torch.")
    limits = Limits(
        cell_seconds=request.cell_seconds,
        total_seconds=request.total_seconds,
        memory_bytes=memory,
        processes=request.processes,
    )
    if not out.absolute().parent.is_dir():
        raise FakeGpuError(f"The grades cannot be written to {out}: its folder does not exist.")
    found = submissions.collect(submitted, graded.name, graded.notebook, request.student)
    kept = journal_of(out)
    if only and not kept.exists():
        raise FakeGpuError(f"--regrade {request.regrade}: there is nothing to regrade, because {kept} does not exist.")
    times = lateness.times(Path(request.times)) if request.times else {}
    if roster:
        roster.name(found)
    for one in found:
        if not one.timestamp:
            one.timestamp = roster.time_of(one.student, times) if roster else platforms.time_of(one.student, times)
    used = [versions.of(one, graded, earlier) for one in found]
    grade_options.keep(out, graded.name, {name: getattr(request, name) for name in given | before.keys()})
    journal = Journal(kept, limits, resume=request.resume, earlier=only is not None)
    summary = Path(request.summary) if request.summary else out.with_suffix(".html")
    sources = [root / "source" for root in roots]
    hide = [
        folder,
        *sources,
        submitted,
        out,
        journal.path,
        grade_options.path_of(out),
        summary,
        request.feedback,
        request.gradebook,
        request.gradebook and Path(request.gradebook).parent / autograded.FOLDER,
        request.roster,
        request.extensions,
        request.times,
        request.comments,
        request.similar,
    ]
    hide += _histories(folder)
    console = PlainConsole()
    if before:
        told = f"As in the run before ({grade_options.path_of(out)}): {grade_options.written(before)}"
        console.print(told, soft_wrap=True)
    hour = 3600.0  # a submission may take a minute: of the last seconds, no speed is known
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        bar = Progress(*columns, console=console, disable=not console.is_terminal, speed_estimate_period=hour)
        with _Log(console) as log, bar as progress:
            task = progress.add_task(f"Grading {graded.name}", total=len(found))
            if not console.is_terminal:
                console.print(f"Grading {graded.name}: {several(len(found), 'submission')}")

            def done(outcome: Outcome) -> None:
                progress.advance(task)
                log.graded(outcome, int(progress.tasks[0].completed), len(found))

            outcomes = whole_class.run(
                found,
                used,
                limits,
                [str(path) for path in hide if path],
                journal,
                jobs=request.jobs,
                scheduler=request.dask,
                only=only,
                done=done,
            )
    except KeyboardInterrupt:
        console.print(f"Interrupted. The same command with --resume continues from {journal.path}.")
        return 130
    at = {one.student: one.timestamp for one in found}
    outcomes = [one.model_copy(update={"timestamp": at[one.student]}) for one in outcomes]
    outcomes = _write_files(request, graded, outcomes, found, summary, late, used, wanted, roster)
    _print_summary(console, graded, outcomes, out, summary, used)
    if roster:
        written = out.with_name(f"{out.stem}.{roster.platform}.csv")
        _print_platform(console, platforms.write(roster, written, graded, outcomes, late), roster)
    return 0


class _Log(logging.Handler):
    """Prints what is under way, a line each; while it is entered, this includes what grading itself reports."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._logger = logging.getLogger("fakegpu_lab.course.grade")

    def __enter__(self) -> Self:
        self._logger.addHandler(self)
        self._logger.setLevel(logging.INFO)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._print(record.getMessage())

    def _print(self, line: str) -> None:
        """Print a line as it is, without breaks: it may be in a file."""
        self._console.print(line, soft_wrap=True)

    def graded(self, outcome: Outcome, count: int, of: int) -> None:
        """Report a submission that was graded; a terminal has a bar for those that ended well."""
        ended = "" if outcome.status == "graded" else f" ({outcome.status}: {outcome.reason})"
        if ended or not self._console.is_terminal:
            points = f"{outcome.score:g} of {outcome.max_score:g} points"
            self._print(f"{count} of {of}: {outcome.student}, {points}{ended}")


def _check_of(graded: GradedLesson, name: str) -> str:
    """The graded cell that `--regrade NAME` means: its own id, or that of the exercise."""
    for found in (name, f"{name}-check"):
        if found in [cell.grade_id for cell in graded.checks]:
            return found
    exercises = ", ".join(cell.grade_id.removesuffix("-check") for cell in graded.checks)
    raise FakeGpuError(f"--regrade {name}: {graded.name} has no such exercise. It has {exercises}.")


def _histories(folder: Path) -> list[Path]:
    """The folders of git in which a lesson's solutions may be: of every repository around it, and the course itself."""
    around = folder.resolve().parents
    course = [around[1]] if around[0].name == "source" else []
    return [*(parent / ".git" for parent in around if (parent / ".git").exists()), *course]


def _shipped() -> list[Path]:
    from fakegpu_lab.course.lessons.lesson import shipped

    try:
        return [shipped().parent]
    except FakeGpuError:
        return []


def _write_files(
    request: Request,
    graded: GradedLesson,
    outcomes: list[Outcome],
    found: list[Submission],
    summary: Path,
    late: Deadline,
    used: list[GradedLesson],
    wanted: dict[str, list[comments.Comment]],
    roster: platforms.Roster | None,
) -> list[Outcome]:
    """Write everything; return the outcomes with the points that a person gave in nbgrader's formgrader.

    A gradebook that cannot be written keeps none of the other files from being written.
    """
    problem = None
    if request.gradebook:
        try:
            outcomes = gradebook.write(Path(request.gradebook), graded, outcomes, found, late, used)
        except FakeGpuError as error:
            problem = error
    for one in comments.idle(outcomes, wanted):
        print(f"This comment fits nobody: {one}")
    outcomes = [comments.added(outcome, wanted) for outcome in outcomes]
    looked_at = Acknowledged(Path(request.out))
    people = {"person": roster.person} if roster else {}
    tables.write(Path(request.out), graded, outcomes, late, looked_at, **people)
    links = [""] * len(outcomes)
    if request.feedback:
        written = pages.write(Path(request.feedback), graded.notebook, outcomes, found, late)
        links = [pages.link(path, summary) for path in written]
    with whole_file.writing(summary) as file:
        file.write(pages.summary(graded, outcomes, links, looked_at, late))
    if request.similar:
        with whole_file.writing(Path(request.similar)) as file:
            file.write(pages.similar(graded, outcomes))
    if problem:
        raise problem
    return outcomes


def _print_summary(
    console: Console,
    graded: GradedLesson,
    outcomes: list[Outcome],
    out: Path,
    summary: Path,
    used: list[GradedLesson],
) -> None:
    table = Table(title=f"{graded.name}: {several(len(outcomes), 'submission')}", title_justify="left")
    for name in ("exercise", "mean", "all points", "some", "none"):
        table.add_column(name, justify="left" if name == "exercise" else "right")
    table.add_column("the most common wrong answer")
    for row in tables.summary(graded, outcomes):
        wrong = f"{row.wrong[0][1]} × {textwrap.shorten(row.wrong[0][0], 200, placeholder=' …')}" if row.wrong else ""
        counts = (str(row.passed), str(row.partly), str(row.failed))
        table.add_row(row.title or row.grade_id, f"{row.mean:.2f} of {row.max_points:g}", *counts, wrong)
    console.print(table)
    ended: dict[str, int] = {}
    for outcome in outcomes:
        if outcome.status != "graded":
            ended[outcome.status] = ended.get(outcome.status, 0) + 1
    counts_by_status = [f"{count} {status}" for status, count in sorted(ended.items())]
    for version, count in Counter(one.version for one in used if one.version).items():
        console.print(f"Graded by the version of {version}, which they came from: {several(count, 'submission')}.")
    looked_at = Acknowledged(out)
    opened = [looked_at.open(outcome) for outcome in outcomes]
    flagged, serious = sum(map(bool, opened)), sum(any(one.severity == "serious" for one in own) for own in opened)
    if waiting := sum(bool(outcome.manual) for outcome in outcomes):
        console.print(f"Waiting for a person: {several(waiting, 'submission')} (needs_manual_grade in {out}).")
    if counts_by_status:
        console.print(f"Did not finish: {', '.join(counts_by_status)}.")
    if flagged:
        console.print(f"Please look at: {flagged}, {serious} of them with a serious flag (fakegpu-lab flags {out}).")
    console.print(f"The grades are in {out}, and your page is {summary}.")


def _print_platform(console: Console, written: platforms.Written, roster: platforms.Roster) -> None:
    console.print(f"{several(written.students, 'grade')} for {roster.platform.capitalize()} in {written.path}.")
    if written.scale != 1:
        console.print(f"Points are multiplied by {written.scale:g}: the platform's maximum is different.")
    if written.unknown:
        console.print(f"Not found exactly once in {roster.path}: {', '.join(written.unknown)}.")
    if written.pending:
        console.print(f"Left out until a person has read their answers: {', '.join(written.pending)}.")
