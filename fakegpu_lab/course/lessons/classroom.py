"""The lesson of the open notebook, in this kernel: attempts, hints, and the student's progress."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from fakegpu_lab.course.lessons import progress, sharing
from fakegpu_lab.course.lessons.lesson import Exercise
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from pathlib import Path

    from fakegpu_lab.course.checks.record import CheckRecord
    from fakegpu_lab.course.expect.attempt import Attempt
    from fakegpu_lab.course.lessons.lesson import Lesson


class NotSolvedYet(NotImplementedError):  # noqa: N818 - a state rather than an error
    """A cell is still as students get it. This stops “Run all”, and is shown as a friendly note, not as an error."""


class Classroom:
    """The state of a lesson in this kernel.

    Attributes
    ----------
    lesson
        The lesson of ``%lesson``; without it, exercises have no titles and no hints, and no progress is saved.
    attempts
        The last run of each exercise's cell, by the exercise's id.
    checks
        The file names of the checks that ran.
    latest
        The exercise that was run or checked last.
    """

    def __init__(self, lesson: Lesson | None = None, folder: str | Path = ".") -> None:
        self.lesson = lesson
        self.attempts: dict[str, Attempt] = {}
        self.checks: set[str] = set()
        self.latest = ""
        self._folder = folder
        self._hints: dict[str, int] = {}

    def exercise(self, name: str) -> Exercise:
        """The exercise of this id; without a lesson, one with a title made from the id."""
        self.latest = name
        if self.lesson is None:
            return Exercise(id=name, title=name.replace("-", " ").capitalize())
        return self.lesson.exercise(name)

    def _file(self) -> Path | None:
        return progress.path_for(self.lesson.name, self._folder) if self.lesson is not None else None

    def _loaded_lesson(self) -> Lesson:
        if self.lesson is None:
            raise FakeGpuError("Hints belong to a lesson: run the notebook's first cell (%lesson …).")
        return self.lesson

    def checked(self, record: CheckRecord) -> str:
        """Save the result of a check; return a sentence if that failed."""
        path = self._file()
        if path is None or self.lesson is None:
            return ""
        try:
            progress.checked(path, self.lesson, record)
            sharing.checked(path, self.lesson, record)
        except OSError as error:
            return f"Your progress could not be saved to {path.name}: {error.strerror}."
        return ""

    def prediction(self, name: str) -> str:
        """What the student wrote for ``%predict NAME``; empty if nothing was saved."""
        path = self._file()
        return progress.prediction(path, self.lesson.name, name) if path is not None and self.lesson else ""

    def predict(self, name: str, text: str) -> str:
        """Save what the student expects; return a sentence that says whether that worked."""
        path = self._file()
        if path is None or self.lesson is None:
            return "Noted. Run the next cell."
        try:
            progress.predicted(path, self.lesson, name, text)
        except OSError as error:
            return f"Your prediction could not be saved to {path.name}: {error.strerror}."
        return "Saved. Run the next cell."

    def hint(self, name: str = "") -> str:
        """The hints of an exercise (by default the latest) up to the next one, as Markdown.

        Raises
        ------
        FakeGpuError
            There is no such exercise, or no lesson.
        """
        lesson = self._loaded_lesson()
        name = name or self.latest
        if not name:
            known = ", ".join(one.id for one in lesson.exercises)
            raise FakeGpuError(f"For which exercise? %hint NAME, where NAME is one of {known}.")
        hints, rest = self.next_hint(name)
        if not hints:
            return f"**{lesson.exercise(name).title}** has no hints."
        shown = [f"**Hint {place}.** {text}" for place, text in enumerate(hints, 1)]
        more = f"\n\n*Run this again for the next hint ({rest} more).*" if rest else "\n\n*That was the last hint.*"
        return "\n\n".join(shown) + more

    def next_hint(self, name: str) -> tuple[tuple[str, ...], int]:
        """The hints of an exercise up to the next one, which counts as seen from now on; and how many are left.

        Raises
        ------
        FakeGpuError
            There is no such exercise, or no lesson.
        """
        lesson = self._loaded_lesson()
        exercise = lesson.exercise(name)
        self.latest = name
        if not exercise.hints:
            return (), 0
        path = self._file()
        seen = max(self._hints.get(name, 0), progress.hints_seen(path, lesson.name, name) if path else 0)
        number = min(seen + 1, len(exercise.hints))
        self._hints[name] = number
        if path is not None:
            with contextlib.suppress(OSError):  # the check reports a folder that is not writable
                progress.hinted(path, lesson, name, number)
        return exercise.hints[:number], len(exercise.hints) - number
