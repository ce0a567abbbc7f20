"""What a few dozen cases did when `recorded.json` was written, they do today, to the nanosecond and the byte."""

from __future__ import annotations

import json
from typing import Any

import pytest

import fakegpu_lab
from tests.behavior.comparing import differences
from tests.behavior.recorder import VERSION, of_the_suite
from tests.behavior.writing import RECORDED

EXPECTED: dict[str, Any] = json.loads(RECORDED.read_text())


@pytest.mark.skipif(EXPECTED["torch"] != VERSION["torch"], reason=f"recorded with {EXPECTED['torch']['version']}")
def test_what_was_recorded_is_so_today() -> None:
    try:
        found = of_the_suite()
    finally:
        fakegpu_lab.disable()
    changed = [f"{name}: {line}" for name, lines in differences(EXPECTED, found) for line in lines]
    assert changed == [], "if it is meant, `python -m tests.behavior renew` records it"


def test_a_difference_names_the_case_the_kind_and_both_values() -> None:
    old = {"a": {"kernels": ["mm 5", "add 2"], "ended": 7}, "b": {}, "c": {"ended": 1}}
    new = {"a": {"kernels": ["mm 6", "add 2"], "ended": 7}, "b": {}, "d": {"ended": 1}}
    assert dict(differences(old, new)) == {
        "a": ["kernels: -mm 5", "kernels: +mm 6"],
        "c": ["only in the old one"],
        "d": ["only in the new one"],
    }
