"""Parts of what the lesson makes: who gives them another value before they are used, and who only later."""

from __future__ import annotations

import pytest

from fakegpu_lab.course.flags.made_with import MadeWith
from fakegpu_lab.course.grade.repair import Cell

GIVEN = [
    "import math\ndef plain(k): return math.pow(2, k)\nrows = 3",
    "def run(): return plain(rows)",
    "alone = run()",
    "other = 4",
]
MADE_WITH = MadeWith(GIVEN, ["def mine(): return rows"], {"alone"})


def flags(*cells: str) -> list[str]:
    """The flags of a notebook: what is no cell of the lesson's is the student's."""
    numbered = [(f"c{number}", text) for number, text in enumerate(cells)]
    kinds = {True: "given", False: "student"}
    return [
        *MADE_WITH.flags([Cell(id=n, kind=kinds[text in GIVEN], source=text, visible=text) for n, text in numbered])
    ]


@pytest.mark.parametrize(
    ("cell", "part"), [("rows = 9", "rows"), ("def plain(k): return 1", "plain"), ("run = lambda: 3", "run")]
)
def test_a_part_that_changes_before_it_is_used_is_named(cell: str, part: str) -> None:
    said = f"c2: gives {part}, with which the lesson makes alone, another value"
    assert flags(*GIVEN[:2], cell, *GIVEN[2:]) == [said]
    assert flags(*GIVEN[:2], cell, f"x = 1\n{GIVEN[2]}") == [said], "the lesson's own line, in a cell of one's own"
    assert flags(*GIVEN[:2], f"{cell}\n{GIVEN[2]}") == [said]


@pytest.mark.parametrize("cell", ["other = 3", "mine = 3", "new = 1", "alone = 3", "import math, os"])
def test_what_is_no_part_of_it_is_not(cell: str) -> None:
    assert flags(*GIVEN[:2], cell, *GIVEN[2:]) == []


def test_what_changes_afterwards_or_is_the_lesson_s_again_is_not() -> None:
    assert flags(*GIVEN, "rows = 9") == []
    assert flags(*GIVEN[:2], "rows = 9", GIVEN[0], GIVEN[2]) == []
    assert flags(*GIVEN, *GIVEN) == [], "run again"
