"""What the grader sends for a check, and what it makes of the answer."""

from __future__ import annotations

import json
from typing import Any

import nbformat
import pytest

from fakegpu_lab.course.checks.observe import tried
from fakegpu_lab.course.expect.attempt import Attempt
from fakegpu_lab.course.grade.examiner import Examiner
from fakegpu_lab.course.grade.graded_lesson import About, GradedLesson, LessonCell
from fakegpu_lab.course.grade.repair import Cell
from tests.course.graded_lesson import observed


def lesson(**changes: Any) -> GradedLesson:
    about = {"first": About(title="The first", points=3, hints=2)}
    return GradedLesson(
        name="one", notebook="one", shown=[], exercises=about, allow=[], files={}, given_by_solution=["made"],
        digest="", **{"cells": [], **changes},
    )  # fmt: skip


def solution(source: str, *, is_solution: bool = True) -> LessonCell:
    return LessonCell(grade_id="a", cell_type="code", source=source, visible="", grade=False, solution=is_solution,
                      locked=not is_solution)  # fmt: skip


def cell(source: str, kind: str = "check") -> Cell:
    return Cell(id="first-check", kind=kind, source=source, visible="shown")


CHECK = "%%check first\nexpect.equal(y, 3)\n### BEGIN HIDDEN TESTS\nexpect.equal(y + 1, 4)\n### END HIDDEN TESTS"


def answered(examiner: Examiner, check: Cell, names: dict[str, Any], attempt: Attempt | None = None) -> dict[str, Any]:
    """What a submission's process would answer."""
    job = examiner.job(check)
    told: list[dict[str, Any]] = []
    observed(job, names, attempt, lambda one: told.append(json.loads(json.dumps(one))))
    return {"told": told, "ended": True, "outputs": []}


def canaries(job: dict[str, Any]) -> int:
    """How many of the statements that are sent are canaries."""
    return sum(canary for _, canary in job["statements"])


def test_a_cell_is_sent_as_it_is() -> None:
    for kind in ("student", "given", "locked"):
        job = Examiner(lesson()).job(cell("x = 1", kind))
        assert job == {"id": "first-check", "kind": kind, "source": "x = 1", "visible": "shown", "any_gpus": False,
                       "given_by_solution": ["made"], "classes": []}  # fmt: skip


@pytest.mark.parametrize(
    ("source", "is_solution", "may"),
    [("lab.enable('t4')", True, True), ("%fakegpu t4", True, True), ("x = 1", True, False),
     ("lab.enable('t4')", False, False)],
)  # fmt: skip
def test_an_answer_may_choose_gpus_if_the_solution_does(source: str, is_solution: bool, may: bool) -> None:
    cells = [solution("y = 2"), solution(source, is_solution=is_solution)]
    assert Examiner(lesson(cells=cells)).job(cell("x", "student"))["any_gpus"] is may


def test_a_check_is_sent_with_its_hidden_parts_and_canaries() -> None:
    job = Examiner(lesson()).job(cell(CHECK))
    assert job["exercise"] == "first"
    own = [text for text, canary in job["statements"] if not canary]
    assert own == ["\nexpect.equal(y, 3)", "\n\n\nexpect.equal(y + 1, 4)"], "each in its line"
    assert canaries(job) == 2, "without a machine, none that records"


def test_canaries_record_where_there_are_gpus() -> None:
    examiner = Examiner(lesson())
    examiner.remember(cell("lab.enable()", "given"), {"gpus": True})
    assert canaries(examiner.job(cell(CHECK))) == 4
    examiner.remember(cell("x = 1", "student"), {})
    assert canaries(examiner.job(cell(CHECK))) == 4, "a cell that ended badly says nothing of the machine"
    examiner.remember(cell("lab.disable()", "given"), {"gpus": False})
    assert canaries(examiner.job(cell(CHECK))) == 2


def test_what_is_judged_is_the_grade() -> None:
    examiner = Examiner(lesson())
    message = answered(examiner, cell(CHECK), {"y": 3}) | {"record": {"forged": True}, "score": 99.0}
    assert examiner.judge(message) == ""
    assert (message["score"], message["has_value"]) == (2.0, True)
    record = message["record"]
    assert (record["title"], record["points"], record["more_points"], record["hints"]) == ("The first", 2.0, 1.0, 2)
    (shown,) = message["outputs"]
    assert float(shown["data"]["text/plain"]) == 2.0
    assert "The first" in shown["data"]["text/html"]
    nbformat.v4.new_output(**shown)
    wrong = answered(examiner, cell(CHECK), {"y": 4})
    assert examiner.judge(wrong) == ""
    assert wrong["score"] == 0.0


def test_a_message_that_did_not_end_has_no_result() -> None:
    examiner = Examiner(lesson())
    message = answered(examiner, cell(CHECK), {"y": 3}) | {"ended": False, "record": {"forged": True}}
    assert examiner.judge(message) == ""
    assert "record" not in message
    assert "score" not in message
    message = answered(examiner, cell(CHECK), {"y": 3})
    message["told"].pop()
    assert examiner.judge(message) == "the check stopped reporting before its end"
    assert "record" not in message


def test_a_check_of_assertions_has_its_own_number() -> None:
    examiner = Examiner(lesson())
    job = examiner.job(cell("assert y == 3\nscore"))
    assert (job["exercise"], canaries(job)) == ("", len(job["statements"]))
    message = answered(examiner, cell("assert y == 3\nscore"), {}) | {"score": 1.0, "has_value": True}
    assert examiner.judge(message) == ""
    assert (message["score"], message["outputs"]) == (1.0, [])
    assert "record" not in message
    message["told"] = []
    assert "stopped reporting" in examiner.judge(message), "its canaries are looked at, too"


def test_what_an_exercise_did_is_kept_from_the_moment_when_it_ended() -> None:
    examiner = Examiner(lesson())
    source = "%%exercise first\ntorch.cuda.synchronize()\ny = 3"
    told = json.loads(json.dumps(tried(Attempt("first", name="cell.py"))))
    check = cell("%%check first\nexpect.calls('synchronize')")
    examiner.remember(cell(source, "student"), {"tried": [told]})
    attempt = Attempt("first", name="cell.py", tree=__import__("ast").parse("\ntorch.cuda.synchronize()\ny = 3"))
    message = answered(examiner, check, {}, attempt)
    assert examiner.judge(message) == ""
    assert message["score"] == 1.0
    examiner.remember(cell(source, "student"), {"tried": [{"exercise": "first", "places": 3}]})
    message = answered(examiner, check, {}, attempt)
    examiner.judge(message)
    assert message["score"] == 0.0, "a report that cannot be read is none"
    examiner.remember(cell("%%exercise first\ny = 3", "student"), {"tried": [told]})
    message = answered(examiner, check, {}, attempt)
    examiner.judge(message)
    assert message["score"] == 0.0, "the cell's text is the grader's"
