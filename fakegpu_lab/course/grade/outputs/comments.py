"""Comments that a person writes once, for everyone whose answer they fit, from a YAML file.

The file has a list for each exercise. A comment is for those who did not meet a part that contains a text (``wrong``),
for students by name, or, without either, for everyone who did not earn all points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from pathlib import Path

    from fakegpu_lab.course.grade.outcome import CheckOutcome, Outcome


class Comment(BaseModel):
    """One comment, and whom it is for."""

    model_config = ConfigDict(extra="forbid")

    comment: str
    wrong: str | None = None
    students: list[str] | None = None

    def fits(self, student: str, check: CheckOutcome) -> bool:
        """Whether the comment is about a student's answer."""
        if self.students is not None and student not in self.students:
            return False
        if self.wrong is not None:
            return any(_plain(self.wrong) in _plain(text) for text in check.wrong)
        return self.students is not None or (check.points is not None and not check.passed)


def _plain(text: str) -> str:
    """A text without what a page does not show of it."""
    return text.replace("`", "").casefold()


_Comments = TypeAdapter(dict[str, list[Comment]])


def read(path: Path, exercises: list[str]) -> dict[str, list[Comment]]:
    """Read a file of comments.

    Raises
    ------
    FakeGpuError
        There is no such file, it has other fields, or an exercise that the lesson does not have.
    """
    try:
        found = _Comments.validate_python(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
    except FileNotFoundError:
        raise FakeGpuError(f"--comments {path}: there is no such file.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise FakeGpuError(f"--comments {path}: {str(error).splitlines()[0]}.") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise FakeGpuError(f"--comments {path}: {'.'.join(map(str, first['loc']))}: {first['msg']}.") from None
    unknown = sorted(set(found) - set(exercises))
    if unknown:
        raise FakeGpuError(
            f"--comments {path}: the lesson has no exercise {unknown[0]}. It has {', '.join(exercises)}."
        )
    return found


def idle(outcomes: list[Outcome], comments: dict[str, list[Comment]]) -> list[str]:
    """The comments that fit nobody."""
    checks = [(outcome.student, check) for outcome in outcomes for check in outcome.checks]
    return [
        f"{name}: {one.comment}"
        for name, about in comments.items()
        for one in about
        if not any(check.grade_id.removesuffix("-check") == name and one.fits(who, check) for who, check in checks)
    ]


def added(outcome: Outcome, comments: dict[str, list[Comment]]) -> Outcome:
    """Return an outcome with the comments that fit, below what a person wrote in the formgrader."""
    made = outcome.model_copy(deep=True)
    for check in made.checks:
        fitting = [
            one.comment
            for one in comments.get(check.grade_id.removesuffix("-check"), [])
            if one.fits(made.student, check)
        ]
        check.comment = "\n".join(filter(None, [check.comment, *fitting]))
    return made
