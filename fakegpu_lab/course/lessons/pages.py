"""The card at the top of a lesson, and the page of a student's progress."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from fakegpu_lab.course.checks.card import BORDER, GOOD, MUTED, number, of_points
from fakegpu_lab.formatting.units import several

if TYPE_CHECKING:
    from fakegpu_lab.course.lessons.lesson import Lesson
    from fakegpu_lab.course.lessons.progress import ExerciseProgress, LessonProgress, Progress


class Welcome:
    """The card of ``%lesson``: what the lesson is about, and the student's progress in it."""

    def __init__(self, lesson: Lesson, progress: Progress) -> None:
        self._lesson = lesson
        self._done = progress.lessons.get(lesson.name)

    def _facts(self) -> str:
        lesson = self._lesson
        facts = [f"about {lesson.minutes} minutes"]
        if lesson.exercises:
            facts.append(f"{several(len(lesson.exercises), 'exercise')}, {number(lesson.points)} points")
        if lesson.prerequisites:
            facts.append(f"after {', '.join(lesson.prerequisites)}")
        if self._done is not None and self._done.solved:
            facts.append(f"{self._done.solved} solved so far")
        return " · ".join(facts)

    def __repr__(self) -> str:
        return f"{self._lesson.title}: {self._lesson.goal} ({self._facts()})"

    def _repr_html_(self) -> str:
        return (
            f'<div style="border: 1px solid {BORDER}; border-radius: 4px; padding: 10px 16px; max-width: 860px">'
            f"<strong>{escape(self._lesson.title)}</strong>"
            f'<div>{escape(self._lesson.goal)}</div><div style="color: {MUTED}">{escape(self._facts())}</div></div>'
        )


class Summary:
    """A student's progress in all lessons: a card in a notebook, or a page to print."""

    def __init__(self, progress: Progress) -> None:
        self._lessons = progress.lessons

    def __repr__(self) -> str:
        if not self._lessons:
            return "Nothing done yet: run an exercise's check."
        lines = []
        for name, lesson in self._lessons.items():
            lines.append(f"{name} {lesson.title}: {_points(lesson)}, {_solved(lesson)}")
            for one in lesson.exercises.values():
                points = f"{number(one.best)} of {number(one.points)}"
                lines.append(f"  {'✓' if one.solved else '·'} {one.title or 'an exercise'}: {points}{_effort(one)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if not self._lessons:
            return f'<div style="color: {MUTED}">Nothing is done yet: run an exercise\'s check.</div>'
        return f'<div style="max-width: 860px">{"".join(_lesson(*item) for item in self._lessons.items())}</div>'

    def document(self) -> str:
        """The progress as an HTML page, for a browser or a printer."""
        earned = sum(lesson.earned for lesson in self._lessons.values())
        points = sum(lesson.points for lesson in self._lessons.values())
        solved = sum(lesson.solved for lesson in self._lessons.values())
        exercises = several(solved, "exercise")
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>fakegpu_lab: what I have done</title>'
            "<style>body { font: 16px/1.5 Georgia, serif; max-width: 46em; margin: 3em auto; padding: 0 1em } "
            "h1 { font-weight: normal; text-align: center } .all { text-align: center; margin-bottom: 2em }</style>"
            "</head><body><h1>GPU programming with fakegpu_lab</h1>"
            f'<p class="all">{exercises} solved · {of_points(earned, points)}</p>'
            f"{self._repr_html_()}</body></html>\n"
        )


def _points(lesson: LessonProgress) -> str:
    return of_points(lesson.earned, lesson.points)


def _solved(lesson: LessonProgress) -> str:
    return f"{lesson.solved} of {several(len(lesson.exercises), 'exercise')} solved"


def _effort(one: ExerciseProgress) -> str:
    parts = [several(one.attempts, "try", "tries")] if one.attempts else []
    parts += [several(one.hints, "hint")] if one.hints else []
    return f" ({', '.join(parts)})" if parts else ""


def _lesson(name: str, lesson: LessonProgress) -> str:
    share = 100 * lesson.earned / lesson.points if lesson.points else 0.0
    rows = "".join(
        f'<div style="color: {GOOD if one.solved else MUTED}">{"✓" if one.solved else "·"}</div>'
        f"<div>{escape(one.title or key)}</div>"
        f'<div style="text-align: right">{number(one.best)} / {number(one.points)}</div>'
        f'<div style="color: {MUTED}">{_effort(one).strip(" ()")}</div>'
        for key, one in lesson.exercises.items()
    )
    return (
        f'<div style="border: 1px solid {BORDER}; border-radius: 4px; padding: 10px 16px; margin-bottom: 12px">'
        f'<div style="display: flex; justify-content: space-between"><strong>{escape(lesson.title or name)}</strong>'
        f"<span>{_points(lesson)}</span></div>"
        f'<div role="img" aria-label="{share:.0f} percent" style="height: 6px; background: {BORDER}; margin: 8px 0; '
        f'border-radius: 3px"><div style="height: 6px; width: {share:.0f}%; background: {GOOD}; border-radius: 3px">'
        f'</div></div><div style="display: grid; grid-template-columns: 1.2em 1fr auto 9em; gap: 2px 12px">{rows}</div>'
        "</div>"
    )
