"""Writes grades as Canvas and Moodle import them, into the rows that the platform itself exported.

Canvas (app/models/gradebook_importer.rb) finds students by ID, SIS Login ID or SIS User ID, assignments by the name of
their column, and takes the points possible from a row of their own. Of Moodle's two ways, the offline grading worksheet
(mod/assign/feedback/offline/importgradeslib.php) must have the columns Identifier, Grade and Last modified (grade); the
import of the gradebook (grade/import/csv) takes any columns, and asks which is which.
"""

from __future__ import annotations

import csv
import html
import io
import re
from typing import TYPE_CHECKING, NamedTuple

from fakegpu_lab.course import whole_file
from fakegpu_lab.course.grade.outputs.tables import cell
from fakegpu_lab.course.grade.submissions import number_in
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from pathlib import Path

    from fakegpu_lab.course.grade.graded_lesson import GradedLesson
    from fakegpu_lab.course.grade.outcome import Outcome
    from fakegpu_lab.course.grade.outputs.lateness import Deadline
    from fakegpu_lab.course.grade.submissions import Submission

CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
"""The columns that identify a student in Canvas; Root Account, where an institution has several, is kept."""

WORKSHEET = ("Identifier", "Grade", "Last modified (grade)")
"""The columns without which Moodle refuses a grading worksheet."""

MOODLE_IDENTITIES = ("Username", "ID number", "Email address", "Identifier")
_FULL_NAME = ("First name", "Last name")
_GRADE = "Grade"
_SUBMITTED = "Last modified (submission)"


class Written(NamedTuple):
    """What was written, and who is missing.

    Attributes
    ----------
    students
        How many grades are in it.
    unknown
        Students of the submissions that the roster does not have, or has more than once.
    pending
        Students without a grade in it, because a person must still read an answer.
    scale
        What points were multiplied by: the platform's maximum over the lesson's.
    """

    path: Path
    students: int
    unknown: list[str]
    pending: list[str]
    scale: float


class Roster:
    """A platform's CSV of students, read as it was downloaded.

    Parameters
    ----------
    platform
        ``canvas`` or ``moodle``.
    path
        The platform's own export: Canvas's gradebook, Moodle's grading worksheet, or a CSV of Moodle's participants.

    Raises
    ------
    FakeGpuError
        There is no such file, it is no table, or it has not the columns that the platform needs.
    """

    def __init__(self, platform: str, path: Path) -> None:
        try:
            text = path.read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            raise FakeGpuError(f"--roster {path}: there is no such file.") from None
        except UnicodeDecodeError:
            raise FakeGpuError(f"--roster {path}: this is not UTF-8 text. Export it as CSV, not as Excel.") from None
        first = text.partition("\n")[0]
        delimiter = max(",;\t", key=first.count)
        table = [row for row in csv.reader(io.StringIO(text), delimiter=delimiter) if any(map(str.strip, row))]
        if len(table) < 2:
            raise FakeGpuError(f"The roster {path} has no students.")
        self.platform, self.path = platform, path
        self.columns = [name.strip() for name in table[0]]
        self.rows = [dict(zip(self.columns, row + [""] * len(self.columns), strict=False)) for row in table[1:]]
        (self._check_canvas if platform == "canvas" else self._check_moodle)()

    @property
    def worksheet(self) -> bool:
        """Whether it is Moodle's grading worksheet."""
        return "Identifier" in self.columns and _GRADE in self.columns

    @property
    def _identities(self) -> tuple[str, ...]:
        return CANVAS[:4] if self.platform == "canvas" else (*MOODLE_IDENTITIES, "Full name")

    def _check_canvas(self) -> None:
        if not {"Student", "ID"} <= set(self.columns):
            raise FakeGpuError(
                f"--roster {self.path}: it has the columns {', '.join(self.columns[:6])}; Canvas's has "
                f"{', '.join(CANVAS)}. In Canvas, it is Grades > Export > Export Entire Gradebook."
            )

    def _check_moodle(self) -> None:
        for row in self.rows:
            row.setdefault("Full name", " ".join(row.get(name, "") for name in _FULL_NAME))
        if self.worksheet and WORKSHEET[2] not in self.columns:
            raise FakeGpuError(
                f"--roster {self.path}: Moodle accepts no grading worksheet without the column “{WORKSHEET[2]}”. "
                "Download it again from the assignment, and do not remove columns."
            )
        if not set(MOODLE_IDENTITIES) & set(self.columns):
            raise FakeGpuError(
                f"--roster {self.path}: it has the columns {', '.join(self.columns[:6])}; one of "
                f"{', '.join(MOODLE_IDENTITIES)} must be there. In Moodle, download the assignment's grading worksheet."
            )

    def time_of(self, student: str, times: dict[str, str]) -> str:
        """When a student handed in: by `times`, which has names or numbers, or by Moodle's worksheet; empty if unknown.

        Raises
        ------
        FakeGpuError
            Moodle's time is in a language that is not English.
        """
        rows = self.find(student, self._identities)
        if len(rows) != 1:
            return time_of(student, times)
        own = [when for name in self._identities if (when := times.get(rows[0].get(name, "").strip()))]
        told = rows[0].get(_SUBMITTED, "").strip()
        return own[0] if own else time_of(student, times) or ("" if told in ("", "-") else self._moodle_time(told))

    def _moodle_time(self, told: str) -> str:
        from dateutil.parser import ParserError, parse

        try:
            return str(parse(told).astimezone().isoformat(" "))
        except (ParserError, OverflowError):
            raise FakeGpuError(
                f"--roster {self.path}: the time “{told}” cannot be read. Set your own language in Moodle to English, "
                "and download the worksheet again."
            ) from None

    def name(self, submissions: list[Submission]) -> None:
        """Call each student as Canvas's roster does, if it has her once: by the login, or else by a number."""
        used = {one.student for one in submissions}
        for one in submissions if self.platform == "canvas" else ():
            rows = self.find(one.student, self._identities)
            names = [name for column in CANVAS[3:0:-1] for row in rows if (name := row.get(column))]
            if len(rows) == 1 and names and names[0] not in used:
                used.add(names[0])
                one.student = names[0]

    def person(self, student: str) -> tuple[str, str, str]:
        """Last name, first name and email address; empty where the roster has none."""
        rows = self.find(student, self._identities)
        if len(rows) != 1:
            return "", "", ""
        row = rows[0]
        last, _, first = row.get("Student", "").partition(", ")
        last = row.get("Last name") or last or row.get("Full name", "")
        return last, row.get("First name") or first, row.get("Email address", "")

    def find(self, student: str, columns: tuple[str, ...]) -> list[dict[str, str]]:
        """The rows of a student: those with exactly this name in one of the columns, else those whose number it has."""
        whole = _plain(student)
        found = [row for row in self.rows if whole and any(_plain(row.get(name, "")) == whole for name in columns)]
        if found:
            return found
        number = number_in(student)
        if not number:
            return []
        return [row for row in self.rows if any(_number(row.get(name, "")) == number for name in columns)]


def time_of(student: str, times: dict[str, str]) -> str:
    """When a student handed in, by name or by the number in the name; empty if that is not known."""
    return times.get(student) or times.get(number_in(student), "")


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _number(text: str) -> str:
    """The number of ``4711`` or ``Participant 4711``; else nothing that a name could have."""
    match = re.fullmatch(r"(?:[^\d]*\s)?(\d+)", text.strip())
    return match[1] if match else "-"


def write(roster: Roster, path: Path, lesson: GradedLesson, outcomes: list[Outcome], deadline: Deadline) -> Written:
    """Write the file that the roster's platform imports. It is replaced whole, or not at all."""
    return (_canvas if roster.platform == "canvas" else _moodle)(roster, path, lesson, outcomes, deadline)


def _canvas(roster: Roster, path: Path, lesson: GradedLesson, outcomes: list[Outcome], deadline: Deadline) -> Written:
    possible = [row for row in roster.rows if row["Student"].strip() == "Points Possible"]
    roster.rows = [row for row in roster.rows if row not in possible and row["ID"].strip()]
    column = _own_column(roster, lesson) or lesson.name
    most = _as_number(possible[0].get(column, "")) if possible else None
    kept = [name for name in roster.columns if name in (*CANVAS, "Root Account")]
    matched, written = _match(roster, path, lesson, outcomes, deadline, CANVAS[:4], most)
    points = lesson.max_score if most is None else most
    rows = [[cell(row[name]) for name in kept] + [score] for row, _, score in matched]
    head = ["    Points Possible"] + [""] * (len(kept) - 1) + [f"{points:g}"]
    _write(path, [[*kept, column], head, *rows])
    return written


def _moodle(roster: Roster, path: Path, lesson: GradedLesson, outcomes: list[Outcome], deadline: Deadline) -> Written:
    known = tuple(name for name in MOODLE_IDENTITIES if name in roster.columns)
    names = (*known, "Full name")
    if not roster.worksheet:
        matched, written = _match(roster, path, lesson, outcomes, deadline, names, None)
        identities = [name for name in roster.columns if name in (*known, *_FULL_NAME)]
        rows = [[cell(row[name]) for name in identities] + [score] for row, _, score in matched]
        _write(path, [[*identities, lesson.name], *rows])
        return written
    most = next((_as_number(row[name]) for row in roster.rows for name in roster.columns if _is_maximum(name)), None)
    matched, written = _match(roster, path, lesson, outcomes, deadline, names, most)
    for row, outcome, score in matched:
        row[_GRADE] = score
        if "Feedback comments" in row:
            row["Feedback comments"] = _comment(outcome, deadline)
    _write(path, [roster.columns, *([cell(row[name]) for name in roster.columns] for row in roster.rows)])
    return written


def _is_maximum(column: str) -> bool:
    return column.casefold() == "maximum grade"


def _comment(outcome: Outcome, deadline: Deadline) -> str:
    """The points of each exercise and what was written about it, for the student; and what lateness cost; in HTML."""
    parts = [
        f"{html.escape(check.title or check.grade_id, quote=False)}: {check.points or 0:g} of {check.max_points:g}"
        + (f" ({html.escape(' '.join(check.comment.split()), quote=False)})" if check.comment else "")
        for check in outcome.checks
    ]
    penalty = deadline.lateness(outcome).penalty
    return "; ".join([*parts, f"{deadline.about(outcome)}: −{penalty:g}"] if penalty else parts)


def _match(
    roster: Roster,
    path: Path,
    lesson: GradedLesson,
    outcomes: list[Outcome],
    deadline: Deadline,
    columns: tuple[str, ...],
    most: float | None,
) -> tuple[list[tuple[dict[str, str], Outcome, str]], Written]:
    """Each outcome with its row and its grade, on the platform's scale."""
    most = lesson.max_score if most is None else most
    scale = most / lesson.max_score if lesson.max_score else 1.0
    matched: list[tuple[dict[str, str], Outcome, str]] = []
    unknown, pending = [], []
    for outcome in outcomes:
        rows = roster.find(outcome.student, columns)
        if len(rows) != 1 or any(row is rows[0] for row, _, _ in matched):
            unknown.append(outcome.student)
        elif outcome.manual:
            pending.append(outcome.student)
        else:
            score, most_here = deadline.score(outcome), outcome.max_score  # an earlier version may have other points
            share = score / most_here if most_here else 0.0
            matched.append((rows[0], outcome, f"{round(share * most, 2):g}"))
    return matched, Written(path, len(matched), unknown, pending, scale)


def _own_column(roster: Roster, lesson: GradedLesson) -> str | None:
    """The column of this lesson in Canvas's export: ``01 Device placement (4711)`` for ``01-device-placement``."""
    wanted = _letters(lesson.name)
    found = [name for name in roster.columns if _letters(re.sub(r"\(\d+\)\s*$", "", name)) == wanted]
    return found[0] if len(found) == 1 else None


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def _as_number(text: str) -> float | None:
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return None


def _write(path: Path, rows: list[list[str]]) -> None:
    with whole_file.writing(path, newline="") as file:
        csv.writer(file).writerows(rows)
