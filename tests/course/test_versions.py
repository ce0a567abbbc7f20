"""A lesson that changed after it was handed out: each notebook is graded by the version that it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import nbformat
import pytest

pytest.importorskip("nbgrader")

from fakegpu_lab.course.grade import graded_lesson, versions
from fakegpu_lab.course.grade.submissions import Submission
from fakegpu_lab.course.lessons import release
from tests.course import graded_lesson as made

if TYPE_CHECKING:
    from pathlib import Path

    from tests.course.quick_course import Course


def changed(folder: Path, old: str, new: str) -> None:
    """Change a lesson's source notebook."""
    path = folder / f"{folder.name}.ipynb"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture
def two(tmp_path: Path) -> Path:
    folder = tmp_path / "source" / "two"
    folder.mkdir(parents=True)
    nbformat.write(made.source(), folder / "two.ipynb")
    (folder / "rows.csv").write_text("1\n")
    return folder


def starter(folder: Path, **files: bytes) -> Submission:
    source = nbformat.read(folder / "two.ipynb", 4)
    return Submission(student="ada", notebook=made.raw(release.released(source)), files=files)


def test_a_version_is_what_students_run(two: Path) -> None:
    first = release.digest(two)
    changed(two, "# Two exercises", "# Two exercises, and a text")
    changed(two, "score += 1", "score += 2")
    changed(two, "torch.ones(5)", "torch.ones(6)")
    assert release.digest(two) == first, "texts and checks say nothing"
    found = {first}
    changed(two, "import torch", "import torch, math")
    found.add(release.digest(two))
    (two / "rows.csv").write_text("2\n")
    found.add(release.digest(two))
    changed(two, '"points": 3', '"points": 4')
    found.add(release.digest(two))
    assert len(found) == 4


def test_a_notebook_is_graded_by_the_version_that_it_has_the_cells_of(two: Path) -> None:
    release.keep(two)
    old, edited = starter(two), starter(two)
    edited.notebook = edited.notebook.replace(b"place(rows)", b"place(many)")
    changed(two, "import torch", "import torch, math")
    new, foreign = starter(two), Submission(student="eve", notebook=b'{"cells": []}')
    current, earlier = graded_lesson.load(two), versions.earlier(two)
    assert [one.name for one in earlier] == ["two"]
    assert "import torch, math" in current.cells[0].source
    for submission, version in ((old, earlier[0]), (edited, earlier[0]), (new, current), (foreign, current)):
        assert versions.of(submission, current, earlier) is version
    release.keep(two)
    assert len(versions.earlier(two)) == 1, "the lesson as it is now is no earlier version"


def test_a_notebook_without_the_lesson_s_cells_is_of_no_earlier_version(two: Path) -> None:
    release.keep(two)
    changed(two, "import torch", "import torch, math")
    source = nbformat.read(two / "two.ipynb", 4)
    source.cells.append(nbformat.v4.new_code_cell("more = 1"))
    nbformat.write(source, two / "two.ipynb")
    emptied = nbformat.from_dict(release.released(source))
    emptied.cells = [cell for cell in emptied.cells if cell.source not in ("import torch, math", "more = 1")]
    submission = Submission(student="ada", notebook=made.raw(emptied), files={})
    current, earlier = graded_lesson.load(two), versions.earlier(two)
    assert versions.of(submission, current, earlier) is current


def test_where_only_a_file_differs_the_file_that_came_with_it_decides(two: Path) -> None:
    release.keep(two)
    (two / "rows.csv").write_text("2\n")
    current, earlier = graded_lesson.load(two), versions.earlier(two)
    assert versions.of(starter(two, **{"rows.csv": b"1\n"}), current, earlier) is earlier[0]
    assert versions.of(starter(two, **{"rows.csv": b"2\n"}), current, earlier) is current
    assert versions.of(starter(two), current, earlier) is current


def test_a_corrected_check_is_the_one_that_counts(two: Path) -> None:
    release.keep(two)
    submission = starter(two)
    changed(two, "torch.ones(5)", "torch.ones(6)")
    current = graded_lesson.load(two)
    assert versions.earlier(two) == []
    assert "torch.ones(6)" in versions.of(submission, current, versions.earlier(two)).cells[4].source


def test_the_grader_says_by_which_version(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    """Ada's notebook is of the first version, which has an exercise less; its points are those of that version."""
    folder = course.folder / "source" / "two"
    name = release.keep(folder)
    course.grade()
    changed(folder, "import torch", "import torch, math")
    source = nbformat.read(folder / "two.ipynb", 4)
    extra: list[Any] = [source.cells[2].copy(), source.cells[3].copy()]
    source.cells += [nbformat.from_dict(one | {"id": f"new-{n}"}) for n, one in enumerate(extra)]
    for cell, grade_id in zip(source.cells[-2:], ("new", "new-check"), strict=True):
        cell.metadata = nbformat.from_dict({"nbgrader": dict(cell.metadata.nbgrader) | {"grade_id": grade_id}})
    nbformat.write(source, folder / "two.ipynb")
    (course.folder / "gradebook.db").unlink()
    row = course.grade()
    assert f"({name}), which it came from" in row["notes"]
    assert (row["max_score"], row["new-check"], row["move-check"]) == ("7.0", "", "3.0")
    assert f"({name}), which they came from: 1 submission" in " ".join(capsys.readouterr().out.split())
    assert "import torch, math" not in str(course.autograded("ada").cells)
    assert course.grade("--resume") == row
