"""What a late submission loses: free days first, then a share of its points for every day that was started.

Students can have a deadline of their own. Times of submissions are nbgrader's, or the learning platform's.
"""

from __future__ import annotations

import csv
import datetime as dt
import json
import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

from fakegpu_lab.formatting.units import several
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from pathlib import Path

    from fakegpu_lab.course.grade.outcome import Outcome

_FRACTION = re.compile(r"(?<=:\d\d)\.(\d{1,6})\d*")
"""A part of a second; Python 3.10 reads only those of three and of six digits."""
_ZONE = re.compile(r"\s([A-Za-z][A-Za-z_/+-]*)$")
"""How times of nbgrader's timestamp.txt end: in UTC, or in a name such as Europe/Berlin."""


def parse_time(text: str) -> dt.datetime:
    """Return a moment, from an ISO date with or without a time and a time zone; without one, it is this computer's.

    Raises
    ------
    ValueError
        It is no date.
    """
    named = _ZONE.search(text)
    moment = _FRACTION.sub(lambda part: f".{part[1]:0<6}", text[: named.start()] if named else text)
    found = dt.datetime.fromisoformat(moment.strip())
    if named:
        try:
            zone = dt.timezone.utc if named[1] == "UTC" else ZoneInfo(named[1])
        except (KeyError, OSError):
            raise ValueError(f"{named[1]} is not a time zone") from None
        return found.replace(tzinfo=zone)
    return found.astimezone() if found.tzinfo is None else found


class Lateness(NamedTuple):
    """How late one submission is.

    Attributes
    ----------
    days
        Days that were started after the deadline; None if the time of the submission is not known.
    penalty
        The points that it loses.
    """

    days: int | None
    penalty: float


class Deadline(NamedTuple):
    """When the lesson was due, and what being late costs.

    Attributes
    ----------
    due
        None if nothing is ever late.
    free_days
        Days late that cost nothing.
    percent
        Of the points earned, lost for every further day that was started.
    extensions
        The deadlines of students who have their own.
    """

    due: dt.datetime | None = None
    free_days: int = 0
    percent: float = 0.0
    extensions: dict[str, dt.datetime] = {}  # noqa: RUF012 - a named tuple's default

    def lateness(self, outcome: Outcome) -> Lateness:
        """How late a submission is, and what that costs of its score."""
        due, score = self.extensions.get(outcome.student, self.due), outcome.score
        if due is None:
            return Lateness(None, 0.0)
        try:
            late = (parse_time(outcome.timestamp) - due).total_seconds()
        except (ValueError, OverflowError):  # a year that no clock has
            return Lateness(None, 0.0)
        days = max(0, math.ceil(late / 86400))
        share = min(1.0, max(0, days - self.free_days) * self.percent / 100)
        return Lateness(days, round(score * share, 6))

    def score(self, outcome: Outcome) -> float:
        """The points of a submission, less what lateness costs."""
        return round(outcome.score - self.lateness(outcome).penalty, 6)

    def about(self, outcome: Outcome) -> str:
        """How late a submission is and what its student was allowed, in words; empty if neither is unusual."""
        days, own = self.lateness(outcome).days, self.extensions.get(outcome.student)
        allowed = [f"{min(days, self.free_days)} of them free"] if days and self.free_days else []
        allowed += [f"own deadline {own:%Y-%m-%d %H:%M}"] if own else []
        if not days:
            return "".join(allowed)
        return f"{several(days, 'day')} late" + (f" ({'; '.join(allowed)})" if allowed else "")


NEVER = Deadline()
"""Nothing is late."""


def deadline(due: str | None, free_days: int, percent: float, extensions: Path | None = None) -> Deadline:
    """Return the deadline that the command's options describe.

    Raises
    ------
    FakeGpuError
        `due` is no date, there is a penalty without a deadline, or the file of extensions cannot be read.
    """
    if due is None:
        if free_days or percent or extensions:
            raise FakeGpuError(
                "--late-days, --late-penalty and --extensions need --due, the time from which a submission is late."
            )
        return NEVER
    own = {name: _due(text, f"--extensions {extensions}: {name}") for name, text in _rows(extensions, "due").items()}
    return Deadline(_due(due, "--due"), free_days, percent, own)


def _due(text: str, where: str) -> dt.datetime:
    try:
        moment = parse_time(text)
    except ValueError:
        raise FakeGpuError(f"{where}: {text!r} is not a date. Try '2026-11-20 23:59'.") from None
    if not re.search(r"\d:\d", text):  # a day is over at its end
        moment = moment.replace(hour=23, minute=59, second=59)
    return moment


def _rows(path: Path | None, column: str) -> dict[str, str]:
    """What a CSV with the columns ``student`` and `column` says of each student."""
    if path is None:
        return {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file)
            names = table.fieldnames or []
            rows = {row["student"].strip(): row[column].strip() for row in table if row.get("student")}
    except FileNotFoundError:
        raise FakeGpuError(f"{path}: there is no such file.") from None
    except (KeyError, AttributeError, UnicodeDecodeError):
        raise FakeGpuError(f"{path}: this must be a CSV with the columns student and {column}.") from None
    if not {"student", column} <= set(names):
        raise FakeGpuError(f"{path}: this must be a CSV with the columns student and {column}.")
    return rows


def times(path: Path) -> dict[str, str]:
    """The times of submissions from a file, by a student's name or number.

    It is what Canvas's API says of an assignment's submissions (``user_id``, ``submitted_at``), or a CSV with the
    columns ``student`` and ``time``.

    Raises
    ------
    FakeGpuError
        It is neither, or there is no such file.
    """
    if path.suffix != ".json":
        return _rows(path, "time")
    try:
        rows: Any = json.loads(path.read_text(encoding="utf-8-sig"))
        return {str(row["user_id"]): row["submitted_at"] for row in rows if row["submitted_at"]}
    except FileNotFoundError:
        raise FakeGpuError(f"{path}: there is no such file.") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise FakeGpuError(
            f"{path}: this is not Canvas's list of submissions, with user_id and submitted_at."
        ) from None
