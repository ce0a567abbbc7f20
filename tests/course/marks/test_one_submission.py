"""From what a submission's process answers to points, reasons and flags; without such a process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

import nbformat
import pytest

from fakegpu_lab.course.checks.checking import REPAIR
from fakegpu_lab.course.flags.policy import Policy
from fakegpu_lab.course.grade import one_submission, repair
from fakegpu_lab.course.grade.flagged import flags
from fakegpu_lab.course.grade.graded_lesson import GradedLesson, LessonCell
from fakegpu_lab.course.grade.one_submission import _suspicious_files, _tampered, _what_was_wrong, grade
from fakegpu_lab.course.grade.outcome import CheckOutcome, Outcome
from fakegpu_lab.course.grade.sandbox.limits import Limits
from fakegpu_lab.course.grade.sandbox.measures import Spent
from fakegpu_lab.course.grade.sandbox.process import EndedError
from fakegpu_lab.course.grade.submissions import Submission
from tests.course.graded_lesson import observed

if TYPE_CHECKING:
    from typing_extensions import Self


def cell(grade_id: str, source: str, **how: Any) -> LessonCell:
    return LessonCell(**{"grade_id": grade_id, "cell_type": "code", "source": source, "visible": source,
                         "grade": False, "solution": False, "locked": True, **how})  # fmt: skip


CELLS = [
    cell("setup", "import torch"),
    cell("move", "YOUR CODE HERE", solution=True, locked=False),
    cell("move-check", "assert x\n1.0", grade=True, points=2),
    cell("late", "YOUR CODE", solution=True, locked=False),
    cell("late-check", "assert y", grade=True, points=1),
    cell("why", "Because.", cell_type="markdown", grade=True, solution=True, locked=False, points=4),
]
LESSON = GradedLesson(name="one", notebook="one", cells=CELLS, shown=["table = 1"], exercises={}, allow=[],
                      files={"data.csv": b"1"}, given_by_solution=[], digest="")  # fmt: skip


def handed_in(why: str = "It is fast.", files: dict[str, bytes] | None = None, **answers: str) -> Submission:
    notebook = nbformat.v4.new_notebook()
    for one in CELLS:
        make = nbformat.v4.new_code_cell if one.cell_type == "code" else nbformat.v4.new_markdown_cell
        text = why if one.grade_id == "why" else answers.get(one.grade_id, one.source)
        notebook.cells.append(make(text, metadata={"nbgrader": {"grade_id": one.grade_id}}))
    return Submission(student="ada", notebook=json.dumps(notebook).encode(), files=files or {})


class FakeSandbox:
    """Answers each cell as `answers` says, instead of a process."""

    answers: ClassVar[dict[str, dict[str, Any]]] = {}
    made: ClassVar[list[FakeSandbox]] = []
    fails: ClassVar[int] = 0

    def __init__(self, files: dict[str, bytes], *rest: Any, **how: Any) -> None:
        self.files, self.how, self.ran = files, how, list[str]()
        self.flags, self.in_force, self.peak_bytes, self.spent = {"seen"}, ["memory"], 5, Spent()
        self.spent.processor = 1.234
        type(self).made.append(self)

    def __enter__(self) -> Self:
        if type(self).fails:
            type(self).fails -= 1
            raise RuntimeError("no process")
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        self.ran.append(job["id"])
        answer = self.answers.get(job["id"], {})
        if "raises" in answer:
            raise answer["raises"]
        told = _canaries(job) if "statements" in job else []
        return {"outputs": [], "interrupted": False, "told": told, "ended": True, **answer}


def _canaries(job: dict[str, Any]) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    observed(job, {}, None, lambda one: told.append(json.loads(json.dumps(one))))
    return told


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    monkeypatch.setattr(one_submission, "Sandbox", FakeSandbox)
    monkeypatch.setattr(FakeSandbox, "answers", {})
    monkeypatch.setattr(FakeSandbox, "made", [])
    monkeypatch.setattr(FakeSandbox, "fails", 0)
    return FakeSandbox.answers


def graded(submission: Submission | None = None, until: str | None = None) -> Outcome:
    return grade(submission or handed_in(move="x = 1", late="y = 1"), LESSON, Limits(), [], until)


def points(outcome: Outcome) -> list[float | None]:
    return [check.points for check in outcome.checks]


def test_points_of_checks_and_answers_for_a_person(answers: dict[str, dict[str, Any]]) -> None:
    answers["move-check"] = {"has_value": True, "score": 1.0}
    outcome = graded()
    assert points(outcome) == [1.0, 1.0, None]
    assert (outcome.score, outcome.max_score, outcome.manual) == (2.0, 7.0, ["why"])
    assert (outcome.status, outcome.reason, outcome.flags) == ("graded", "", ["seen"])
    assert (outcome.peak_bytes, outcome.processor_seconds, outcome.confined) == (5, 1.23, ["memory"])
    assert [check.answer for check in outcome.checks] == [True, True, True]
    assert [check.passed for check in outcome.checks] == [False, True, False]
    assert [(shown.id, shown.ran) for shown in outcome.cells] == [(one.grade_id, True) for one in CELLS[:-1]]


def test_names_of_a_cell_of_the_lesson_that_fails_stay_the_student_s(answers: dict[str, dict[str, Any]]) -> None:
    made = cell("made", "weights = compute(x)")
    raising = cell("raising", "weights = 1 / 0", locked=False)
    reading = cell("late-check", "assert weights", grade=True, points=1)
    lesson = LESSON.model_copy(update={"cells": [*CELLS[:3], made, reading], "raising": [raising.source]})
    mine = handed_in(move="weights = 3\nx = 1")
    flag = "move: gives weights, which the check reads, another value"
    assert flag not in grade(mine, lesson, Limits(), []).flags
    answers["made"] = {"outputs": [{"output_type": "error", "ename": "TypeError", "evalue": "no"}]}
    assert flag in grade(mine, lesson, Limits(), []).flags
    answers["move"] = {"unreadable": True}
    broken = handed_in(move="weights = = 3", late="y = 1")
    assert grade(broken, lesson, Limits(), []).flags == ["seen"], "nor when the cells are read again"
    answers["move"] = {}
    lesson = lesson.model_copy(update={"raising": [made.source]})
    assert flag not in grade(mine, lesson, Limits(), []).flags, "it fails for everybody"


def test_modules_of_a_module_that_was_handed_in_are_followed(answers: dict[str, dict[str, Any]]) -> None:
    files = {"helper.py": b"import torch as t\nfrom math import pi", "other.py": b"from helper import t as u"}
    for use in ("import helper\nhelper.t.os", "import helper as h\nh.t._C", "from helper import t\nt.os",
                "from helper import *\nt.os", "import other\nother.u.os"):  # fmt: skip
        found = graded(handed_in(move=f"x = 1\n{use}", files=files)).flags
        assert any(one.startswith("move: line") for one in found), (use, found)
    fine = handed_in(move="import helper\nx = helper.pi\ny = helper.t.ones(1)", late="y = 1", files=files)
    assert graded(fine).flags == ["seen"]


def test_another_answer_is_seen_within_other_magics(answers: dict[str, dict[str, Any]]) -> None:
    notebook = json.loads(handed_in(move="x = 1").notebook)
    for text in ("%%exercise move\nx = 2", "%%capture\n%%exercise move\nx = 2", "%%time\n%%exercise move\nx = 2"):
        more = nbformat.v4.new_code_cell(text)
        sent = json.dumps(notebook | {"cells": [*notebook["cells"][:2], more, *notebook["cells"][2:]]})
        found = graded(Submission(student="ada", notebook=sent.encode())).flags
        assert any("answers move in another cell" in one for one in found), text


def test_a_copy_above_the_answer_is_harmless_and_other_second_answers_are_unusual(
    answers: dict[str, dict[str, Any]],
) -> None:
    """Students copy a cell before they change it, and that was called serious; so were two answers swapped."""

    def asked(order: str, **sources: str) -> Outcome:
        known = {one["metadata"]["nbgrader"]["grade_id"]: one for one in json.loads(handed_in().notebook)["cells"]}
        given = {"move-check": check.source, "late": "%%exercise late\ny = 1"}
        changed = {name: known.get(name, known["move"]) | {"source": text} for name, text in (given | sources).items()}
        cells = [(known | changed)[name] for name in order.split()]
        return grade(Submission(student="ada", notebook=json.dumps({"cells": cells}).encode()), lesson, Limits(), [])

    check = cell("move-check", "%%check move\n1.0", grade=True, points=2)
    answer = cell("move", "%%exercise move\nYOUR CODE", solution=True, locked=False)
    late = cell("late", "%%exercise late\nYOUR CODE", solution=True, locked=False)
    lesson = LESSON.model_copy(update={"cells": [CELLS[0], answer, check, late, *CELLS[4:]]})
    rest = "late late-check why"
    first, second = "%%exercise move\nx = 0", "%%exercise move\nx = 1"
    flag = "cell 2: answers move in another cell"
    copied = asked(f"setup copy move move-check {rest}", copy=first, move=second)
    assert copied.notes == ["the answer move was copied: the last copy counts"]
    assert copied.flags == ["seen"]
    outcome = asked(f"setup copy move move-check {rest}", copy=first, move="%%time\nx = 1")
    assert flag in outcome.flags, "the check looks at what the copy did"
    outcome = asked(f"setup copy move-check move {rest}", copy=first, move=second)
    assert flag in outcome.flags, "the check ran before the answer"
    swapped = asked(f"setup move move-check {rest}", move="%%exercise late\ny = 1", late=second)
    assert "the cell of move begins with %%exercise late: it should have the answer to move" in swapped.notes
    assert "the cell of late begins with %%exercise move: it should have the answer to late" in swapped.notes
    assert {one.severity for one in flags(swapped) if "another cell" in one.text} == {"unusual"}


def test_files_that_came_with_a_notebook_are_noted(answers: dict[str, dict[str, Any]]) -> None:
    """Without a note, nobody looks at the module in which the answer is."""
    files = {"helper.py": b"x = 1", "data.csv": b"mine", "__pycache__/helper.pyc": b""}
    assert graded(handed_in(move="x = 1", late="y = 1", files=files)).notes == ["it came with helper.py"]
    many = {f"{i}.txt": b"" for i in range(5)}
    assert graded(handed_in(files=many)).notes == ["it came with 0.txt, 1.txt, 2.txt and 2 other files"]


def test_what_an_answer_does_to_measured_memory_is_flagged_unless_the_solution_does_it(
    answers: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers["move-check"] = {"has_value": True, "score": 2.0, "memory": [[1, "freed"], [2, "reset"]]}
    solution = ("move-check", 2, "reset the peak of the memory, while statement 2 ran")
    monkeypatch.setattr(one_submission, "_altered_by_solutions", lambda *_: ({solution}, set()))
    assert graded().flags == ["move-check: freed memory that it had kept, while statement 1 ran", "seen"]


def test_an_answer_that_was_not_written(answers: dict[str, dict[str, Any]]) -> None:
    outcome = graded(handed_in(why=" Because. ", late="y = 1"))
    assert points(outcome)[2] == 0.0
    assert [check.answer for check in outcome.checks] == [False, True, False]
    assert outcome.manual == []


def test_a_part_of_a_notebook_can_be_graded(answers: dict[str, dict[str, Any]]) -> None:
    outcome = graded(until="move-check")
    assert FakeSandbox.made[0].ran == ["setup", "move", "move-check"]
    assert [check.ran for check in outcome.checks] == [True, False, False]
    assert points(outcome)[:2] == [2.0, 0.0]
    assert len(graded(until="no such cell").cells) == 5


def test_a_cell_that_is_stopped_and_a_process_that_ends(answers: dict[str, dict[str, Any]]) -> None:
    answers["move"] = {"interrupted": True}
    outcome = graded()
    assert (outcome.status, outcome.reason) == ("timeout", "move was stopped after 30 s; the rest was run")
    assert points(outcome)[:2] == [2.0, 1.0]
    answers["move"] = {}
    answers["move-check"] = {"interrupted": True}
    outcome = graded()
    assert outcome.reason == "the check of move was stopped after 30 s; the rest was run"
    assert outcome.heading == "Not everything finished"
    assert points(outcome)[:2] == [0.0, 1.0]
    assert outcome.checks[0].wrong == ["it did not finish"]
    answers["move-check"] = {}
    answers["late"] = {"raises": EndedError("memory", "it held more than 2 GiB of memory")}
    outcome = graded()
    assert (outcome.status, outcome.reason) == ("memory", "it held more than 2 GiB of memory, in late")
    assert points(outcome)[:2] == [2.0, 0.0], "what was earned before stays"
    assert [shown.ran for shown in outcome.cells] == [True, True, True, False, False]


def test_what_cannot_be_started_is_tried_twice(answers: dict[str, dict[str, Any]]) -> None:
    FakeSandbox.fails = 1
    assert graded().status == "graded"
    FakeSandbox.fails = 2
    outcome = graded()
    assert (outcome.status, outcome.reason, outcome.score) == ("error", "the grader failed: no process", 0.0)
    assert len(FakeSandbox.made) == 4


def test_an_answer_that_is_no_python_is_the_reason(answers: dict[str, dict[str, Any]]) -> None:
    error = {"output_type": "error", "ename": "SyntaxError", "evalue": "oh"}
    answers["setup"] = {"outputs": [error]}
    assert graded().reason == "", "not the student's cell"
    answers["late"] = {"outputs": [error | {"evalue": "second"}]}
    answers["move"] = {"outputs": [error | {"evalue": "first"}]}
    outcome = graded()
    assert (outcome.heading, outcome.reason) == ("Not every cell ran", "move is not valid Python (first)")


def test_a_library_that_is_missing_where_this_is_graded_is_noted(answers: dict[str, dict[str, Any]]) -> None:
    error = {"output_type": "error", "ename": "ModuleNotFoundError", "evalue": "No module named 'matplotlib'"}
    answers["move"] = {"outputs": [error]}
    assert graded().notes == ["move needs what is not installed here: No module named 'matplotlib'"]


def test_a_cell_of_the_lesson_that_fails_is_noted(answers: dict[str, dict[str, Any]]) -> None:
    """Nobody saw why a whole class had half a point."""
    assert graded().notes == []
    answers["setup"] = {"outputs": [{"output_type": "stream", "name": "stderr", "text": "a warning"}]}
    answers["move"] = {"outputs": [{"output_type": "error", "ename": "ValueError", "evalue": "the student's"}]}
    assert graded().notes == []
    answers["setup"] = {"outputs": [{"output_type": "stream", "name": "stderr", "text": "UsageError: no lesson\n"}]}
    assert graded().notes == ["the lesson's own cell setup failed: UsageError: no lesson"]
    answers["setup"] = {"outputs": [{"output_type": "error", "ename": "ImportError", "evalue": "no torch"}]}
    assert graded().notes == ["the lesson's own cell setup failed: ImportError: no torch"]


def test_a_file_that_is_no_notebook(answers: dict[str, dict[str, Any]]) -> None:
    nothing = handed_in().model_copy(update={"problem": "there is no notebook"})
    for submission, status in (
        (Submission(student="a"), "empty"),
        (Submission(student="a", notebook=b"x"), "unreadable"),
        (nothing, "unreadable"),
    ):
        outcome = graded(submission)
        assert (outcome.status, outcome.score) == (status, 0.0)
        assert outcome.reason
    assert FakeSandbox.made == []


@pytest.mark.parametrize("texts", [["x"] * 1001, ["x" * 100_000] * 6])
def test_a_notebook_with_too_much_in_it_is_not_read(texts: list[str]) -> None:
    cells = [{"cell_type": "code", "source": text} for text in texts]
    with pytest.raises(repair.UnreadableError, match=r"cells with .* characters of code"):
        repair.read(json.dumps({"cells": cells}).encode())


def test_only_the_students_own_cells_and_files_are_read(answers: dict[str, dict[str, Any]]) -> None:
    assert graded().flags == ["seen"]
    files = {"helper.py": b"import ctypes", "data.csv": b"2", "data.py": b"x = 1", "__pycache__/x.cpython-311.pyc": b""}
    outcome = graded(handed_in(move="import inspect\nx = 1", late="y = 1", files=files))
    assert outcome.flags == ["helper.py: line 1 imports ctypes", "move: line 1 imports inspect", "seen"]
    (sandbox,) = FakeSandbox.made[1:]
    assert sandbox.files == {"helper.py": b"import ctypes", "data.csv": b"1", "data.py": b"x = 1"}, (
        "the lesson's come first"
    )
    assert sandbox.how == {"name": "one", "given": ["data.csv"], "read": [], "allow": [], "texts": []}
    assert graded(handed_in(setup="import ctypes", move="x = 1", late="y = 1")).flags == ["seen"], (
        "it has its text back"
    )


def test_a_name_that_the_lesson_makes_again_may_be_changed_before(answers: dict[str, dict[str, Any]]) -> None:
    cells = [one.model_copy() for one in CELLS]
    cells[0].source = cells[0].visible = "x = [1]"
    lesson = LESSON.model_copy(update={"cells": cells})
    notebook = json.loads(handed_in().notebook)

    def flags(where: int, source: str = "x.append(2)") -> list[str]:
        made = json.loads(json.dumps(notebook))
        made["cells"][0]["source"] = cells[0].source
        made["cells"].insert(where, {"cell_type": "code", "source": source, "metadata": {}, "outputs": []})
        handed = Submission(student="ada", notebook=json.dumps(made).encode())
        return [flag for flag in grade(handed, lesson, Limits(), []).flags if "append" in flag or "changes" in flag]

    assert flags(0) == []
    assert flags(1) == ["cell 2: line 1 changes x, which the check reads"]
    assert flags(1, "x[0] = 2") == ["cell 2: line 1 changes x, which the check reads"]
    assert flags(1, "def kernel(x):\n    x[0] = 2") == []  # a parameter is another x


def test_a_copy_of_a_cell_of_the_lesson_is_the_student_s_where_the_lesson_has_none() -> None:
    own = json.loads(handed_in().notebook)
    given = {"cell_type": "code", "source": "table = 1", "metadata": {}, "outputs": []}
    own["cells"].insert(1, given)
    lesson = LESSON.model_copy(update={"solved": json.dumps(own).encode()})
    for where, kinds in ((1, ["given", "student"]), (4, ["given", "student"]), (6, ["given", "student"])):
        made = json.loads(json.dumps(own))
        made["cells"].insert(where, given)
        found = repair.repair(lesson, repair.read(json.dumps(made).encode())).cells
        assert sorted(one.kind for one in found if one.source == "table = 1") == kinds
    assert [one.kind for one in repair.repair(lesson, repair.read(lesson.solved)).cells[:2]] == ["locked", "given"]


def test_a_name_that_is_made_again_after_a_check_was_not_changed_in_vain() -> None:
    cells = [one.model_copy() for one in CELLS]
    cells[0].source = cells[0].visible = "x = [1]"
    cells[2].source = cells[2].visible = "%%check move\nexpect.true(x)"
    lesson = LESSON.model_copy(update={"cells": cells, "shown": ["x = [2]"]})
    again = {"cell_type": "code", "source": "x = [2]", "metadata": {}, "outputs": []}
    for where, found in ((2, []), (5, ["move: line 1 changes x, which the check reads"])):
        made = json.loads(handed_in(setup="x = [1]", move="x.append(2)", late="y = 1").notebook)
        made["cells"].insert(where, again)
        repaired = repair.repair(lesson, repair.read(json.dumps(made).encode()))
        flags = one_submission._suspicious(lesson.policy([]), repaired, lesson.read_by)
        assert sorted(flags) == found


def test_files_that_hide_modules_or_cannot_be_read() -> None:
    def flags(path: str, text: bytes = b"") -> set[str]:
        return _suspicious_files(Policy(), {path: text})

    assert flags("mine.py") == flags("tools/mine.py") == flags("numpy.csv") == flags("notes.txt") == set()
    assert flags("statistics.py") == {"statistics.py: takes the place of the module statistics"}
    assert flags("numpy/core.py") == {"numpy/core.py: takes the place of the module numpy"}
    assert flags("mine.SO") == {"mine.SO: brings compiled code"}
    assert flags("mine.py", b"eval('1')") == {"mine.py: line 1 uses eval"}


def test_what_was_tampered_with_is_said() -> None:
    assert _tampered({}, "check") == []
    message = {"restored": ["torch.equal"], "left": ["a timer was running"], "rebound": ["abs"], "threads": 2}
    told = ["torch.equal had been replaced", "a timer was running", "the name abs had been given another meaning"]
    assert _tampered(message, "student") == told, "threads may end before the check"
    assert _tampered(message, "check") == [*told, "a thread of the notebook's own was running"]


def test_flags_of_a_cell_are_in_the_outcome_with_its_name(answers: dict[str, dict[str, Any]]) -> None:
    answers["late-check"] = {"threads": 1, "restored": ["torch.equal"], "told": []}
    outcome = graded()
    assert outcome.flags == [
        "late-check: a thread of the notebook's own was running",
        "late-check: the check stopped reporting before its end",
        "late-check: torch.equal had been replaced",
        "seen",
    ]
    assert points(outcome)[1] == 0.0
    assert outcome.checks[1].wrong == ["it had no result"]


PARTS = [
    {"met": False, "what": "it is 3", "found": "4"},
    {"met": False, "what": "it is there", "found": ""},
    {"met": True, "what": "fine", "found": "5"},
]


def test_what_was_wrong_in_words() -> None:
    def wrong(record: dict[str, Any] | None = None, points: float = 0.0, **outputs: Any) -> list[str]:
        check = CheckOutcome(grade_id="a", points=points, max_points=2, record=record)
        return _what_was_wrong(check, outputs.get("errors", []), outputs.get("stderr", []))

    assert wrong({"parts": PARTS}) == ["it should be 3; found: 4", "it should be there"]
    ended = {"parts": PARTS, "note": "The cell above ended with an error: ValueError: no While it was checked, oh"}
    assert wrong(ended) == ["its cell ended with an error: ValueError: no"]
    assert wrong(ended, points=1.0) == ["it should be 3; found: 4", "it should be there"], "it was not the only cause"
    no_python = ended | {"note": f"The cell above ended with an error: SyntaxError: no (line 2). {REPAIR}"}
    assert wrong(no_python) == ["its cell ended with an error: SyntaxError: no (line 2)"]
    error = {"ename": "ValueError", "evalue": "no"}
    assert wrong({"parts": PARTS[1:2]}, errors=[error]) == ["it should be there", "ValueError: no"]
    assert wrong(None, errors=[error | {"evalue": ""}]) == ["ValueError"]
    assert wrong({"parts": PARTS[:1]}, stderr=[{"text": "late"}]) == ["it should be 3; found: 4"]
    assert wrong(None, stderr=[{"text": " late \n"}]) == ["it wrote to stderr: late"]
    assert wrong({"unsolved": True}) == ["nothing was written"]
    assert wrong({"unsolved": False}) == wrong(None) == ["not all points"]


def test_the_score_of_an_outcome() -> None:
    checks = [CheckOutcome(grade_id="a", points=one, max_points=2) for one in (0.1, 0.2, None, 2)]
    outcome = Outcome(student="a", lesson="l", digest="", checks=checks)
    assert (outcome.score, outcome.max_score, outcome.manual) == (2.3, 8.0, ["a"])
    assert [check.passed for check in checks] == [False, False, False, True]


ERROR = {"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": []}
STDERR = {"output_type": "stream", "name": "stderr", "text": "oh"}
NO_RESULT = "the check gave no result"
RECORD: dict[str, Any] = {"title": "Move it", "parts": []}


@pytest.mark.parametrize(
    ("source", "message", "points", "flag"),
    [
        ("assert x", {}, 2, ""),
        ("assert x", {"has_value": True, "score": None}, 2, ""),
        ("assert x", {"has_value": True, "score": 2}, 2, ""),
        ("assert x", {"has_value": True, "score": 0}, 0, ""),
        ("assert x", {"has_value": True, "score": -1}, 0, "the check gave -1 of 2 points"),
        ("assert x", {"has_value": True, "score": 2.5}, 0, "the check gave 2.5 of 2 points"),
        ("assert x", {"has_value": True, "score": float("nan")}, 0, "the check gave nan of 2 points"),
        ("assert x", {"outputs": [ERROR]}, 0, ""),
        ("assert x", {"outputs": [ERROR], "ended": False}, 0, ""),
        ("assert x", {"outputs": [STDERR], "has_value": True, "score": 2}, 0, ""),
        ("assert x", {"interrupted": True, "ended": False}, 0, ""),
        ("assert x", {"ended": False}, 0, NO_RESULT),
        ("%%check move", {"has_value": True, "score": 1.5, "record": RECORD}, 1.5, ""),
        ("%%check move", {"has_value": True, "score": 2}, 0, NO_RESULT),
        ("%%check move", {"has_value": True, "score": 2, "record": RECORD, "ended": False}, 0, NO_RESULT),
        ("%%check move", {"outputs": [ERROR], "ended": False}, 0, NO_RESULT),
        ("%%check move", {"outputs": [ERROR], "record": RECORD}, 0, ""),
        ("%%check move", {"interrupted": True, "ended": False}, 0, ""),
    ],
)  # fmt: skip
def test_the_points_of_a_check(source: str, message: dict[str, Any], points: float, flag: str) -> None:
    check, flags = CheckOutcome(grade_id="a", max_points=2), set[str]()
    one_submission.score(check, source, {"interrupted": False, "ended": True, "outputs": []} | message, flags)
    assert check.points == points
    assert flags == ({f"a: {flag}"} if flag else set())
    assert bool(check.wrong) == (points < 2)


def test_a_report_that_cannot_be_believed_earns_nothing() -> None:
    check, flags = CheckOutcome(grade_id="a", max_points=2), set[str]()
    message = {"interrupted": False, "ended": True, "outputs": [], "has_value": True, "score": 2, "record": RECORD}
    one_submission.score(check, "%%check move", message, flags, "the report is out of order")
    assert (check.points, check.wrong, flags) == (0, ["it had no result"], {"a: the report is out of order"})
