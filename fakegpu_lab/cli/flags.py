"""``fakegpu-lab flags``: what to look at in submissions that were graded, and notes about what was looked at."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from fakegpu_lab.cli.plain_console import PlainConsole
from fakegpu_lab.course.grade.flagged import Acknowledged
from fakegpu_lab.course.grade.outcome import journal_of, latest
from fakegpu_lab.formatting.units import several
from fakegpu_lab.hardware.errors import FakeGpuError


def flags(grades: str, student: str | None, exercise: str | None, note: str | None, *, withdraw: bool) -> None:
    """Print the flags that are open, or acknowledge those of one exercise.

    Raises
    ------
    FakeGpuError
        Nothing was graded there, or there is no such student or flag.
    """
    path = journal_of(Path(grades))
    outcomes = latest(path)
    if not outcomes:
        raise FakeGpuError(f"Nothing has been graded here: {path} is not there.")
    kept = Acknowledged(Path(grades))
    if student is not None:
        if exercise is None or (note is None) != withdraw:
            raise FakeGpuError('Name a student, an exercise, and --note "what you found", or --withdraw.')
        outcome = next((one for one in outcomes if one.student == student), None)
        if outcome is None:
            raise FakeGpuError(f"There is no submission of {student} in {path}.")
        about = kept.write(outcome, exercise, note)
        print(f"{several(len(about), 'flag')} of {student} for {exercise}: {'withdrawn' if withdraw else 'kept'}.")
        print("The same grade command with --resume writes it on your page.")
        return
    table = Table()
    for name in ("student", "exercise", "", "flag"):
        table.add_column(name, overflow="fold")
    for outcome in outcomes:
        for one in kept.open(outcome):
            table.add_row(outcome.student, one.exercise, one.severity, one.text)
    PlainConsole().print(table if table.rows else "There is nothing that you have not looked at.")
