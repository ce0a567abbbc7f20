"""One thing that the simulation claims to reproduce: what a real card did, who says so, and what happens here."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import fakegpu_lab as lab
from fakegpu_lab import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Value = int | float | str


@dataclass(frozen=True)
class Fact:
    """A measurement, or a text that a card printed.

    Attributes
    ----------
    real, unit, source
        What the card did (for a text: what stood there), and where that was published.
    ours
        What the simulation does instead, given the card's name.
    within
        The relative error that is allowed. 0 is to the byte, to the digit, word for word.
    tested
        The test that holds it, where that is not `test_facts`.
    """

    what: str
    card: str
    real: Value
    source: str
    ours: Callable[[str], Value]
    unit: str = ""
    within: float = 0.0
    tested: str = ""

    @property
    def id(self) -> str:
        """For people and pytest."""
        return f"{self.what}, {self.card}"

    def holds(self, ours: Value) -> bool:
        """Whether that is what the card did, as nearly as is claimed."""
        if self.within:
            return abs(float(ours) / float(self.real) - 1) <= self.within
        return ours == self.real


_hosts = ["usual"]


@contextmanager
def on_host(name: str) -> Iterator[None]:
    """Measurements on this host; otherwise they are on the card's usual one."""
    _hosts.append(name)
    try:
        yield
    finally:
        _hosts.pop()


@contextmanager
def enabled(card: str, **options: Any) -> Iterator[None]:
    """A machine for one measurement."""
    session.written_for(_hosts[-1])
    lab.enable(card, **options)
    try:
        yield
    finally:
        lab.disable()
        session.written_for(None)
