"""Whole programs on real cards beside the same programs simulated: docs/fidelity.md says what they show today."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fidelity.side_by_side import PROGRAMS, compared, markdown

PAGE = Path(__file__).parents[2] / "docs" / "fidelity.md"


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_page_says_what_a_comparison_shows(name: str) -> None:
    found = compared(name)
    assert markdown(found) in PAGE.read_text(encoding="utf-8"), (
        f"python -m tests.fidelity.side_by_side prints what docs/fidelity.md has to say of {name}:\n{markdown(found)}"
    )
    kernels = [side.means["kernels"] for side in (found.before, found.after)]
    assert kernels[1] == pytest.approx(kernels[0], rel=0.1)  # the card's and ours
