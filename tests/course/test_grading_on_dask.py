"""The same grades on a Dask cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import nbformat
import pytest

pytest.importorskip("nbgrader")

from fakegpu_lab.course.lessons.release import released
from tests.course import graded_lesson as made
from tests.course.test_grading import grade, rows

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.long
def test_two_workers_of_a_cluster_give_the_same_grades(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    source = made.source()
    (tmp_path / "source" / "two").mkdir(parents=True)
    nbformat.write(source, tmp_path / "source" / "two" / "two.ipynb")
    starter = released(source)
    answers = {"ada": made.RIGHT_PLACE, "ben": "import os\nos._exit(1)"}
    (tmp_path / "submitted").mkdir()
    for student, place in answers.items():
        (tmp_path / "submitted" / f"two_{student}.ipynb").write_bytes(made.raw(made.submission(starter, place=place)))
    (tmp_path / "submitted" / "cy.ipynb").write_bytes(b"{")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        grade(tmp_path, "submitted", "--dask", cluster.scheduler_address)
    table = rows(tmp_path)
    assert {name: (row["score"], row["status"]) for name, row in table.items()} == {
        "ada": ("6.0", "graded"),
        "ben": ("0.0", "crashed"),
        "cy": ("0.0", "unreadable"),
    }
