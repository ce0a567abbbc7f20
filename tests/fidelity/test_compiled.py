"""Published pairs of eager and compiled times: where they come from, and how near the recorded speed-ups are."""

from __future__ import annotations

from statistics import median

from tests.fidelity import compiled
from tests.fidelity.published import sources
from tests.fidelity.table import PAGE

FOUND = compiled.read()


def test_rows_are_set_aside_by_source_and_every_one_has_a_public_source() -> None:
    rows = compiled.pairs()
    assert len(rows) >= 12
    assert len({(row.what, row.machine) for row in rows}) == len(rows)
    for row in rows:
        assert row.held_out == (row.source in compiled.ASIDE), row
        assert sources()[row.source]["url"].startswith("https://"), row
    several = {row.source for row in rows}
    assert len(several) >= 5
    assert len(several) / 2 <= len(several & set(compiled.ASIDE)) < len(several)


def test_half_of_the_speed_ups_are_within_a_fifth() -> None:
    """The goal. The sources that were set aside miss it, since two kinds of decoding on one host are among them."""
    assert set(FOUND) <= {(row.what, row.machine) for row in compiled.pairs()}
    assert len(FOUND) >= 20
    known, aside = (compiled.errors(FOUND, held_out=held_out) for held_out in (False, True))
    assert median(known + aside) <= 0.2
    assert median(known) <= 0.2
    assert median(aside) <= 0.3


def test_half_of_the_peaks_change_as_published_within_a_fifth() -> None:
    """Of at least five programs."""
    errors = compiled.peak_errors(FOUND)
    assert len(errors) >= 5
    assert median(errors) <= 0.2


def test_the_page_has_the_recorded_pairs() -> None:
    assert compiled.page_with(FOUND) == PAGE.read_text("utf-8"), "python -m tests.fidelity.compiled --write nothing"
