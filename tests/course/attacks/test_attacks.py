"""Hostile notebooks: none earns a point without work, most are flagged, none reads hidden tests or escapes.

Attacks of one kind share a submission, an exercise each. The last exercise of each is answered honestly, and so earns
its points unless an attack before it broke what checks rely on: then it has a flag.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("nbgrader")

from fakegpu_lab.course.grade.outputs import pages
from tests.course.attacks import by_hand, processes, reaching, verdicts
from tests.course.attacks.lesson import POINTS, attacked

if TYPE_CHECKING:
    from pathlib import Path

    from fakegpu_lab.course.grade.outcome import Outcome

HONEST = """
def answer(k):
    x = torch.tensor([float(k)], device="cuda")
    return int((x * x).item())
"""
LASTING = (
    "the kept originals are emptied",
    "builtins made by name",
    "a mode of functions is left on",
    "kernels of torch are replaced in C++",
    "the names of the check are changed",
)
"""Attacks whose damage lasts: in each submission, they come last."""


def _ordered(attacks: dict[str, str]) -> dict[str, str]:
    return dict(sorted(attacks.items(), key=lambda one: one[0] in LASTING))


GROUPS = {
    "scoring": _ordered(verdicts.ON_SCORING),
    "values": _ordered(verdicts.ON_VALUES),
    "time": processes.ON_TIME,
    "recordings": processes.ON_RECORDINGS,
    "the grader": processes.ON_THE_GRADER,
    "endings": processes.ENDINGS,
    "reaching": reaching.ON_REACH,
}
WITHOUT_FLAG = {*processes.ENDINGS, *reaching.HARMLESS, "hidden tests are looked for"}
"""What earns nothing, and is not flagged: a mistake could look like it, or there was nothing to be found."""
FILES = {"helper.py": b"import torch\ntorch.equal = lambda *a: True\n", **reaching.FILES}


def flags_of(outcome: Outcome, number: int) -> list[str]:
    """The flags of one exercise's cells, and those of the submission as a whole."""
    own = (f"e{number:02}:", f"e{number:02}-check:")
    return [flag for flag in outcome.flags if flag.startswith(own)]


@pytest.mark.parametrize(
    "group",
    [pytest.param(group, marks=() if group == "reaching" else pytest.mark.long) for group in GROUPS],
)
def test_an_attack_earns_nothing_without_a_flag(group: str, tmp_path: Path, subtests: pytest.Subtests) -> None:
    attacks = GROUPS[group] | {"honest": HONEST}
    outcome = attacked(tmp_path, attacks, FILES, cell_seconds=10)
    assert outcome.status in ("graded", "timeout"), outcome.reason
    assert json.dumps(outcome.model_dump(mode="json"))
    assert pages.feedback(outcome).encode()
    for number, (name, check) in enumerate(zip(attacks, outcome.checks, strict=True)):
        with subtests.test(name):
            flags = flags_of(outcome, number)
            if name == "honest":
                assert check.points == POINTS or flags, (check, outcome.flags)
                continue
            if name not in WITHOUT_FLAG:
                assert flags, "nobody would look at it"
            else:
                assert not (check.points or 0) > 2, check
    if group == "reaching":
        assert set(outcome.flags) >= reaching.OF_FILES
        assert not any("__pycache__" in flag for flag in outcome.flags), "what Python left there is left out"
    if group in ("scoring", "values", "time"):
        earned = {name: check.points for name, check in zip(attacks, outcome.checks, strict=True) if check.points}
        with subtests.test("no attack on the verdict earns a point"):
            assert set(earned) <= {"honest", *MAY_EARN}, earned


MAY_EARN: frozenset[str] = frozenset()
"""Attacks that the submission's process cannot withstand: they earn points, and are flagged."""


def test_hidden_tests_are_not_shown(tmp_path: Path) -> None:
    attacks = {
        name: processes.ON_THE_GRADER[name] for name in ("hidden tests are looked for", "hidden tests in linecache")
    }
    outcome = attacked(tmp_path, attacks)
    assert outcome.score <= 2
    if sys.platform == "linux":
        assert not any("HIDDEN" in str(cell.outputs) for cell in outcome.cells)


def test_what_a_check_asks_does_not_answer_as_it_likes(tmp_path: Path, subtests: pytest.Subtests) -> None:
    attacks = {name: attack.code for name, attack in by_hand.BY_HAND.items()} | {"honest": by_hand.HONEST}
    outcome = attacked(tmp_path, attacks, check=(by_hand.CHECK, by_hand.PARTS))
    assert outcome.status == "graded", outcome.reason
    for number, (name, check) in enumerate(zip(attacks, outcome.checks, strict=True)):
        with subtests.test(name):
            assert check.record is not None
            met = [part["met"] for part in check.record["parts"]]
            flags = flags_of(outcome, number)
            attack = by_hand.BY_HAND.get(name, by_hand.Attack("", ()))
            assert not any(met[part] for part in attack.unmet), check.record
            assert all(one for part, one in enumerate(met) if part not in attack.unmet), "what was done is earned"
            assert any(attack.flag in flag for flag in flags) if attack.flag else not flags, flags
