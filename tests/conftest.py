"""Fixtures that several test files share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell

    from fakegpu_lab.hardware.machine import Machine


# How long an example takes says how busy the machine is.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture
def machine() -> Iterator[Machine]:
    """Two small A100s, switched off afterwards."""
    yield lab.enable("a100:2", memory="4GiB")
    lab.disable()


@pytest.fixture(scope="session")
def ipython() -> InteractiveShell:
    """IPython without a notebook; a process can have it only once."""
    from IPython.testing.globalipapp import start_ipython

    return start_ipython()
