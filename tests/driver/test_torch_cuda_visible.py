"""CUDA_VISIBLE_DEVICES as torch sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch
from torch.cuda import _parse_visible_devices, _transform_uuid_to_ordinals

import fakegpu_lab as lab
from fakegpu_lab.hardware.catalogue.visible_devices import visible
from fakegpu_lab.report import run_tables
from tests.hardware.test_visible import CASES, UUIDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _off() -> Iterator[None]:
    yield
    lab.disable()


@pytest.mark.parametrize("text", [text for text, _ in CASES if text is not None])
def test_the_rules_are_those_of_torch(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", text)
    wanted = _parse_visible_devices()
    if wanted and isinstance(wanted[0], str):
        expected = _transform_uuid_to_ordinals(wanted, UUIDS)
    else:
        expected = list(wanted)
        for place, number in enumerate(expected):
            if number >= len(UUIDS):
                expected = expected[:place]
                break
    assert visible(text, UUIDS) == expected


def test_cards_are_renumbered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    machine = lab.enable("a100:2,t4", memory="4GiB")
    assert torch.cuda.device_count() == 2
    assert [torch.cuda.get_device_name(i) for i in range(2)] == ["Tesla T4", "NVIDIA A100-SXM4-80GB"]
    x = torch.ones(1000, device="cuda:1")
    assert x.device.index == 1
    assert machine.cards[0].allocator.allocated_bytes == torch.cuda.memory_allocated(1) == 4096
    with pytest.raises(torch.AcceleratorError, match="invalid device ordinal"):
        torch.ones(1, device="cuda:2")
    with pytest.raises(torch.OutOfMemoryError, match=r"GPU 1 has a total capacity of 4\.00 GiB"):
        torch.empty(2**33, device="cuda:1")
    first = [row[0] for row in run_tables.status(lab.snapshot()).rows]
    assert first == ["cuda:1", "hidden (GPU 1)", "cuda:0"]


def test_a_card_keeps_its_uuid_and_bus_wherever_it_is_numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    lab.enable("a100:3", memory="1GiB")
    before = torch.cuda.get_device_properties(2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"GPU-{before.uuid}")
    lab.enable("a100:3", memory="1GiB")
    assert torch.cuda.device_count() == 1
    after = torch.cuda.get_device_properties(0)
    assert (str(after.uuid), after.pci_bus_id) == (str(before.uuid), before.pci_bus_id)


@pytest.mark.parametrize("text", ["", "-1"])
def test_without_a_visible_card_there_is_no_cuda(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", text)
    lab.enable("a100:2", memory="1GiB")
    assert not torch.cuda.is_available()
    assert torch.cuda.device_count() == 0
    assert torch.backends.cuda.is_built()
    for call in (lambda: torch.ones(1, device="cuda"), lambda: torch.ones(1).cuda(), torch.cuda.init):
        with pytest.raises(RuntimeError, match=r"^No CUDA GPUs are available$"):
            call()
    assert torch.ones(2).sum().item() == 2


def test_the_variable_counts_until_cuda_is_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    lab.enable("a100:4", memory="1GiB")
    assert torch.cuda.device_count() == 4
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    assert torch.cuda.device_count() == 2
    torch.ones(1, device="cuda:1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert torch.cuda.device_count() == 2
    assert [d.slot for d in lab.machine().devices] == [1, 2]
    lab.reset()
    assert torch.cuda.device_count() == 1


def test_a_script_that_sets_the_variable_itself(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, torch\n"
        "os.environ['CUDA_VISIBLE_DEVICES'] = '1'\n"
        "print(torch.cuda.device_count(), torch.cuda.get_device_name())\n"
    )
    command = [sys.executable, "-m", "fakegpu_lab", "run", "--devices", "a100,t4", "--quiet", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert (done.stdout, done.stderr) == ("1 Tesla T4\n", "")
