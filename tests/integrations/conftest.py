"""What the tests of other people's libraries share: a machine, and silence about it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
import torch

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fakegpu_lab.hardware.machine import Machine

# Before the libraries are imported: they read it then.
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false"}


@pytest.fixture
def machine(capfd: pytest.CaptureFixture[str]) -> Iterator[Machine]:
    """Two small A100s; whatever the libraries say on stderr, nothing of it comes from us."""
    lab.disable()
    machine = lab.enable("a100:2", memory="4GiB")
    yield machine
    _forget_devices()
    lab.disable()
    assert "fakegpu" not in capfd.readouterr().err


@pytest.fixture
def one_gpu(machine: Machine) -> Machine:
    """One small A100: with two, `Trainer` would take both."""
    return lab.enable("a100", memory="4GiB")


def _forget_devices() -> None:
    """What accelerate keeps of the devices for the life of a process."""
    if "accelerate.state" in sys.modules:
        from accelerate.state import AcceleratorState, GradientState

        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()


@pytest.fixture
def ran_on_device() -> Iterator[Callable[[int], None]]:
    """Asserts that, since the test began, a device ran kernels and held memory."""
    return _ran_on_device


def _ran_on_device(index: int = 0) -> None:
    assert lab.snapshot().devices[index].counters.kernels > 0
    assert torch.cuda.max_memory_allocated(index) > 0
