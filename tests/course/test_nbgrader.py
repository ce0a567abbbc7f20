"""Real nbgrader and ``fakegpu-lab grade`` give the same points for the same submissions."""

from __future__ import annotations

import contextlib
import csv
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest

pytest.importorskip("nbgrader")

from fakegpu_lab.cli.commands import cli
from fakegpu_lab.course.authoring import new
from fakegpu_lab.course.authoring.answers import grade_id
from fakegpu_lab.course.lessons.release import release

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
NAME = "05-doubled"
ANSWERS = {
    "right": ('doubled = 2 * x.to("cuda")', 2.0),
    "partly": ("doubled = x * 2", 1.0),
    "wrong": ("doubled = 'no idea'", 0.0),
}


def nbgrader(course: Path, *command: str) -> None:
    """Run a command of nbgrader in a course."""
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "JUPYTER_CONFIG_DIR": str(course), "FAKEGPU_LAB_PROGRESS": "off"}
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", *command],
        cwd=course,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@contextlib.contextmanager
def opened(book: Path) -> Iterator[Any]:
    """A gradebook, read through nbgrader."""
    from nbgrader.api import Gradebook

    from fakegpu_lab.course.grade.outputs.gradebook import _nbgrader_at_ease

    with _nbgrader_at_ease(), Gradebook(f"sqlite:///{book.as_posix()}") as found:
        yield found


def scores(book: Path) -> dict[str, tuple[float, float]]:
    """What a gradebook gives each student for the lesson, and the most there is."""
    with opened(book) as found:
        return {one.student.id: (one.score, one.max_score) for one in found.assignment_submissions(NAME)}


def kept(book: Path) -> dict[str, tuple[object, ...]]:
    """What a gradebook has of the lesson's cells."""
    with opened(book) as found:
        cells = found.find_notebook(NAME, NAME).source_cells
        return {cell.name: (str(cell.cell_type), cell.locked, cell.source, cell.checksum) for cell in cells}


@pytest.mark.long
def test_nbgrader_and_grade_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = new.write(NAME, tmp_path / "source")
    config = (ROOT / "lessons" / "nbgrader_config.py").read_text(encoding="utf-8")
    (tmp_path / "nbgrader_config.py").write_text(config, encoding="utf-8")
    (source / "facts.md").write_text("A file that the notebook links to.\n", encoding="utf-8")
    nbgrader(tmp_path, "generate_assignment", NAME)

    release(source, tmp_path / "ours")
    for name in (f"{NAME}.ipynb", "lesson.yaml", "facts.md"):
        theirs = (tmp_path / "release" / NAME / name).read_text(encoding="utf-8")
        assert (tmp_path / "ours" / name).read_text(encoding="utf-8").strip() == theirs.strip()
    assert "wrong" not in (tmp_path / "ours" / "lesson.yaml").read_text(encoding="utf-8")

    for student, (answer, _) in ANSWERS.items():
        notebook = nbformat.read(tmp_path / "ours" / f"{NAME}.ipynb", as_version=4)
        for cell in notebook.cells:
            if grade_id(cell) == "there-and-doubled":
                cell.source = f"%%exercise there-and-doubled\n{answer}"
        folder = tmp_path / "submitted" / student / NAME
        folder.mkdir(parents=True)
        nbformat.write(notebook, folder / f"{NAME}.ipynb")
    nbgrader(tmp_path, "autograde", NAME)
    nbgrader(tmp_path, "generate_feedback", NAME)
    given = sorted(path.name for path in (tmp_path / "feedback" / "right" / NAME).iterdir())
    assert given == [f"{NAME}.html", "facts.md"], "the author's wrong solutions stay with the author"

    monkeypatch.chdir(tmp_path)
    asked = ["grade", "--lesson", "05", "submitted", "--out", "ours.csv", "--gradebook", "ours.db", "--jobs", "2"]
    assert not cli.main(asked, standalone_mode=False)
    nbgrader(tmp_path, "export", "--to", "exported.csv", "--CourseDirectory.db_url=sqlite:///ours.db")

    wanted = {student: points for student, (_, points) in ANSWERS.items()}
    assert scores(tmp_path / "gradebook.db") == {student: (points, 2.0) for student, points in wanted.items()}
    for file in ("ours.csv", "exported.csv"):
        with (tmp_path / file).open(newline="", encoding="utf-8") as table:
            rows = list(csv.DictReader(table))
        assert {row["student_id"]: float(row["score"]) for row in rows} == wanted, file
        assert {float(row["max_score"]) for row in rows} == {2.0}
    assert kept(tmp_path / "ours.db") == kept(tmp_path / "gradebook.db"), "nbgrader autograde can go on from ours"
