"""Flags for a person: how serious they are, and what somebody has looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("nbgrader")

from fakegpu_lab.cli.commands import cli
from fakegpu_lab.course.flags.policy import Policy
from fakegpu_lab.course.grade import whole_class
from fakegpu_lab.course.grade.flagged import flags
from fakegpu_lab.course.grade.outcome import CheckOutcome, Outcome
from fakegpu_lab.hardware.errors import FakeGpuError
from tests.course import quick_course

if TYPE_CHECKING:
    from tests.course.quick_course import Course

UNUSUAL = {
    "move: line 1 imports inspect",
    "move: line 2 uses the magic bookmark",
    "cell 3: line 4 sets thing.profile, which the answer did not make",
    "move: line 1 uses torch.jit.script",
    "started a thread of its own",
    "move-check: torch's default dtype was torch.float16",
    "helper.py: line 2 imports psutil",
}
SERIOUS = {
    "move: line 1 uses exec",
    "move: line 1 uses enum.bltns.exec",
    "move: line 3 reads f_back",
    "move-check: it lied",
    "move-check: builtins.len had been replaced",
    "move: line 9 changes table, which the check reads",
    "move: line 1 reaches into the simulated machine's internal records (.ledger)",
    "wrote into the grader's own pipe",
    "tried to open a file of the course",
    "used ctypes",
    "peft.so: brings compiled code",
}


@pytest.mark.parametrize("flag", sorted(UNUSUAL | SERIOUS))
def test_how_serious_a_flag_is(flag: str) -> None:
    (found,) = flags(Outcome(student="ada", lesson="two", digest="", flags=[flag]))
    assert found.severity == ("serious" if flag in SERIOUS else "unusual")


def test_serious_flags_come_first_each_with_its_exercise() -> None:
    texts = ["move: line 1 imports inspect", "used ctypes", "move-check: it lied", "cell 3: line 1 uses exec"]
    found = flags(Outcome(student="ada", lesson="two", digest="", flags=texts))
    assert [one.exercise for one in found] == ["cell 3", "move", "notebook", "move"]


@pytest.mark.parametrize(
    "text",
    ["import pdb", "from pdb import set_trace", "DEBUG = False\nif DEBUG:\n    breakpoint()",
     "import pdb\nif False: pdb.set_trace()", "def f(x):\n    if x is None:\n        breakpoint()\n    return x"],
)  # fmt: skip
def test_a_debugger_that_was_left_is_not_flagged(text: str) -> None:
    assert Policy().flags(text) == []


@pytest.fixture
def flagged(course: Course, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ada's flags, which may be changed."""
    found = ["move: line 1 imports inspect", "move-check: it lied", "place: line 2 uses exec"]

    def graded(*asked: Any) -> Any:
        outcome = quick_course.outcome_of(*asked)
        return outcome.model_copy(update={"flags": found if outcome.student == "ada" else []})

    monkeypatch.setattr(whole_class, "grade", graded)
    return found


def command(*words: str) -> None:
    assert not cli.main(["flags", *words], standalone_mode=False)


def test_what_was_looked_at_stays_so(course: Course, flagged: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    row = course.grade()
    assert (row["flags"].count(";"), row["acknowledged"]) == (2, "")
    assert "Please look at: 1, 1 of them with a serious flag" in capsys.readouterr().out
    command("grades.csv")
    assert "it lied" in capsys.readouterr().out
    command("grades.csv", "ada", "move", "--note", "She showed me: it is her own.")
    for options in (["--resume"], []):  # also where everything is graded again
        row = course.grade(*options)
        assert row["flags"] == "place: line 2 uses exec"
        assert row["acknowledged"] == "move: She showed me: it is her own."
    page = (course.folder / "grades.html").read_text(encoding="utf-8")
    assert "She showed me" in page
    assert "it lied" not in page
    capsys.readouterr()
    command("grades.csv")
    assert "it lied" not in capsys.readouterr().out
    flagged.append("move: line 7 uses eval")
    assert course.grade()["flags"] == "move: line 7 uses eval; place: line 2 uses exec", "a new one asks again"
    command("grades.csv", "ada", "move", "--withdraw")
    assert course.grade()["flags"].count(";") == 3


def test_a_check_that_was_graded_again_is_known_to_the_next_run() -> None:
    old = Outcome(student="ada", lesson="two", digest="a", edition="1")
    again = old.model_copy(update={"edition": "2", "checks": [CheckOutcome(grade_id="move-check", max_points=1)]})
    assert old.model_copy(update={"checks": again.checks}).with_check("move-check", again).edition == "2"


def test_wrong_use_has_a_sentence(course: Course, flagged: list[str]) -> None:
    with pytest.raises(FakeGpuError, match="Nothing has been graded here"):
        command("grades.csv")
    course.grade()
    with pytest.raises(FakeGpuError, match=r"no flag for why\. What is flagged: move, place"):
        command("grades.csv", "ada", "why", "--note", "fine")
    with pytest.raises(FakeGpuError, match="no submission of eve"):
        command("grades.csv", "eve", "move", "--note", "fine")
    with pytest.raises(FakeGpuError, match="Name a student, an exercise"):
        command("grades.csv", "ada", "move")
    (course.folder / "grades.csv.acknowledged.yaml").write_text("ada: 3")
    with pytest.raises(FakeGpuError, match="cannot be read"):
        command("grades.csv")
