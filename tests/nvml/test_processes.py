"""Other processes: nvidia-smi and pynvml in programs that a notebook starts, or in another terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab.nvml import discovery, program_path, publish

if TYPE_CHECKING:
    from pathlib import Path

    from fakegpu_lab.hardware.machine import Machine


@pytest.fixture
def busy(machine: Machine) -> Machine:
    torch.ones(1 << 20, device="cuda:1").sum().item()
    return machine


def test_nvidia_smi_is_found_and_asks_this_process(busy: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    asked = ["nvidia-smi", "--query-compute-apps=pid,gpu_bus_id", "--format=csv,noheader"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{os.getpid()}, 00000000:0F:00.0\n", "")
    assert os.system("nvidia-smi -L") == 0
    assert capfd.readouterr().out.count("UUID: GPU-") == 2


def test_path_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    before = dict(os.environ)
    lab.enable("t4")
    first = os.environ["PATH"]
    lab.enable("a100")
    assert os.environ["PATH"] == first
    os.environ["PATH"] += os.pathsep + "/somewhere/else"  # what a program adds itself stays
    lab.disable()
    assert os.environ.pop("PATH") == before.pop("PATH") + os.pathsep + "/somewhere/else"
    assert dict(os.environ) == before


@pytest.mark.skipif(os.name != "posix", reason="permissions of folders")
def test_a_folder_that_others_can_change_is_not_put_into_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary, home = tmp_path / "tmp", tmp_path / "home"
    temporary.mkdir()
    home.write_text("a home that cannot be written")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("FAKEGPU_LAB_RUNTIME", str(home))
    ours = program_path.programs()
    assert ours is not None
    assert ours.parent == temporary
    assert ours.stat().st_mode & 0o077 == 0

    ours.chmod(0o777)
    assert program_path.programs() is None
    ours.chmod(0o700)
    assert program_path.programs() == ours
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)  # as if another user had made it
    assert program_path.programs() is None


def test_pynvml_of_a_program_that_does_not_import_torch(busy: Machine) -> None:
    pytest.importorskip("pynvml")
    program = (
        "import pynvml as n, sys; n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(1); "
        "print(n.nvmlDeviceGetComputeRunningProcesses(h)[0].pid, 'torch' in sys.modules, n.__file__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    pid, has_torch, file = done.stdout.split()
    assert (pid, has_torch) == (str(os.getpid()), "False")
    assert "fakegpu_lab" not in file
    lab.disable()
    gone = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "NVMLError" in gone.stderr


OTHER = """
import fakegpu_lab as lab, sys
lab.enable("a100:2", memory="4GiB")
import torch
torch.ones(300, 2**20, device="cuda")
print("ready", flush=True)
sys.stdin.readline()
"""


def terminal(*arguments: str, runtime: Path) -> subprocess.CompletedProcess[str]:
    """`fakegpu-lab smi` in a terminal that has nothing to do with any notebook."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FAKEGPU_LAB")}
    command = [sys.executable, "-m", "fakegpu_lab", "smi", *arguments]
    return subprocess.run(
        command, env={**clean, "FAKEGPU_LAB_RUNTIME": str(runtime)}, capture_output=True, text=True, check=False
    )


def test_a_terminal_finds_the_machines_and_cleans_up_after_the_dead(tmp_path: Path) -> None:
    env = {**os.environ, "FAKEGPU_LAB_RUNTIME": str(tmp_path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", OTHER], env=env, **pipes)  # type: ignore[call-overload]
    try:
        assert process.stdout.readline() == "ready\n"
        query = ("--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")
        pid, used = terminal(*query, runtime=tmp_path).stdout.split(", ")
        assert int(pid) == process.pid
        assert int(used) > 1200  # 1,200 MiB of tensor, and the context
    finally:
        process.kill()
        process.communicate()
    assert list(tmp_path.glob("*.json"))  # killed, it could not tidy up
    gone = terminal("-L", runtime=tmp_path)
    assert (gone.returncode, gone.stdout) == (9, "")
    assert "No simulated GPU is running" in gone.stderr
    assert not list(tmp_path.glob("*.json"))


def test_a_process_with_another_version_is_a_stranger(
    busy: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = publish.runtime()
    assert place is not None
    contact = json.loads((place / f"{os.getpid()}.json").read_text())
    monkeypatch.setenv("FAKEGPU_LAB_RUNTIME", str(tmp_path))
    for version in (contact["version"], contact["version"] - 1):
        (tmp_path / "1.json").write_text(json.dumps({**contact, "pid": 1, "version": version}))
        assert len(discovery.machines()) == (version == contact["version"])


def test_a_child_with_the_same_machine_is_one_more_process(busy: Machine) -> None:
    program = (
        "import torch, sys; torch.ones(5, device='cuda:1').sum().item(); "
        "print('ready', flush=True); sys.stdin.readline()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as child:  # type: ignore[call-overload]
        assert child.stdout.readline() == "ready\n"
        view = discovery.current()
        assert view is not None
        assert sorted(process.pid for process in view.gpus[1].processes) == sorted([os.getpid(), child.pid])
        assert view.gpus[0].processes == []
        child.communicate("\n")
    lab.disable()


def test_only_ones_own_folder_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    monkeypatch.setenv("FAKEGPU_LAB_RUNTIME", str(open_to_all))
    if os.name == "posix":
        assert publish.runtime() is None
        monkeypatch.setenv("FAKEGPU_LAB_RUNTIME", str(tmp_path / "own"))
        made = publish.runtime()
        assert made is not None
        assert made.stat().st_mode & 0o077 == 0


def test_a_stranger_without_the_key_gets_nothing(busy: Machine) -> None:
    from multiprocessing import AuthenticationError
    from multiprocessing.connection import Client

    place = publish.runtime()
    assert place is not None
    told = json.loads((place / f"{os.getpid()}.json").read_text())
    with pytest.raises(AuthenticationError):
        Client(told["address"], authkey=b"guess")
    assert os.name != "posix" or (place / f"{os.getpid()}.json").stat().st_mode & 0o077 == 0
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    assert done.stdout.count("GPU ") == 2  # and the others still get their answer
