"""Messages between grader and submission: only those that the other end sealed, each once, in order."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakegpu_lab.course.grade.sandbox.sealed_channel import seal, unseal

KEY = b"k" * 32
MESSAGE: dict[str, Any] = {"check": "expect.equal(answer(7), 49)"}


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none()), st.sampled_from([b"up", b"down"]))
def test_a_message_arrives_as_it_was(message: dict[str, Any], direction: bytes) -> None:
    line = seal(KEY, direction, 3, message)
    assert line.endswith(b"\n")
    assert unseal(KEY, direction, 3, line) == message


def test_hidden_tests_cannot_be_read_in_the_pipe() -> None:
    down, up = (base64.b64decode(seal(KEY, direction, 0, MESSAGE)) for direction in (b"down", b"up"))
    assert b"answer(7)" not in down
    assert b"answer(7)" in up, "what the submission reports is no secret of the grader's"
    again = base64.b64decode(seal(KEY, b"down", 1, MESSAGE))
    assert again[32:] != down[32:], "each has a keystream of its own"


@pytest.mark.parametrize("direction", [b"up", b"down"])
def test_what_somebody_else_sealed_is_no_message(direction: bytes) -> None:
    line = seal(KEY, direction, 5, MESSAGE)
    assert unseal(KEY, direction, 6, line) is None, "another place in the order"
    assert unseal(KEY, direction, 4, line) is None
    assert unseal(KEY, b"down" if direction == b"up" else b"up", 5, line) is None, "a message that is sent back"
    assert unseal(b"x" * 32, direction, 5, line) is None, "another key"
    raw = bytearray(base64.b64decode(line))
    for place in (0, 31, 32, len(raw) - 1):
        changed = raw.copy()
        changed[place] ^= 1
        assert unseal(KEY, direction, 5, base64.b64encode(changed) + b"\n") is None
    for text in (b"", b"{}", b"not base64!", b"{}\n", base64.b64encode(b"short"), base64.b64encode(b"0" * 40)):
        assert unseal(KEY, direction, 5, text) is None
    assert unseal(KEY, direction, 5, base64.b64encode(raw[:-1])) is None, "a part of it"
