"""A file is there whole, or as it was before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fakegpu_lab.course import whole_file

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_is_replaced_at_the_end(tmp_path: Path) -> None:
    file = tmp_path / "grades.csv"
    file.write_text("before")
    with whole_file.writing(file) as half:
        half.write("after")
        half.flush()
        assert file.read_text() == "before"
    assert file.read_text() == "after"


def test_an_error_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "grades.csv"
    file.write_text("before")

    def full_disk() -> None:
        with whole_file.writing(file) as half:
            half.write("half of it")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        full_disk()
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]
