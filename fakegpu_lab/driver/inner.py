"""The host's tensor inside a device's."""

from __future__ import annotations

from typing import Any

from fakegpu_lab.driver.tensor import FakeCudaTensor


def inner_of(value: Any) -> Any:
    """What holds the values of a device tensor; anything else is itself."""
    return value._inner if value.__class__ is FakeCudaTensor else value
