"""Writing lessons: a new one is whole, and what is wrong with one is told in a sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pytest
import yaml

pytest.importorskip("nbgrader")

from fakegpu_lab.cli.commands import cli
from fakegpu_lab.course.authoring import add, check, new, rename, rules
from fakegpu_lab.course.authoring.answers import Answer, grade_id, grade_together, handed_in, replaced
from fakegpu_lab.course.checks.record import CheckRecord
from fakegpu_lab.course.grade import graded_lesson as graded
from fakegpu_lab.course.grade.outcome import Outcome
from fakegpu_lab.course.lessons import lesson as lessons
from fakegpu_lab.course.lessons import progress
from fakegpu_lab.course.lessons.lesson import WrongSolution
from fakegpu_lab.course.lessons.release import release, released, text
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from fakegpu_lab.course.authoring.check import Finding

LESSONS = Path(__file__).parents[2] / "lessons"


def findings(folder: Path) -> dict[str, list[str]]:
    found: list[Finding] = []
    begun: list[str] = []
    well = check.check(folder, found.append, nbval=False, begun=begun.append)
    assert bool(begun) == (len(found) > 3), "minutes pass before the next finding"
    assert well == (not any(finding.wrong for finding in found))
    return {finding.what.split(" (")[0]: finding.wrong for finding in found}


def test_a_new_lesson_is_whole_and_each_fault_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A fault of each kind at once: what is told of the whole lesson is nothing, of the faulty one a sentence each."""
    good = new.write("05-good", tmp_path)
    assert not [text for texts in findings(good).values() for text in texts]

    bad = new.write("06-bad", tmp_path)
    notebook = nbformat.read(bad / "06-bad.ipynb", as_version=4)
    for cell in notebook.cells:
        if grade_id(cell) == "there-and-doubled":
            cell.source = cell.source.replace("x.to", "import sys; print('!', file=sys.stderr)\ndoubled = x.to")
            cell.source = cell.source.replace("doubled = import", "import")
        if grade_id(cell) == "there-and-doubled-check":
            cell.source = (
                '%%check there-and-doubled\nexpect.transfers(d2h_at_most=0)\nexpect.on_device(doubled, "cuda:0")'
            )
    nbformat.write(notebook, bad / "06-bad.ipynb")
    told = yaml.safe_load((bad / "lesson.yaml").read_text(encoding="utf-8"))
    told["budget"] = {"seconds": 60, "memory": "10MiB"}
    told["exercises"][0]["right"] = [
        {"why": "added to itself", "code": 'there = x.to("cuda")\ndoubled = there + there\n'},
        {"why": "doubled on the CPU", "code": "doubled = x * 2\n"},
    ]
    (bad / "lesson.yaml").write_text(yaml.safe_dump(told), encoding="utf-8")
    found = findings(bad)
    assert found["the solution passes every check"] == []
    assert found["nothing is printed to stderr, and no cell fails"] == ["there-and-doubled prints to stderr: !"]
    assert "the budget is 10.00 MiB" in found["time and memory stay within the budget"][0]
    assert found["each of 2 wrong solutions fails, as lesson.yaml says"] == [
        "there-and-doubled (moved, but not doubled): it earns 2, and should earn 1."
    ]
    assert found["each of 2 other right solutions passes"] == [
        "there-and-doubled (doubled on the CPU): it earns 1 of 2 points: `doubled` should be on cuda:0; found: on cpu"
    ]
    assert capsys.readouterr().err == ""


@pytest.mark.long
def test_wrong_answers_of_one_run_get_what_each_gets_in_a_run_of_its_own(tmp_path: Path) -> None:
    """Names that an answer leaves are gone before the next; an answer that changes what others need does not count."""
    folder = new.write("05-good", tmp_path)
    add.add(folder, "more")
    loaded, source = graded.load(folder), nbformat.read(folder / "05-good.ipynb", as_version=4)

    def answer(exercise: str, code: str) -> Answer:
        return Answer(exercise, f"%%exercise {exercise}\n{code}")

    first, more = "there-and-doubled", "more"
    leaves_a_name = answer(first, 'doubled = on_gpu = x.to("cuda")')
    needs_that_name = answer(first, "doubled = on_gpu * 2")
    ends_the_process = answer(first, "import os; os._exit(1)")
    changes_torch = answer(more, "answer = torch.ones(3)\ntorch.ones = torch.zeros_like")
    no_exercise = Answer(more, "answer = torch.ones(3)")
    tries = [leaves_a_name, ends_the_process, needs_that_name, changes_torch, no_exercise]
    right = handed_in(source, released(source), {}, "solution")
    known = grade_together(right, loaded, check.LIMITS, tries)
    assert {one: (outcome.points, outcome.max_points) for one, outcome in known.items()} == {
        leaves_a_name: (1.0, 2.0),
        needs_that_name: (0.0, 2.0),
        changes_torch: (0.0, 1.0),  # torch is put back, so that the solution passes after it
    }
    assert "NameError: name 'on_gpu' is not defined" in known[needs_that_name].wrong[0]


@pytest.mark.parametrize(
    ("processor", "asleep", "told"),
    [
        (50.0, 170.0, []),
        (61.0, 0.0, ["It took 61 s of processor time; the budget is 60 s."]),
        (1.0, 181.0, ["It slept for 181 s, and took 1 s of processor time: what does it wait for?"]),
    ],
)
def test_the_budget_of_time(tmp_path: Path, processor: float, asleep: float, told: list[str]) -> None:
    lesson = lessons.load(new.write("05-good", tmp_path))
    assert lesson.budget.seconds == 60
    outcome = Outcome(
        student="", lesson="", digest="", seconds=9999, processor_seconds=processor, asleep_seconds=asleep
    )
    assert check._budget(outcome, lesson)[1] == told


def test_what_does_not_fit_together_is_told_without_running_anything(tmp_path: Path) -> None:
    folder = new.write("05-odd", tmp_path)
    lesson, notebook = lessons.load(folder), nbformat.read(folder / "05-odd.ipynb", as_version=4)
    assert rules.problems(lesson, notebook) == []
    assert rules.hints(lesson, folder) == []
    cells = {grade_id(cell) or cell.id: cell for cell in notebook.cells}
    cells["there-and-doubled"].source = "doubled = 1"
    cells["there-and-doubled-check"].source += "\nexpect.true(1)"
    cells["there-and-doubled-check"].metadata.nbgrader["points"] = 5
    cells["setup"].source = "%fakegpu t4\n%lesson 04-even"
    cells["cell-05"].source = "Do it.\n\n*9 points*"
    cells["setup"].metadata.nbgrader["mine"] = 1
    cells["cell-08"].source = "# no hints"
    notebook.metadata["widgets"] = {}
    said = "\n".join(rules.problems(lesson, notebook))
    for part in (
        "The notebook has widget state",
        "should say %lesson 05-odd: it says 04-even",
        "its cell should begin with %%exercise there-and-doubled",
        "its check are worth 3 points together, but lesson.yaml says 2, nbgrader's metadata says 5, its text says 9.",
        "fakegpu-lab lesson points copies them from the check.",
        "no cell says # %hint there-and-doubled",
        "lesson.yaml says hardware: a100, the notebook %fakegpu t4",
        "['mine']",
    ):
        assert part in said
    notebook.cells.remove(cells["there-and-doubled-check"])
    assert "there is no grade cell there-and-doubled-check" in "\n".join(rules.problems(lesson, notebook))


def test_a_listed_answer_is_python(tmp_path: Path) -> None:
    folder = new.write("05-odd", tmp_path)
    lesson, notebook = lessons.load(folder), nbformat.read(folder / "05-odd.ipynb", as_version=4)
    exercise = lesson.exercises[0]
    cell = next(cell for cell in notebook.cells if grade_id(cell) == exercise.id)
    part = "    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION\n"
    cell.source = f"%%exercise {exercise.id}\ndef one():\n{part}\n\ndef two():\n{part}"
    lesson = lesson.model_copy(
        update={
            "exercises": [
                exercise.model_copy(
                    update={
                        "wrong": [
                            WrongSolution(why="only one of the two functions", code="return 2"),
                            WrongSolution(
                                why="both", code=f"%%exercise {exercise.id}\ndef one():\n    return 2\n\n\ntwo = one"
                            ),
                        ]
                    }
                )
            ]
        }
    )
    (said,) = [one for one in rules.problems(lesson, notebook) if "Python" in one]
    assert said.startswith(f"{exercise.id} (only one of the two functions): with this answer, the cell is not valid")
    assert f"the answer is the whole cell, from %%exercise {exercise.id} on." in said


def test_the_budget_of_memory_is_in_the_unit_of_what_was_held(tmp_path: Path) -> None:
    lesson = lessons.load(new.write("05-good", tmp_path))
    assert lesson.budget.memory == "1GB"
    outcome = Outcome(student="", lesson="", digest="", peak_bytes=1_000_500_000)
    assert check._budget(outcome, lesson)[1] == ["It used 954.15 MiB of memory; the budget is 953.67 MiB."]


def test_a_released_notebook_has_no_solutions_and_no_hidden_parts(tmp_path: Path) -> None:
    source = nbformat.reads(new.text(new.notebook("05-x", "X")), as_version=4)
    cells = released(source).cells
    folded = [cell.source for cell in cells if cell.metadata.get("jupyter", {}).get("source_hidden")]
    assert folded == [cell.source for cell in cells if cell.source.startswith("%%check")] != []
    given = "\n".join(cell.source for cell in cells)
    assert "raise NotImplementedError" in given
    assert "SOLUTION" not in given
    assert "HIDDEN" not in given
    assert "tensor([0.0" not in given
    assert "SOLUTION" in "\n".join(cell.source for cell in source.cells), "the source stays as it is"


def test_what_running_a_lesson_left_is_taken_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = new.write("05-run", tmp_path / "source")
    path = folder / "05-run.ipynb"
    fresh = path.read_text(encoding="utf-8")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[3].outputs = [nbformat.v4.new_output("stream", text="cpu")]
    notebook.cells[3].execution_count = 4
    notebook.metadata["widgets"] = {"state": {}}
    nbformat.write(notebook, path)
    assert len(rules.problems(lessons.load(folder), notebook)) == 2
    monkeypatch.chdir(tmp_path)
    kept = folder.parent / "fakegpu-progress.json"
    progress.checked(kept, lessons.load(folder), CheckRecord(exercise="there-and-doubled", score=2, points=2))
    assert "05-run" in progress.read(kept).lessons
    cli.main(["lesson", "clean", "05"], standalone_mode=False)
    assert path.read_text(encoding="utf-8") == fresh
    assert progress.read(kept).lessons == {}


def test_answers_take_the_place_of_solutions() -> None:
    source = "%%exercise a\ndef f():\n    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION\nf()"
    assert replaced(source, "x = 2\nreturn x\n") == "%%exercise a\ndef f():\n    x = 2\n    return x\nf()"
    assert replaced("%%exercise a\nf = 1", "f = 2") == "%%exercise a\nf = 2"
    assert replaced(source, "%%exercise a\nf = 2") == "%%exercise a\nf = 2"


def test_an_exercise_is_added_to_what_is_there(tmp_path: Path) -> None:
    folder = new.write("05-good", tmp_path)
    file = folder / lessons.FILE
    file.write_text("# mine\n" + file.read_text(encoding="utf-8") + "read_next: [06-next]\n", encoding="utf-8")
    before = nbformat.read(folder / "05-good.ipynb", as_version=4).cells
    for name in ("where-is-it", "and-now"):
        path = add.add(folder, name)
    lesson, notebook = lessons.load(folder), nbformat.read(path, as_version=4)
    assert [one.id for one in lesson.exercises] == ["there-and-doubled", "where-is-it", "and-now"]
    assert (lesson.points, lesson.read_next) == (4, ("06-next",))
    assert file.read_text(encoding="utf-8").startswith("# mine\n")
    assert notebook.cells[: len(before)] == before
    nbformat.validate(notebook)
    assert rules.problems(lesson, notebook) == []
    for name in ("and-now", "No Name"):
        with pytest.raises(FakeGpuError, match=name):
            add.add(folder, name)


def test_an_exercise_gets_another_name_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = new.write("05-good", tmp_path / "source")
    add.add(folder, "there")
    monkeypatch.chdir(tmp_path)
    cli.main(["lesson", "rename", "05", "there", "elsewhere"], standalone_mode=False)
    lesson, notebook = lessons.load(folder), nbformat.read(folder / "05-good.ipynb", as_version=4)
    assert [one.id for one in lesson.exercises] == ["there-and-doubled", "elsewhere"]
    assert rules.problems(lesson, notebook) == []
    assert {"elsewhere", "elsewhere-check", "there-and-doubled"} <= {grade_id(cell) for cell in notebook.cells}
    assert "elsewhere-hint" in {cell.id for cell in notebook.cells}
    for old, other, said in (
        ("there", "x", "has no exercise there"),
        ("elsewhere", "X Y", "is not a name for an exercise"),
        ("elsewhere", "there-and-doubled", "already has an exercise there-and-doubled"),
    ):
        with pytest.raises(FakeGpuError, match=said):
            rename.rename(folder, old, other)


def test_points_are_taken_from_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = new.write("05-good", tmp_path / "source")
    add.add(folder, "more")
    notebook = nbformat.read(folder / "05-good.ipynb", as_version=4)
    cells = {grade_id(cell) or cell.id: cell for cell in notebook.cells}
    cells["there-and-doubled-check"].source += "\nexpect.equal(1, 1, points=2.5)"
    nbformat.write(notebook, folder / "05-good.ipynb")
    assert len(rules.problems(lessons.load(folder), notebook)) == 1
    monkeypatch.chdir(tmp_path)
    cli.main(["lesson", "release", "05"], standalone_mode=False)
    assert "earlier" not in capsys.readouterr().out
    cli.main(["lesson", "points", "05"], standalone_mode=False)
    cli.main(["lesson", "release", "05"], standalone_mode=False)
    assert "Notebooks of 1 earlier version are still graded by what they came from." in capsys.readouterr().out
    lesson, notebook = lessons.load(folder), nbformat.read(folder / "05-good.ipynb", as_version=4)
    assert ([one.points for one in lesson.exercises], lesson.points) == ([4.5, 1], 5.5)
    assert "*4.5 points*" in "\n".join(cell.source for cell in notebook.cells)
    assert rules.problems(lesson, notebook) == []
    assert rename.points(folder) == []
    file = folder / "lesson.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("points: 5.5", "points: 3"), encoding="utf-8")
    with pytest.raises(FakeGpuError, match=r"points is 3, and the exercises have 5.5 together: .*lesson points"):
        lessons.load(folder)
    assert rename.points(folder) == []
    assert lessons.load(folder).points == 5.5


def test_bad_names_are_refused_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FakeGpuError, match="is not a name for a lesson"):
        cli.main(["lesson", "new", "My Lesson"], standalone_mode=False)
    with pytest.raises(FakeGpuError, match="There is no lesson nowhere"):
        cli.main(["lesson", "check", "nowhere"], standalone_mode=False)
    new.write("05-a", tmp_path / "source")
    with pytest.raises(FakeGpuError, match="does not exist"):
        cli.main(["grade", "--lesson", "05", "absent"], standalone_mode=False)
    with pytest.raises(FakeGpuError, match="There is no lesson 99"):
        cli.main(["grade", "--lesson", "99", "absent"], standalone_mode=False)


@pytest.mark.parametrize("lesson", sorted(path.name for path in (LESSONS / "source").glob("[0-9]*")))
def test_the_release_is_in_step_with_its_source(lesson: str, tmp_path: Path) -> None:
    release(LESSONS / "source" / lesson, tmp_path)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    given_out = {path.name: path.read_bytes() for path in (LESSONS / "release" / lesson).iterdir()}
    assert made == given_out, "run: fakegpu-lab lesson release"


def test_a_lesson_and_an_exercise_are_made_at_once(tmp_path: Path) -> None:
    """What takes seconds to import is not imported, and the notebook is written as nbformat writes it."""
    heavy = ("torch", "nbformat", "jsonschema", "IPython", "nbgrader")
    code = f"""
import sys
from fakegpu_lab.cli.commands import cli
for words in (["new", "05-quick"], ["exercise", "05-quick", "more"], ["exercise", "05", "again"]):
    cli.main(["lesson", *words], standalone_mode=False)
print([name for name in {heavy} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    path = tmp_path / "source" / "05-quick" / "05-quick.ipynb"
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.read_text(encoding="utf-8") == text(notebook)
    assert len(lessons.load(path.parent).exercises) == 3


def test_what_a_lesson_s_notebook_writes_is_not_released_and_graded_as_it_is_now(tmp_path: Path) -> None:
    folder = new.write("05-good", tmp_path / "source")
    notebook = nbformat.read(folder / "05-good.ipynb", as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("%%writefile photos.py\nx = 1"))
    nbformat.write(notebook, folder / "05-good.ipynb")
    for name in ("photos.py", "data.csv"):
        (folder / name).write_text("x = 0, of an earlier run")
    assert graded.load(folder).files["photos.py"] == b"x = 1\n", "as the notebook writes it now"
    written = {path.name for path in release(folder, tmp_path / "out")}
    assert "data.csv" in written
    assert "photos.py" not in written, "it is there once the lesson has been run"
