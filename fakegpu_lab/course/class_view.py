"""A class at work, from what students chose to share (`lessons.sharing`): who is at which exercise, and what fails."""

from __future__ import annotations

import html
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from fakegpu_lab.course.lessons import sharing

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from fakegpu_lab.course.lessons.sharing import Shared

STUCK = 3
"""Attempts on an unsolved exercise from which on a student may be waiting for help."""

STUDENT_HEADS = ("Student", "Lesson", "Exercise", "Solved", "Attempts", "Last check", "Failed most often")
EXERCISE_HEADS = ("Lesson", "Exercise", "Began", "Solved", "May need help", "Failed most often")


class StudentRow(NamedTuple):
    """One student, as the page shows them.

    Attributes
    ----------
    minutes
        Since the last check.
    unmet
        The sentence of the current exercise's check that was not met most often.
    stuck
        Whether the current exercise was tried `STUCK` times and is not solved.
    """

    student: str
    lesson: str
    exercise: str
    solved: str
    attempts: int
    minutes: int
    unmet: str
    stuck: bool

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of the table, under `STUDENT_HEADS`."""
        when = f"{self.minutes} min ago"
        return (self.student, self.lesson, self.exercise, self.solved, str(self.attempts), when, self.unmet)


class ExerciseRow(NamedTuple):
    """One exercise, over everyone who began it; `unmet` is what most of them did not meet, and how many."""

    lesson: str
    exercise: str
    began: int
    solved: int
    stuck: int
    unmet: str

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of the table, under `EXERCISE_HEADS`."""
        return tuple(map(str, self))


class ClassView(NamedTuple):
    """Everything on the page."""

    students: list[StudentRow]
    exercises: list[ExerciseRow]


def look(folder: Path, now: float | None = None) -> ClassView:
    """Read what is shared in a folder. Students who need help come first, then those who were checked last."""
    moment = time.time() if now is None else now
    found: dict[str, Shared] = {}
    for file in sorted(folder.glob(f"*{sharing.SUFFIX}")):
        shared, user = sharing.read_with_owner(file) or (sharing.Shared(), 0)
        if shared.lesson:
            owner = _owner(file, user)
            if owner not in found or found[owner].when < shared.when:
                found[owner] = shared
    students = [_student(name, shared, moment) for name, shared in found.items()]
    students.sort(key=lambda row: (not row.stuck, row.minutes, row.student))
    return ClassView(students, list(_exercises(found.values())))


def _owner(file: Path, owner: int) -> str:
    """Whose file it is, by the file system, which a student cannot forge; on Windows by its name."""
    named = file.name.removesuffix(sharing.SUFFIX).rpartition("-")[0]
    if sys.platform == "win32":
        return named
    import os
    import pwd

    try:
        return named if owner == os.getuid() else pwd.getpwuid(owner).pw_name
    except KeyError:
        return str(owner)


def _student(name: str, shared: Shared, now: float) -> StudentRow:
    exercises = shared.lessons.get(shared.lesson, {})
    one = exercises.get(shared.exercise, sharing.SharedExercise())
    return StudentRow(
        student=name,
        lesson=shared.lesson,
        exercise=one.title or shared.exercise,
        solved=f"{sum(each.solved for each in exercises.values())} of {len(exercises)}",
        attempts=one.attempts,
        minutes=max(0, int((now - shared.when) / 60)),
        unmet="" if one.solved or not one.unmet else max(one.unmet, key=lambda text: one.unmet[text]),
        stuck=not one.solved and one.attempts >= STUCK,
    )


def _exercises(shared: Iterable[Shared]) -> Iterable[ExerciseRow]:
    everyone = list(shared)
    for lesson in sorted({name for one in everyone for name in one.lessons}):
        names = list(dict.fromkeys(name for one in everyone for name in one.lessons.get(lesson, {})))
        for name in names:
            tried = [one.lessons[lesson][name] for one in everyone if name in one.lessons.get(lesson, {})]
            tried = [one for one in tried if one.attempts]
            if not tried:
                continue
            unmet = Counter(text for one in tried for text in one.unmet)
            text, count = unmet.most_common(1)[0] if unmet else ("", 0)
            yield ExerciseRow(
                lesson=lesson,
                exercise=tried[0].title or name,
                began=len(tried),
                solved=sum(one.solved for one in tried),
                stuck=sum(not one.solved and one.attempts >= STUCK for one in tried),
                unmet=f"{count} × {text}" if text else "",
            )


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1100px; padding: 0 1em }
:root { color-scheme: light dark }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .35em .8em .35em 0; vertical-align: top }
th, td { border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent) }
tr.stuck td:first-child::before { content: "● "; color: #d83b01 } .soft { opacity: .7 }
"""


def page(view: ClassView, folder: str, seconds: float) -> str:
    """Return the page, which reloads itself after some seconds."""
    stuck = sum(row.stuck for row in view.students)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>The class</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="refresh" content="{max(1, round(seconds))}"><style>{_STYLE}</style></head><body>'
        f"<h1>The class</h1><p>{len(view.students)} share their progress in {html.escape(folder)}; {stuck} may need "
        f"help (●: {STUCK} attempts or more, not solved). "
        f'<span class="soft">Last look: {time.strftime("%H:%M:%S")}.</span></p>'
        + _table(STUDENT_HEADS, [(row.stuck, row.cells) for row in view.students])
        + "<h2>Exercises</h2>"
        + _table(EXERCISE_HEADS, [(False, row.cells) for row in view.exercises])
        + "</body></html>"
    )


def _table(heads: tuple[str, ...], rows: list[tuple[bool, tuple[str, ...]]]) -> str:
    """A table; each row says whether the student may need help, and has its cells."""
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    body = "".join(
        f"<tr{' class=stuck' if stuck else ''}>" + "".join(f"<td>{html.escape(value)}</td>" for value in row) + "</tr>"
        for stuck, row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
