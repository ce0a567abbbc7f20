"""Honest notebooks in styles that differ: none has a flag, and what is solved has its points.

All are read as the policy reads them. One of the first lesson, with the styles mixed, is graded here with the real
command, and one each of lessons 10 and 11 where their libraries are installed; ``make honest`` grades all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("nbgrader")

from fakegpu_lab.course.grade import repair
from fakegpu_lab.course.grade.one_submission import _beside, _suspicious
from fakegpu_lab.course.lessons import extras
from tests.course.attacks.honest import LESSONS, OWN_CELLS, UNUSUAL, Material, graded, unusual_for

if TYPE_CHECKING:
    from pathlib import Path


def test_there_are_sixty_thirty_of_them_unusual_and_every_lesson_has_some() -> None:
    rare = [unusual_for(name) for name in LESSONS]
    assert sum(map(len, rare)) >= 30
    assert set().union(*rare) == set(UNUSUAL)
    assert len(LESSONS) * (1 + len(OWN_CELLS)) + sum(map(len, rare)) >= 60
    assert len(LESSONS) >= 5


@pytest.mark.parametrize("name", LESSONS)
def test_the_policy_finds_nothing_in_honest_notebooks(name: str) -> None:
    material = Material(name)
    policy, made_with = material.lesson.policy([]), material.lesson.made_with
    submissions = [material.notebook(style) for style in range(len(OWN_CELLS))]
    submissions += [material.unusual(style) for style in UNUSUAL]
    for submission in submissions:
        repaired = repair.repair(material.lesson, repair.read(submission.notebook))
        found = _suspicious(policy, repaired, material.lesson.read_by) | {*made_with.flags(repaired.cells)}
        found |= _beside(policy, repaired, {})
        assert not found, (submission.student, found)


@pytest.mark.parametrize("name", [LESSONS[0], "10-kernels", "11-compile"])
def test_an_honest_notebook_has_its_points_and_no_flag(name: str, tmp_path: Path) -> None:
    material = Material(name)
    if absent := extras.missing(material.yaml.all_needs):
        pytest.skip(extras.sentence(absent))
    (row,) = graded(name, [material.mixed()], tmp_path)
    assert (row["status"], row["reason"], row["flags"]) == ("graded", "", "")
    assert row["score"] == row["max_score"]
