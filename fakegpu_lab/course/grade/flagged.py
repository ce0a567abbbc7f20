"""Flags for a person: how serious each is, and which ones somebody has looked at, with a note.

A flag costs no points. What was looked at is kept in a file beside the grades, by student and exercise, with the flags
that were there: it stays for later runs, and a flag that is new asks for another look.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

import yaml
from pydantic import BaseModel, TypeAdapter

from fakegpu_lab.course import whole_file
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from pathlib import Path

    from fakegpu_lab.course.grade.outcome import Outcome

Severity = Literal["serious", "unusual"]
"""``serious``: an honest answer has hardly a reason for it. ``unusual``: not on the list of what answers use."""

NOTEBOOK = "notebook"
"""In the place of the exercise, where a flag is about all of the notebook."""

_PLACE = re.compile(r"([\w.-]+|cell \d+): ")
_UNUSUAL = re.compile(
    r"imports |names \w+$|uses the magic|passes the module|imports all of|runs '(?!.*\b(ps|cat|find|grep)\b)"
    r"|sets .*, which the answer did not make|changed \w+ in place"
    r"|uses (?!sys\.|gc\.|object\.|(.*\.)?(exec|eval|compile|get_ipython|ctypes|bltns|builtins)\b)"
    r"|is nested too deeply|has [\d,]+ (characters|magics)|defines a class|names _|calls breakpoint|is written in"
    r"|started a thread|a thread of the notebook|torch's default|autocast on|the GPUs were|chooses the GPUs"
    r"|formats a text that is put together|passes functools"
    r"|gives \w+ another meaning|the name \w+ had been given another meaning|takes the place of|loads |sets %config"
    r"|answers [\w.-]+ in another cell"
)
"""How the phrases begin that are often honest; the rest is serious."""


class Flag(NamedTuple):
    """One flag: the exercise or file that it is about, what is said, and how serious that is."""

    exercise: str
    text: str
    severity: Severity


def flags(outcome: Outcome) -> list[Flag]:
    """The flags of a submission, the serious ones first."""
    found = [_flag(text) for text in outcome.flags]
    return sorted(found, key=lambda one: (one.severity != "serious", one.exercise))


def _flag(text: str) -> Flag:
    place = _PLACE.match(text)
    phrase = re.sub(r"^line \d+ ", "", text[place.end() :] if place else text)
    exercise = place[1].removesuffix("-check") if place else NOTEBOOK
    return Flag(exercise, text, "unusual" if _UNUSUAL.match(phrase) else "serious")


class Note(BaseModel):
    """What a person wrote about an exercise's flags, and the flags that were there."""

    note: str
    flags: list[str]


_Notes = TypeAdapter(dict[str, dict[str, Note]])


class Acknowledged:
    """What was looked at, by student and exercise, in a YAML file beside the grades.

    Raises
    ------
    FakeGpuError
        The file is not as it was written.
    """

    def __init__(self, grades: Path) -> None:
        self.path = grades.with_name(grades.name + ".acknowledged.yaml")
        self.notes = whole_file.kept(self.path, _Notes)

    def open(self, outcome: Outcome) -> list[Flag]:
        """The flags of a submission that nobody has looked at."""
        notes = self.notes.get(outcome.student, {})
        return [one for one in flags(outcome) if one.exercise not in notes or one.text not in notes[one.exercise].flags]

    def done(self, outcome: Outcome) -> dict[str, str]:
        """The notes about a submission, by exercise, as far as its flags are still there."""
        notes = self.notes.get(outcome.student, {})
        return {name: note.note for name, note in notes.items() if set(note.flags) & set(outcome.flags)}

    def write(self, outcome: Outcome, exercise: str, note: str | None) -> list[Flag]:
        """Keep a note about an exercise's flags, or forget it (None); return those flags."""
        about = [one for one in flags(outcome) if one.exercise == exercise]
        if not about:
            where = ", ".join(sorted({one.exercise for one in flags(outcome)})) or "nothing"
            raise FakeGpuError(f"{outcome.student} has no flag for {exercise}. What is flagged: {where}.")
        mine = self.notes.setdefault(outcome.student, {})
        mine.pop(exercise, None)
        if note is not None:
            mine[exercise] = Note(note=note, flags=[one.text for one in about])
        with whole_file.writing(self.path) as file:
            file.write(yaml.safe_dump(_Notes.dump_python(self.notes), allow_unicode=True, width=110))
        return about
