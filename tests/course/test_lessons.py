"""The lessons as they are written: every exercise is whole, and worth what is said. (That they run, nbval checks.)"""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from fakegpu_lab.course.checks import statements
from fakegpu_lab.course.lessons import lesson, lesson_library
from fakegpu_lab.hardware.errors import FakeGpuError

SOURCE = Path(__file__).parents[2] / "lessons" / "source"
NAMES = sorted(path.parent.name for path in SOURCE.glob("*/lesson.yaml"))


@pytest.fixture(params=NAMES)
def written(request: pytest.FixtureRequest) -> tuple[lesson.Lesson, dict[str, Any]]:
    """A lesson, and its cells by grade_id."""
    folder = SOURCE / request.param
    notebook = nbformat.read(folder / f"{request.param}.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if "nbgrader" in cell.metadata]
    graded = {cell.metadata.nbgrader.grade_id: cell for cell in cells}
    assert len(graded) == len(cells)
    return lesson.load(folder), graded


def test_every_folder_is_a_lesson() -> None:
    assert [path.name for path in sorted(SOURCE.iterdir()) if path.is_dir()] == NAMES


def test_an_exercise_is_a_solution_cell_and_a_check_worth_its_points(written: Any) -> None:
    told, cells = written
    exercises = {one.id for one in told.exercises}
    assert {name for name, cell in cells.items() if cell.metadata.nbgrader.solution} == exercises
    assert {name for name, cell in cells.items() if cell.metadata.nbgrader.grade} == {
        f"{one}-check" for one in exercises
    }
    for one in told.exercises:
        solution, check = cells[one.id], cells[one.check_id]
        assert solution.source.startswith(f"%%exercise {one.id}\n")
        assert check.source.startswith(f"%%check {one.id}\n")
        assert re.search(r"### BEGIN SOLUTION\n.*### END SOLUTION", solution.source, re.DOTALL)
        assert not solution.metadata.nbgrader.locked
        assert check.metadata.nbgrader.locked
        parts = sum(part.points for part in statements.parts(check.source))
        assert parts == pytest.approx(one.points) == check.metadata.nbgrader.points
        assert len(one.hints) >= 2


def test_every_exercise_is_tried_with_three_wrong_answers(written: Any) -> None:
    told, _ = written
    assert {one.id: len(one.wrong) for one in told.exercises if len(one.wrong) < 3} == {}


@pytest.mark.parametrize(
    ("name", "meets", "never"),
    [
        ("00-tour", ["**sidebar**", "*Transfers* tab", "**optimizer state**"], []),
        ("01-device-placement", ["**no dimensions**", "torch.export.export("], ["torch.jit.trace("]),
        ("02-transfers-and-time", ["**warm-up**", "trace.first_uses", "**pin once, send many times**"], []),
        (
            "03-memory-and-oom",
            ["memory_summary(", "_dump_snapshot(", "at_peak()", "memory_figure()", "TF32", "GradScaler"],
            [],
        ),
        ("04-data-parallel", ["The **forward** pass must be inside", "NVLink between the two cards of a pair"], []),
    ],
)
def test_a_lesson_shows_what_belongs_there(name: str, meets: list[str], never: list[str]) -> None:
    cells = nbformat.read(SOURCE / name / f"{name}.ipynb", as_version=4).cells
    text = "\n".join(cell.source for cell in cells)
    assert [words for words in meets if words not in text] == []
    assert [words for words in never if words in text] == []


def test_every_lesson_says_where_its_statements_come_from(written: Any) -> None:
    told, _ = written
    text = nbformat.read(SOURCE / told.name / f"{told.name}.ipynb", as_version=4)
    every = (SOURCE.parents[1] / "docs" / "facts.md").read_text(encoding="utf-8")
    if told.exercises:
        assert "](facts.md)" in "\n".join(cell.source for cell in text.cells)
        assert f"(../lessons/source/{told.name}/facts.md)" in every
        rows = (SOURCE / told.name / "facts.md").read_text(encoding="utf-8").partition("| --- ")[2].splitlines()[1:]
        cells = [row.strip("| ").split(" | ") for row in rows if row.startswith("| ")]
        assert len(cells) > 3
        assert [row for row in cells if len(row) != 3 or row[2] in ("", "no")] == [], "its source was not opened"


def test_every_link_to_a_file_leads_there_in_a_clone_in_the_release_and_in_a_student_s_copy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    release = SOURCE.parent / "release"
    monkeypatch.setattr(lesson, "shipped", lambda: release)
    lesson_library.fetch_all(tmp_path)
    for root in (SOURCE, release, tmp_path):
        pages = sorted(path for path in root.glob("*/*") if path.suffix in (".ipynb", ".md"))
        assert len(pages) == 27
        for page in pages:
            text = page.read_text(encoding="utf-8")
            if page.suffix == ".ipynb":
                cells = nbformat.reads(text, as_version=4).cells
                text = "\n".join(re.sub(r"`[^`]*`", "", one.source) for one in cells if one.cell_type == "markdown")
            links = re.findall(r"\]\((?!https?:)([^)#\s]+)", text)
            assert links or page.stem == "00-tour", page
            assert [link for link in links if not (page.parent / link).is_file()] == [], page


def test_no_check_shows_a_number_that_nobody_measured(written: Any) -> None:
    """``score(took if right else 99.0, …)`` would tell a student of 99 seconds."""
    _, cells = written
    for cell in cells.values():
        if cell.source.startswith("%%check"):
            for node in ast.walk(ast.parse(cell.source.partition("\n")[2])):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in ("expect.score", "expect.at_most"):
                    for choice in (one for one in ast.walk(node.args[0]) if isinstance(one, ast.IfExp)):
                        for either in (choice.body, choice.orelse):
                            number = isinstance(either, ast.Constant) and isinstance(either.value, (int, float))
                            assert not number, ast.unparse(node.args[0])


def test_before_a_student_thinks_first_there_is_a_place_to_write(written: Any) -> None:
    told, _ = written
    cells = nbformat.read(SOURCE / told.name / f"{told.name}.ipynb", as_version=4).cells
    for text, after in itertools.pairwise(cells):
        if text.cell_type == "markdown" and "**Think first.**" in text.source:
            assert after.source.startswith("%predict "), text.source


def test_every_lesson_tells_what_it_is(written: Any) -> None:
    told, _ = written
    assert told.title
    assert told.goal
    for other in told.prerequisites:
        assert other in NAMES


def test_a_release_has_no_wrong_solutions_and_reads_back(written: Any, tmp_path: Path) -> None:
    told, _ = written
    folder = tmp_path / told.name
    folder.mkdir()
    (folder / lesson.FILE).write_text(told.released().dump(), encoding="utf-8")
    back = lesson.load(folder)
    assert back == told.released()
    assert all(one.wrong == one.right == () for one in back.exercises)


def test_what_is_wrong_with_a_lesson_is_said(tmp_path: Path) -> None:
    def fails(text: str) -> str:
        (tmp_path / lesson.FILE).write_text(text)
        with pytest.raises(FakeGpuError) as error:
            lesson.load(tmp_path)
        return str(error.value)

    whole = "title: A\ngoal: b\nminutes: 3\n"
    assert "goal is missing: add `goal: You can say" in fails("title: A")
    assert "(Also look at minutes.)" in fails("title: A")
    assert "line 2 is not valid YAML" in fails("title: A\ngoal: b: c\n")
    assert "minutes is 'long', but it should be a valid integer" in fails("title: A\ngoal: b\nminutes: long\n")
    assert "has no fields" in fails("A")
    assert "points is 3, and the exercises have 1 together" in fails(
        f"{whole}points: 3\nexercises: [{{id: a, title: A}}]"
    )
    twice = "[{id: a, title: A}, {id: a, title: A}]"
    assert "two exercises have the id 'a'" in fails(f"{whole}points: 2\nexercises: {twice}")
    assert "author is not a field: take it out" in fails(f"{whole}author: me")
    with pytest.raises(FakeGpuError, match="no lesson in"):
        lesson.load(tmp_path / "nowhere")
    with pytest.raises(FakeGpuError, match="Available: 00-tour"):
        lesson.find("99-nothing", tmp_path)


def test_what_students_install_has_no_solutions() -> None:
    """The wheel has the package and the released lessons, and nothing of their sources."""
    root = Path(__file__).parents[2]
    pyproject = (root / "pyproject.toml").read_text(encoding="utf-8")
    wheel = re.search(
        r"\[tool\.hatch\.build\.targets\.wheel\]\n(.*?)\n\n\[tool\.hatch\.build\.targets\.sdist\]", pyproject, re.DOTALL
    )
    assert wheel is not None
    taken = set(re.findall(r'^"?([\w/]+)"? = "fakegpu_lab/', wheel[1], re.MULTILINE))
    assert taken == {"profiles", "lessons/release"}
    assert 'packages = ["fakegpu_lab"]' in wheel[1]
    assert not list((root / "fakegpu_lab").rglob("*.ipynb"))
    for path in (root / "lessons" / "release").rglob("*"):
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        assert not re.search(r"BEGIN SOLUTION|HIDDEN TESTS|^ *(wrong|right):", text, re.MULTILINE), path
    assert re.search(
        r"BEGIN SOLUTION", "".join(p.read_text("utf-8") for p in (root / "lessons" / "source").rglob("*.ipynb"))
    )
