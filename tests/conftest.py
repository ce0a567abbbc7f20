"""Fixtures that several test files share."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import fakegpu_lab as lab
from fakegpu_lab import session

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from IPython.core.interactiveshell import InteractiveShell

    from fakegpu_lab.hardware.machine import Machine


# How long an example takes says how busy the machine is.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture
def usual_hosts() -> Iterator[None]:
    """Machines have their usual hosts, as outside the tests."""
    session.written_for("usual")
    yield
    session.written_for(None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what collecting the tests leaves out of the garbage collector's sight.

    These are a million objects, most of them torch's databases. A full collection would take 0.3 s for them, and so
    would each look through all objects for a tensor's name; there are thousands of both.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


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
