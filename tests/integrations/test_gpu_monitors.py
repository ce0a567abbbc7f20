"""gpustat and nvitop, unmodified: in programs of a process with a machine, and through ``fakegpu-lab run``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

import fakegpu_lab as lab

if not (find_spec("gpustat") and find_spec("nvitop")):  # not imported here: gpustat patches pynvml as it is imported
    pytest.skip("gpustat and nvitop are not installed", allow_module_level=True)


def test_gpustat_shows_the_notebooks_memory() -> None:
    lab.enable("a100:2", memory="4GiB")
    torch.ones(100, 2**20, device="cuda:1")
    memory = lab.snapshot().devices[1].memory
    done = subprocess.run([sys.executable, "-m", "gpustat", "--json"], capture_output=True, text=True, check=False)
    lab.disable()
    first, second = json.loads(done.stdout)["gpus"]
    assert first["name"] == "NVIDIA A100-SXM4-80GB"
    assert (first["memory.used"], first["processes"]) == (0, [])
    assert second["memory.used"] == (memory.context + memory.reserved) // 2**20
    assert [process["pid"] for process in second["processes"]] == [os.getpid()]
    assert second["memory.total"] == 4096


def test_nvitop_draws_it() -> None:
    lab.enable("t4")
    torch.ones(3, device="cuda").sum().item()
    done = subprocess.run([sys.executable, "-m", "nvitop", "-1"], capture_output=True, text=True, check=False)
    lab.disable()
    assert done.returncode == 0, done.stderr
    assert "Tesla T4" in done.stdout
    assert "580.95.05" in done.stdout
    assert str(os.getpid()) in done.stdout


@pytest.mark.parametrize("tool", [["gpustat", "--json"], ["nvitop", "-1"]])
def test_through_run(tool: list[str]) -> None:
    command = [sys.executable, "-m", "fakegpu_lab", "run", "-q", "-d", "h100:2", "-m", *tool]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("H100") == 2
