"""The submission's side of a check: runs its statements, and reports what each expectation sees, as it sees it."""

from __future__ import annotations

import io
import itertools
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.checks import checking, for_show, statements
from fakegpu_lab.course.expect.outcome import RunningCheck
from fakegpu_lab.course.expect.plain_data.codec import encode
from fakegpu_lab.course.expect.plain_data.conversion import RECORDS, SeenTrace, seen, trace
from fakegpu_lab.course.expect.plain_data.in_place import InPlace
from fakegpu_lab.recording_views.labels import place
from fakegpu_lab.user_code.frames import cell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fakegpu_lab.course.expect.attempt import Attempt

MOST_LINES = 1000
"""Lines of one recording whose text is reported."""


class Observation:
    """A check while it runs: its statements come one by one, so that nothing below an answer's frames holds the others.

    Parameters
    ----------
    names
        The student's names, in which it runs.
    attempt
        What the exercise's cell did; None if it has not run.
    file
        The check's file name.
    tell
        Called with each message, in order.
    is_lessons
        Whether the code of a file is the lesson's own.

    Attributes
    ----------
    for_show
        ``"copies"`` or ``"work"`` if the last statement was met only by those, whose results nothing uses; else empty.
    """

    def __init__(
        self,
        names: dict[str, Any],
        attempt: Attempt | None,
        file: str,
        tell: Callable[[dict[str, Any]], None],
        is_lessons: Callable[[str], bool] = lambda file: False,
    ) -> None:
        numbers = itertools.count()

        def say(message: dict[str, Any]) -> None:
            tell({"n": next(numbers), **message})

        def observed(name: str, data: dict[str, Any]) -> None:
            call = check.expect_call()
            at = [call.lineno, call.col_offset] if call is not None else None
            lines = {line: place(line) for one in data.values() for line in _lines(one)}
            say({"saw": name, "at": at, "data": {key: encode(one) for key, one in data.items()}, "places": lines})

        check = RunningCheck(attempt, file, observed=observed, keep=for_show.keep, used=InPlace(is_lessons))
        self._check, self._say, self._names = check, say, names
        self._parts = itertools.count()
        self._stderr = io.StringIO()
        self._shows = for_show.ForShow()
        self.for_show = ""

    def run(self, text: str, *, canary: bool, made: Iterable[str] = (), asked: Iterable[str] = ()) -> list[str]:
        """Run the next statement, and report what is seen in it; a canary has no names of the student's.

        Returns how the statement names the values that changed in place while it ran: those that it computes with, and
        those of the names in `made`. Names in `asked` are those of answers: what they stand for is no show.
        """
        import torch

        (part,) = statements.parts(text)
        if canary:
            part = statements.Part(part.statement, 0.0, hidden=False, expects=True, names={"torch": torch})
        self._say({"part": next(self._parts)})
        assert self._check.used is not None
        for name in made:
            self._check.used.look(self._names.get(name), name)
        with checking.running(self._check, self._stderr):
            outcomes = checking.run_part(part, self._check, self._names)
        for one in outcomes:
            if not one.met and one in self._check.crashed:
                texts = {"what": one.what, "found": one.found, "line": one.line, "hint": one.hint}
                self._say({"crashed": texts, "places": {one.line: place(one.line)} if one.line else {}})
        changed = self._check.used.changed()
        held = [self._names.get(name) for name in {*made, *asked}]
        self.for_show = "" if canary else self._shows.counted(part, self._check, self._names, held)
        return changed

    def changed(self, names: list[str]) -> None:
        """Report names of the lesson that got another meaning while a statement ran: the check has no result."""
        if names:
            self._say({"changed": sorted(names)})

    def end(self) -> list[tuple[type, str]]:
        """Report the end; return the attributes that the check read of objects of the notebook's own classes."""
        self._say({"end": True, "stderr": self._stderr.getvalue()[:2000]})
        return self._check.answered


def tried(attempt: Attempt) -> dict[str, Any]:
    """What is reported of an exercise's cell when it has ended."""
    recording = trace(attempt.trace) if attempt.trace is not None else None
    label = cell(attempt.name) if attempt.name else ""
    told = {"exercise": attempt.exercise, "name": attempt.name, "label": label, "error": attempt.error}
    lines = {line: place(line) for line in _lines(recording)}
    return {**told, "unsolved": attempt.unsolved, "trace": encode(recording), "places": lines}


def _lines(one: Any) -> Iterable[str]:
    """The different lines of a recording's records."""
    if not isinstance(one, SeenTrace) or one.of_attempt:
        return ()
    found = {
        str(line): None
        for kind in RECORDS
        for record in getattr(one, kind)
        for line in (getattr(record, "line", ""), getattr(record, "first_line", ""), getattr(record, "second_line", ""))
        if line
    }
    found |= {
        f"{line.line[0]}:{line.line[1]}": None
        for kernel in one.kernels
        if kernel.access is not None
        for line in kernel.access.lines
    }
    return itertools.islice(found, MOST_LINES)


def plainly(value: Any) -> Any:
    """What is seen of a value, as it would be reported."""
    return encode(seen(value))
