"""What a check found, as data: the score, and each part with what was expected and found."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

MIME = "application/vnd.fakegpu-lab.check+json"
"""The MIME type of a `CheckRecord` in a check cell's output, beside text and HTML."""


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
    line: str = Field(default="", description="where in the student's code, e.g. In[7], line 3")
    code: str = Field(default="", description="the text of that line")
    hint: str = ""
    message: str = Field(default="", description="what the author says to this outcome")
    hidden: bool = Field(default=False, description="whether students get to see it before it is graded")


class CheckRecord(_Frozen):
    """The result of a check."""

    version: int = Field(default=1, description="of this schema; grows when a field changes its meaning")
    exercise: str
    title: str = ""
    score: float
    points: float = Field(description="of all parts that ran")
    unsolved: bool = Field(default=False, description="whether nothing was written yet")
    parts: tuple[PartRecord, ...] = ()
    note: str = Field(default="", description="anything else, such as what was printed to stderr")
    more_points: float = Field(default=0.0, description="points of hidden parts, which are not here")
    hints: int = Field(default=0, description="how many hints the exercise has")

    @property
    def passed(self) -> bool:
        """Whether every part is met, also those that are not shown."""
        return bool(self.parts) and all(part.met for part in self.parts) and self.score > self.points - 1e-6
