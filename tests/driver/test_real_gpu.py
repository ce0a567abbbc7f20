"""Where torch sees a real GPU: hidden while a machine is enabled, which is said once, and back afterwards."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=[1, 3])
def real(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A torch that answers as a CUDA build does on a computer with so many cards."""
    monkeypatch.delenv("FAKEGPU_LAB_MACHINE", raising=False)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: torch.cuda.device_count() > 0)
    monkeypatch.setattr(torch.cuda, "_is_compiled", lambda: True)
    monkeypatch.setattr(torch.cuda, "_device_count_nvml", lambda: request.param)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *index: "a real card")
    yield request.param
    lab.disable()


def test_enabling_says_that_it_is_hidden_and_disabling_brings_it_back(
    real: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert torch.cuda.device_count() == real
    lab.enable("a100:2", memory="1GiB")
    one, many = "The real GPU of this computer is", f"The {real} real GPUs of this computer are"
    which = "it" if real == 1 else "them"
    said = f"{one if real == 1 else many} hidden while simulated ones are enabled"
    assert capsys.readouterr() == (f"{said}; fakegpu_lab.disable() brings {which} back.\n", "")
    assert torch.cuda.device_count() == 2
    assert torch.ones(1, device="cuda:1").is_cuda
    lab.enable("t4", memory="1GiB")  # said once
    lab.reset()
    assert capsys.readouterr().out == ""
    assert torch.cuda.device_count() == 1
    lab.disable()
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == real
    assert torch.cuda.get_device_name(0) == "a real card"


def test_a_child_process_does_not_repeat_it(real: int, capsys: pytest.CaptureFixture[str]) -> None:
    from fakegpu_lab import autoload
    from fakegpu_lab.processes import inheritance

    inheritance.leave("a100", "1GiB", "real", "real")
    autoload.autoload()
    assert torch.cuda.device_count() == 1
    assert capsys.readouterr() == ("", "")


def test_without_a_real_gpu_nothing_is_said() -> None:
    code = "import fakegpu_lab as lab; lab.enable('a100'); lab.disable()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "")
