"""Simulated times against what real cards were measured to do; `measured` has the figures and their sources."""

from __future__ import annotations

import pytest

from tests.fidelity.measured import OLDER, QUICK, TRAINING, Row


def check(row: Row) -> None:
    assert row.simulated() == pytest.approx(row.real, rel=row.within), row.source


@pytest.mark.parametrize("row", QUICK, ids=lambda row: row.id)
def test_products_and_copies(row: Row) -> None:
    check(row)


@pytest.mark.slow
@pytest.mark.parametrize("row", TRAINING, ids=lambda row: row.id)
def test_training_steps(row: Row) -> None:
    check(row)


@pytest.mark.slow
@pytest.mark.parametrize("row", OLDER, ids=lambda row: row.id)
def test_training_steps_of_2020(row: Row) -> None:
    """Other cards, other batches, and the eager program itself: nothing was fitted to these."""
    check(row)
