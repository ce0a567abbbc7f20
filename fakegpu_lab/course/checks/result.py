"""The value of a check cell: a number for nbgrader, a card for the student, JSON for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.checks import card
from fakegpu_lab.course.checks.record import MIME

if TYPE_CHECKING:
    from typing_extensions import Self

    from fakegpu_lab.course.checks.record import CheckRecord


class Result(float):
    """A check's value: the points earned, as a number. In a notebook it is a card.

    nbgrader reads the score from the cell's last value, as text: from ``repr(result)``. ``print(result)`` shows all of
    it.
    """

    record: CheckRecord

    def __new__(cls, record: CheckRecord) -> Self:
        """Make the result that shows a record."""
        made = super().__new__(cls, record.score)
        made.record = record
        return made

    def __str__(self) -> str:
        return card.text(self.record)

    def _repr_html_(self) -> str:
        return card.html(self.record)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        record = self.record.model_dump(mode="json")
        return {"text/plain": repr(self), "text/html": self._repr_html_(), MIME: record}
