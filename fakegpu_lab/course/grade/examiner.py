"""The grader's side of one submission's checks: what is sent to its process, and what is made of the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.cell_text.reached import read_names
from fakegpu_lab.course.cell_text.source import transformed, tree_of
from fakegpu_lab.course.checks.examination import Examination, TamperedError, Tried

if TYPE_CHECKING:
    from fakegpu_lab.course.grade.graded_lesson import GradedLesson
    from fakegpu_lab.course.grade.repair import Cell

_MAGIC = "%%check"


class Examiner:
    """Judges the checks of one submission, in order.

    Parameters
    ----------
    lesson
        The lesson, with the texts of its checks.
    """

    def __init__(self, lesson: GradedLesson) -> None:
        self._lesson = lesson
        self._tried: dict[str, Tried] = {}
        self._reads: dict[str, set[str]] = {}
        self._cells: dict[str, str] = {}
        self._gpus = False
        self._exercise = ""
        self._examination: Examination | None = None

    def job(self, cell: Cell) -> dict[str, Any]:
        """What the submission's process is sent for a cell."""
        job: dict[str, Any] = {
            "id": cell.id,
            "kind": cell.kind,
            "source": cell.source,
            "visible": cell.visible,
            "given_by_solution": self._lesson.given_by_solution,
            "any_gpus": self._lesson.solutions_choose_gpus,
            "classes": self._lesson.classes,
        }
        self._reads[cell.id] = read_names(tree_of(cell.source))
        if cell.kind != "check":
            return job
        first, _, rest = cell.source.lstrip().partition("\n")
        self._exercise = first.removeprefix(_MAGIC).strip() if first.startswith(_MAGIC) else ""
        self._examination = Examination("\n" + transformed(rest) if self._exercise else "", gpus=self._gpus)
        return job | {"exercise": self._exercise, **self._examination.job()}

    def remember(self, cell: Cell, message: dict[str, Any]) -> None:
        """Keep what an exercise's cell did, from the moment when it ended."""
        self._gpus = bool(message.get("gpus", self._gpus))
        for told in message.get("tried", []):
            _, _, rest = cell.source.lstrip().partition("\n")
            try:
                self._tried[told["exercise"]] = Tried(told["exercise"], "\n" + transformed(rest), told)
                self._cells[told["exercise"]] = cell.id
            except (KeyError, TypeError, ValueError, AttributeError):
                self._tried.pop(str(told.get("exercise", "")), None)

    def judge(self, message: dict[str, Any]) -> str:
        """Judge the check that was sent last; put its record and score into `message`, or return what is wrong."""
        examination, about = self._examination, self._lesson.about(self._exercise)
        message.pop("record", None)
        if examination is None or not message.get("ended"):
            return ""
        tried = self._tried.get(self._exercise)
        if tried is not None:
            own = self._cells[self._exercise]
            tried.attempt.elsewhere = set().union(*(read for name, read in self._reads.items() if name != own))
        try:
            result = examination.judge(
                message["told"],
                tried,
                exercise=self._exercise,
                title=about.title,
                points=about.points,
                hints=about.hints,
            )
        except TamperedError as error:
            return str(error)
        if self._exercise:
            message |= {"record": result.record.model_dump(mode="json"), "has_value": True, "score": float(result)}
            shown = {"text/plain": repr(result), "text/html": result._repr_html_()}
            message["outputs"].append({"output_type": "execute_result", "data": shown, "metadata": {}})
        return ""
