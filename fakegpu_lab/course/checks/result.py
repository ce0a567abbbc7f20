"""What came of a check: points for nbgrader, a card for the student, JSON for programs."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import Self

MIME = "application/vnd.fakegpu-lab.check+json"
"""The type under which a `CheckRecord` stands in a check cell's output, beside text and HTML."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PartRecord(_Frozen):
    """One part of a check."""

    what: str = Field(description="what was expected, a sentence")
    met: bool
    points: float = Field(description="what it is worth")
    earned: float = Field(description="what it earned")
    expected: str = ""
    found: str = ""
    line: str = Field(default="", description="where in the student's code, e.g. In[7] line 3")
    code: str = Field(default="", description="the text of that line")
    hint: str = ""
    message: str = Field(default="", description="what the author says to this outcome")
    hidden: bool = Field(default=False, description="whether students get to see it before it is graded")


class CheckRecord(_Frozen):
    """What came of a check."""

    version: int = Field(default=1, description="of this schema; grows when a field changes its meaning")
    exercise: str
    title: str = ""
    score: float
    points: float = Field(description="of all parts that ran")
    unsolved: bool = Field(default=False, description="whether nothing was written yet")
    parts: tuple[PartRecord, ...] = ()
    note: str = Field(default="", description="what else is to be said: what was printed to stderr, say")
    more_points: float = Field(default=0.0, description="points of hidden parts, which are not here")
    hints: int = Field(default=0, description="how many hints the exercise has")

    @property
    def passed(self) -> bool:
        """Whether every part is met."""
        return bool(self.parts) and all(part.met for part in self.parts)


class Result(float):
    """A check's value: the points earned, as a number. In a notebook it is a card.

    nbgrader reads the score from the cell's last value, as text: that is ``repr(result)``. ``print(result)`` tells all.
    """

    record: CheckRecord

    def __new__(cls, record: CheckRecord) -> Self:
        """Make the result of a record."""
        made = super().__new__(cls, record.score)
        made.record = record
        return made

    def __str__(self) -> str:
        from fakegpu_lab.course.checks import card

        return card.text(self.record)

    def _repr_html_(self) -> str:
        from fakegpu_lab.course.checks import card

        return card.html(self.record)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        record = self.record.model_dump(mode="json")
        return {"text/plain": repr(self), "text/html": self._repr_html_(), MIME: record}
