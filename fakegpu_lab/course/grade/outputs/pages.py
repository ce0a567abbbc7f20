"""Writes outcomes as HTML: a page for each student, one for the instructor. Nothing on them can run as code."""

from __future__ import annotations

import os
import re
import statistics
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from fakegpu_lab.course.checks import card as cards
from fakegpu_lab.course.checks.record import CheckRecord
from fakegpu_lab.course.expect.outcome import stated
from fakegpu_lab.course.grade.flagged import Acknowledged, flags
from fakegpu_lab.course.grade.outputs import similar as similar_answers
from fakegpu_lab.course.grade.outputs import tables
from fakegpu_lab.course.grade.outputs.lateness import NEVER
from fakegpu_lab.course.grade.repair import called
from fakegpu_lab.course.grade.submissions import SECRET

if TYPE_CHECKING:
    from fakegpu_lab.course.grade.graded_lesson import GradedLesson
    from fakegpu_lab.course.grade.outcome import CellOutcome, CheckOutcome, Outcome
    from fakegpu_lab.course.grade.outputs.lateness import Deadline
    from fakegpu_lab.course.grade.submissions import Submission

_TEMPLATES = Path(__file__).with_name("templates")
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]+")
LONGEST = 5000
"""The most characters of one output that a page shows."""


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["points"] = cards.number
    environment.filters["with_code"] = lambda text: Markup(cards.with_code(text))
    environment.filters["called"] = called
    environment.globals["css"] = Markup((_TEMPLATES / "page.css").read_text(encoding="utf-8"))
    return environment


def file_name(outcome: Outcome) -> str:
    """Return the name of a student's page: the student's, in characters that every file system accepts."""
    return re.sub(r"[^\w.@ ()-]", "_", outcome.student).strip(". ") or "_"


def feedback(outcome: Outcome, deadline: Deadline = NEVER) -> str:
    """Return a student's page."""
    mistakes = {check.grade_id: _mistake(check) for check in outcome.checks}
    records = {check.grade_id: check.record for check in outcome.checks}
    cells = []
    for cell in outcome.cells:
        card = _card(records.get(cell.id))
        cells.append(
            {
                "id": cell.id,
                "kind": cell.kind,
                "source": cell.source,
                "ran": cell.ran,
                "card": card,
                "outputs": [_output(one) for one in _shown(cell, card)],
            }
        )
    return (
        _environment()
        .get_template("feedback.html")
        .render(lesson=outcome.lesson, outcome=outcome, cells=cells, mistakes=mistakes, deadline=deadline)
    )


def _mistake(check: CheckOutcome) -> str:
    """What was wrong, in a few words, without giving away hidden parts."""
    what = [str(part["what"]) for part in (check.record or {}).get("parts", []) if part["hidden"]]
    hidden = [*what, *(stated(one, False) for one in what)]
    open_to_all = [text for text in check.wrong if not text.startswith(tuple(hidden))] if hidden else check.wrong
    return open_to_all[0] if open_to_all else "not right in a part that is not shown"


def _shown(cell: CellOutcome, card: Any) -> list[dict[str, Any]]:
    """The outputs to show; a card replaces the check's value."""
    return [one for one in cell.outputs if not (card and one["output_type"] == "execute_result")]


def _card(record: dict[str, Any] | None) -> Markup | None:
    """A check's card, made from its record: HTML that the submission displays is not shown, only its text."""
    if record is None:
        return None
    check = CheckRecord.model_validate(record)
    hidden = [part for part in check.parts if part.hidden]
    notes = [check.note] if check.note else []
    if hidden:
        earned, points = sum(part.earned for part in hidden), sum(part.points for part in hidden)
        notes.append(f"Parts that are not shown earned {cards.of_points(earned, points)}.")
        notes += [part.message for part in hidden if part.message]
    shown = tuple(part for part in check.parts if not part.hidden)
    return Markup(cards.html(check.model_copy(update={"parts": shown, "note": "\n".join(notes)})))


def _output(output: dict[str, Any]) -> dict[str, Any]:
    if output["output_type"] == "error":
        return {"text": "\n".join(str(line).rstrip("\n") for line in output["traceback"])[:LONGEST], "error": True}
    if output["output_type"] == "stream":
        return {"text": _short(str(output["text"]))}
    data = output["data"]
    image = str(data.get("image/png", ""))
    if image and _BASE64.fullmatch(image):
        return {"image": image}
    return {"text": _short(str(data.get("text/plain", "")))}


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\n… and {len(text) - LONGEST:,} characters more"


def summary(
    lesson: GradedLesson,
    outcomes: list[Outcome],
    links: list[str],
    looked_at: Acknowledged | None = None,
    deadline: Deadline = NEVER,
) -> str:
    """Return the instructor's page; `links` lead to the students' pages and may be empty."""
    opened = [(one, looked_at.open(one) if looked_at else flags(one)) for one in outcomes]
    scores = [outcome.score for outcome in outcomes] or [0.0]
    return (
        _environment()
        .get_template("summary.html")
        .render(
            lesson=lesson.name,
            outcomes=outcomes,
            rows=tables.summary(lesson, outcomes),
            exercises=[cell.grade_id for cell in tables.checks(lesson, outcomes)],
            points=[{check.grade_id: check.points for check in outcome.checks} for outcome in outcomes],
            distribution=(bars := _distribution([outcome.score for outcome in outcomes], lesson.max_score)),
            highest=max([count for _, count in bars] + [1]),
            flagged=sorted(
                [(outcome, found) for outcome, found in opened if found],
                key=lambda one: all(flag.severity != "serious" for flag in one[1]),
            ),
            acknowledged=[(one, notes) for one in outcomes if looked_at and (notes := looked_at.done(one))],
            ended=sum(outcome.status != "graded" for outcome in outcomes),
            mean=statistics.fmean(scores),
            median=statistics.median(scores),
            max_score=lesson.max_score,
            deadline=deadline,
            late=any(deadline.lateness(outcome).penalty for outcome in outcomes),
            links=links,
            confined=sorted({what for outcome in outcomes for what in outcome.confined}),
        )
    )


BARS = 10
"""How many bars the distribution of points has."""


def _distribution(scores: list[float], most: float) -> list[tuple[str, int]]:
    """How many have how many points, in equal steps; the last has those with all points, too."""
    step = most / BARS if most else 1.0
    counts = Counter(min(BARS - 1, int(score / step + 1e-9)) for score in scores)
    return [(f"{cards.number(i * step)} to {cards.number((i + 1) * step)}", counts[i]) for i in range(BARS)]


def similar(lesson: GradedLesson, outcomes: list[Outcome]) -> str:
    """Return the page of answers that are nearly the same."""
    found = similar_answers.groups(lesson, outcomes)
    return _environment().get_template("similar.html").render(lesson=lesson.name, groups=found)


def write(
    folder: Path, notebook: str, outcomes: list[Outcome], submitted: list[Submission], deadline: Deadline = NEVER
) -> list[Path]:
    """Write every student's page to ``folder/student/lesson/notebook.html``, nbgrader's layout; return the paths.

    Where nbgrader collected the submission, its time and its secret go beside the page: with these, ``nbgrader
    release_feedback`` gives the page to its student and to no one else (nbgrader/exchange/default/release_feedback.py).
    """
    written, used = [], set()
    for outcome, submission in zip(outcomes, submitted, strict=True):
        name = file_name(outcome)
        while name.casefold() in used:
            name += "_"
        used.add(name.casefold())
        path = folder / name / outcome.lesson / f"{notebook}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(feedback(outcome, deadline), encoding="utf-8")
        for part, content in (("timestamp.txt", submission.timestamp), (SECRET, submission.secret)):
            if submission.secret:
                (path.parent / part).write_text(content, encoding="utf-8")
        written.append(path)
    return written


def link(path: Path, beside: Path) -> str:
    """Return the link to a page from another one."""
    return quote(os.path.relpath(path, beside.parent).replace(os.sep, "/"))
