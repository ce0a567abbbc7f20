"""`torch.cuda.default_generators`; the generators themselves are in `driver.random`."""

from __future__ import annotations

import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import replaced
from fakegpu_lab.driver.random import generators


def bind() -> None:
    """Give torch.cuda its generators, as C++ does when it initialises."""
    torch.cuda.default_generators = tuple(generators.generator(device.index) for device in current.devices())  # type: ignore[assignment]


CHANGES = [
    replaced("torch.cuda.default_generators", (), "there are none before initialization"),
]
