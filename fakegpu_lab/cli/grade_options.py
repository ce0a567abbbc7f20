"""The options of a grading run, kept beside the grades: a run that continues or corrects it has them, too."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import TypeAdapter

from fakegpu_lab.course import whole_file

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

KEPT = (
    "feedback", "summary", "gradebook", "student", "cell_seconds", "total_seconds", "memory", "processes", "format",
    "roster", "due", "late_days", "late_penalty", "extensions", "times", "comments", "similar",
)  # fmt: skip
"""Those that decide what the files say, and which files there are."""

_Options = TypeAdapter(dict[str, str | int | float])


def path_of(grades: Path) -> Path:
    """The file of options beside a table of grades."""
    return grades.with_name(grades.name + ".options.yaml")


def earlier(grades: Path, lesson: str, given: Collection[str]) -> dict[str, Any]:
    """The options with which this lesson was graded before, other than those that are given now.

    Raises
    ------
    FakeGpuError
        The file is not as it was written.
    """
    found = whole_file.kept(path_of(grades), _Options)
    if found.get("lesson") != lesson:
        return {}
    return {name: found[name] for name in KEPT if name in found and name not in given}


def keep(grades: Path, lesson: str, options: dict[str, Any]) -> None:
    """Write the options of a run, as far as the next one needs them."""
    kept = {name: options[name] for name in KEPT if name in options}
    with whole_file.writing(path_of(grades)) as file:
        file.write(yaml.safe_dump({"lesson": lesson} | kept, allow_unicode=True, sort_keys=False))


def written(options: dict[str, Any]) -> str:
    """Options as one types them."""
    return " ".join(f"--{name.replace('_', '-')} {shlex.quote(str(value))}" for name, value in options.items())
