"""`torch.cuda.default_generators`; the generators themselves are in `driver.random`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.random import generators

if TYPE_CHECKING:
    from fakegpu_lab.driver.base.patches import Patches


def bind() -> None:
    """Give torch.cuda its generators, as C++ does when it initialises."""
    torch.cuda.default_generators = tuple(generators.generator(device.index) for device in current.devices())  # type: ignore[assignment]


def install(patches: Patches) -> None:
    """Start without generators, as before initialisation."""
    patches.set(torch.cuda, "default_generators", ())
