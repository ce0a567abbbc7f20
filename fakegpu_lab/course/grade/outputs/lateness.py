"""What a late submission loses: free days first, then a share of its points for every day that was started."""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import NamedTuple
from zoneinfo import ZoneInfo

from fakegpu_lab.hardware.errors import FakeGpuError

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
    """

    due: dt.datetime | None = None
    free_days: int = 0
    percent: float = 0.0

    def lateness(self, timestamp: str, score: float) -> Lateness:
        """How late a submission of `timestamp` is, and what that costs of its `score`."""
        if self.due is None:
            return Lateness(None, 0.0)
        try:
            late = (parse_time(timestamp) - self.due).total_seconds()
        except (ValueError, OverflowError):  # a year that no clock has
            return Lateness(None, 0.0)
        days = max(0, math.ceil(late / 86400))
        share = min(1.0, max(0, days - self.free_days) * self.percent / 100)
        return Lateness(days, round(score * share, 6))


NEVER = Deadline()
"""Nothing is late."""


def deadline(due: str | None, free_days: int, percent: float) -> Deadline:
    """Return the deadline that the command's options describe.

    Raises
    ------
    FakeGpuError
        `due` is no date, or there is a penalty without a deadline.
    """
    if due is None:
        if free_days or percent:
            raise FakeGpuError("--late-days and --late-penalty need --due, the time from which a submission is late.")
        return NEVER
    try:
        moment = parse_time(due)
    except ValueError:
        raise FakeGpuError(f"--due {due}: this is not a date. Try --due '2026-11-20 23:59'.") from None
    if not re.search(r"\d:\d", due):  # a day is over at its end
        moment = moment.replace(hour=23, minute=59, second=59)
    return Deadline(moment, free_days, percent)
