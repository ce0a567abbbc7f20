"""What the tests of torch's databases share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def machine() -> Iterator[None]:
    """One machine for all entries of a database."""
    lab.enable("a100:2", memory="4GiB")
    yield
    lab.disable()
