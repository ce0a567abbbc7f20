"""Two GPUs, and what an expectation says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import fakegpu_lab as lab
from fakegpu_lab import expect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def gpus() -> Iterator[None]:
    lab.enable("a100:2")
    yield
    lab.disable()


def told(expectation: Callable[[], Any]) -> str:
    """What is said where an expectation is not met."""
    with pytest.raises(expect.Unmet) as error:
        expectation()
    return str(error.value)
