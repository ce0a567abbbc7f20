"""nvidia-smi's texts: real lines to the column, fields; what it refuses, and how."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING

import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab.nvml import discovery, table
from fakegpu_lab.nvml.fields import GPU_FIELDS
from fakegpu_lab.nvml.sensors import Sensors
from fakegpu_lab.nvml.smi import main
from fakegpu_lab.nvml.view import Gpu, Process

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def busy() -> Iterator[None]:
    """Two A100s, the first of which has worked."""
    lab.enable("a100:2", compute="meta")
    torch.ones(4096, 4096, device="cuda") @ torch.ones(4096, 4096, device="cuda")
    torch.cuda.synchronize()
    yield
    lab.disable()


def said(capsys: pytest.CaptureFixture[str], line: str, status: int = 0) -> str:
    assert main(line.split()) == status
    out, err = capsys.readouterr()
    assert err == ""
    return out


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text), skipinitialspace=True))


def drawn(spec: str, sensors: Sensors, *processes: Process) -> list[str]:
    lab.enable(spec)
    view = discovery.current()
    assert view is not None
    lab.disable()
    return table.table([Gpu(view.gpus[0].card, sensors, list(processes))]).splitlines()


def test_a_busy_a100_is_drawn_as_people_have_seen_it() -> None:
    sensors = Sensors(93, 50, 61, 295.1, 1410, 1215, 0, None)
    lines = drawn("a100-40gb", sensors, Process(4, "python", 5233 * 2**20, 0.93))
    assert lines[1:13] == [
        "+-----------------------------------------------------------------------------------------+",
        "| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |",
        "+-----------------------------------------+------------------------+----------------------+",
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        "|=========================================+========================+======================|",
        "|   0  NVIDIA A100-SXM4-40GB          On  |   00000000:07:00.0 Off |                    0 |",
        "| N/A   61C    P0            295W /  400W |    5233MiB /  40960MiB |     93%      Default |",
        "|                                         |                        |             Disabled |",
        "+-----------------------------------------+------------------------+----------------------+",
        "",
    ]
    assert re.fullmatch(r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4} {7}", lines[0])
    assert lines[-2] == "|    0   N/A  N/A               4      C   python                                 5233MiB |"
    assert {len(line) for line in lines[1:] if line} == {91}


def test_a_card_with_a_fan_and_no_processes() -> None:
    lines = drawn("rtx5090", Sensors(0, 0, 43, 19.0, 180, 405, 8, 0))
    assert lines[8:11] == [
        "|   0  NVIDIA GeForce RTX 5090        On  |   00000000:07:00.0 Off |                  N/A |",
        "|  0%   43C    P8             19W /  575W |       0MiB /  32607MiB |      0%      Default |",
        "|                                         |                        |                  N/A |",
    ]
    assert lines[-2] == "|  No running processes found                                                             |"


def test_a_long_name_is_cut_as_nvidia_smi_cuts_it() -> None:
    line = drawn("rtx-6000-ada", Sensors(0, 0, 30, 20.0, 210, 405, 8, 30))[8]
    assert line.startswith("|   0  NVIDIA RTX 6000 Ada Gene...    On  |   0000")


@pytest.mark.usefixtures("busy")
def test_the_table_shows_what_the_simulation_holds(capsys: pytest.CaptureFixture[str]) -> None:
    memory = lab.snapshot().devices[0].memory
    page = said(capsys, "")
    held = -(-(memory.context + memory.reserved) // 2**20)
    assert f"{held}MiB /  81920MiB |" in page
    assert page.count(f"{held}MiB |") == 1  # the process's line; the second card has none
    first = rows(said(capsys, "--query-gpu=memory.used,utilization.gpu --format=csv,nounits"))
    assert [row["memory.used [MiB]"] for row in first] == [str(held), "0"]
    assert int(first[0]["utilization.gpu [%]"]) > 50
    assert first[1]["utilization.gpu [%]"] == "0"


@pytest.mark.usefixtures("busy")
def test_fields_have_names_units_and_aliases(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(
        capsys, "--query-gpu=index,gpu_name,clocks.sm,fan.speed,power.limit,pstate,count,compute_cap --format=csv"
    )
    assert text.splitlines() == [
        "index, name, clocks.current.sm [MHz], fan.speed [%], power.limit [W], pstate, count, compute_cap",
        "0, NVIDIA A100-SXM4-80GB, 1410 MHz, [N/A], 400.00 W, P0, 2, 8.0",
        "1, NVIDIA A100-SXM4-80GB, 210 MHz, [N/A], 400.00 W, P0, 2, 8.0",
    ]
    bare = said(capsys, "--query-gpu=memory.total,clocks.gr --format=csv,noheader,nounits -i 1")
    assert bare == "81920, 210\n"


@pytest.mark.usefixtures("busy")
def test_every_field_can_be_asked_and_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    told = said(capsys, "--help-query-gpu")
    for name in GPU_FIELDS:
        assert f'"{name}"' in told
    answers = rows(said(capsys, f"--query-gpu={','.join(GPU_FIELDS)} --format=csv"))
    assert len(answers) == 2
    assert None not in answers[0].values()
    free, used, total, reserved = (
        int(answers[0][f"memory.{what} [MiB]"].removesuffix(" MiB")) for what in ("free", "used", "total", "reserved")
    )
    assert free + used + reserved == pytest.approx(total, abs=2)


@pytest.mark.usefixtures("busy")
def test_processes_in_csv(capsys: pytest.CaptureFixture[str]) -> None:
    import os

    (row,) = rows(said(capsys, "--query-compute-apps=pid,name,used_memory,gpu_uuid --format=csv"))
    assert row["pid"] == str(os.getpid())
    assert row["used_gpu_memory [MiB]"].endswith(" MiB")
    assert row["gpu_uuid"] == f"GPU-{lab.machine().devices[0].uuid}"


@pytest.mark.usefixtures("busy")
def test_what_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--query-gpu=index,bogus.field --format=csv", 2) == (
        'Field "bogus.field" is not a valid field to query.\n\n'
    )
    assert "--format=csv" in said(capsys, "--query-gpu=index", 1)
    assert "No devices were found" in said(capsys, "-i 7", 6)


@pytest.mark.parametrize("line", ["-q -d MEMORY", "dmon -c 1", "pmon", "topo -m", "--nonsense"])
def test_a_page_that_does_not_exist_is_refused_and_the_others_are_named(
    capsys: pytest.CaptureFixture[str], line: str
) -> None:
    text = said(capsys, line, 1)
    assert text.startswith(f"nvidia-smi {line.partition(' ')[0]} is not simulated. Available are nvidia-smi (the")
    lab.enable("t4")
    commands = re.findall(r"nvidia-smi (-L|--\S+ --format=csv)", text)
    assert len(commands) == 3
    for command in commands:
        assert main(command.split()) == 0
    lab.disable()


def test_a_limited_card_shows_its_limit(capsys: pytest.CaptureFixture[str]) -> None:
    lab.enable("t4", memory="2GiB")
    text = said(capsys, "--query-gpu=memory.total,memory.free,temperature.gpu --format=csv,noheader,nounits")
    lab.disable()
    assert text == "2048, 2048, 33\n"


def test_nobody_there(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("FAKEGPU_LAB_RUNTIME", str(tmp_path))
    assert main(["-L"]) == 9
    assert "%fakegpu a100" in capsys.readouterr().err


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    lab.enable("a100:1,t4:1")
    uuids = [device.uuid for device in lab.machine().devices]
    assert said(capsys, "-L") == (
        f"GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-{uuids[0]})\nGPU 1: Tesla T4 (UUID: GPU-{uuids[1]})\n"
    )
    lab.disable()
