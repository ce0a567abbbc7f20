"""One report for all processes of a run: what they leave, how it is put together, and how it reads."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch

from fakegpu_lab.processes import inheritance, run_reports
from fakegpu_lab.report import run_tables
from tests.test_cli import TABLE, lab

if TYPE_CHECKING:
    from pathlib import Path

    from fakegpu_lab.hardware.machine import Machine


def told(machine: Machine, rank: int | None, name: str = "", **more: object) -> run_reports.ProcessReport:
    return run_reports.ProcessReport(
        name=name or f"rank {rank}", rank=rank, ended=True, snapshot=machine.snapshot(), **more
    )  # type: ignore[arg-type]


def test_ranks_come_in_their_order_and_of_one_that_was_started_again_the_last(machine: Machine, tmp_path: Path) -> None:
    torch.ones(1 << 20, device="cuda:1")
    for number, left in enumerate(
        [
            told(machine, None, "SpawnProcess-1"),
            told(machine, 10),
            told(machine, 2, attempt=1),
            told(machine, 2, attempt=0),
        ]
    ):
        (tmp_path / f"{number}.json").write_text(left.model_dump_json())
    (tmp_path / "4.json").write_text("half a fi")  # a process was killed while it wrote
    found = run_reports.collect(tmp_path)
    assert [(one.name, one.attempt) for one in found] == [("rank 2", 1), ("rank 10", 0), ("SpawnProcess-1", 0)]
    assert [device.index for device in found[0].devices] == [1]


def test_the_table_has_a_row_for_each_process_and_device_it_used(machine: Machine) -> None:
    before = machine.snapshot()
    torch.ones(1 << 20, device="cuda:1")
    rank1 = told(machine, 1)
    torch.ones(1 << 20, device="cuda:0")
    ledger = machine.devices[0].ledger
    ledger.collective_count, ledger.collective_bytes, ledger.collective_wait_ns = 3, 4096, 7_000
    both = told(machine, 0)
    table = run_tables.summary(before, (both, rank1.model_copy(update={"ended": False})))
    assert [row[:3] for row in table.rows] == [
        ["rank 0", "cuda:0", "4.00 MiB"],
        ["rank 0", "cuda:1", "4.00 MiB"],
        ["rank 1", "cuda:1", "4.00 MiB"],
    ]
    assert [row[-2:] for row in table.rows] == [["3 (4.00 KiB)", "7.00 µs"], ["0", "0"], ["0", "0"]]
    assert "a100:2: 2 ranks" in table.title
    assert table.note.endswith("the last collectives: rank 1.")
    # What the program's own process did comes first, and the plain table is as ever.
    assert run_tables.summary(machine.snapshot(), (rank1,)).rows[0][0] == "main"
    assert run_tables.summary(machine.snapshot()).headers[0] == "device"


def test_a_child_that_used_its_gpu_tells_of_it(tmp_path: Path) -> None:
    (tmp_path / "spawned.py").write_text(
        "import torch\nimport torch.multiprocessing as mp\n"
        "def child(rank):\n    torch.ones(1000, device=f'cuda:{rank}').sum().item()\n"
        "if __name__ == '__main__':\n    mp.spawn(child, nprocs=1)\n"
    )
    ran = lab("run", "-d", "a100:2", "--report", "out.json", "spawned.py", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count(TABLE) == 1
    (child,) = run_tables.RunReport.model_validate_json((tmp_path / "out.json").read_text()).processes
    assert child.ended
    assert child.rank is None
    assert child.devices[0].counters.d2h_bytes == 4
    assert f"\n{child.name}  cuda:0" in ran.stderr


def test_ranks_of_any_launcher_have_their_rank_in_the_table(tmp_path: Path) -> None:
    (tmp_path / "launches_itself.py").write_text(
        """
import os, subprocess, sys
import torch
import torch.distributed as dist

rank = int(os.environ.get("LOCAL_RANK", "0"))  # as Lightning does: the program is rank 0, and RANK is not set
if rank == 0:
    other = subprocess.Popen([sys.executable, __file__], env={**os.environ, "LOCAL_RANK": "1"})
dist.init_process_group("nccl", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=2)
dist.all_reduce(torch.ones(4, device=f"cuda:{rank}"))
if rank == 0:
    sys.exit(other.wait())
"""
    )
    ran = lab("run", "-d", "a100:2", "--report", "out.json", "launches_itself.py", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "a100:2: 2 ranks" in ran.stderr
    rows = [row.split()[:3] for row in ran.stderr.splitlines() if row.startswith("rank")]
    assert rows == [["rank", "0", "cuda:0"], ["rank", "1", "cuda:1"]]
    report = run_tables.RunReport.model_validate_json((tmp_path / "out.json").read_text())
    assert (report.rank, [process.rank for process in report.processes]) == (0, [1])


def test_the_runs_own_process_leaves_no_file(machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    look = (
        "import os, sys\nfrom fakegpu_lab.processes import inheritance, run_reports\n"
        "if sys.argv[1] == 'run':\n    os.environ[inheritance.REPORTS] = f'{os.getpid()}:' + sys.argv[2]\n"
        "import torch\nprint(torch.ones(1, device='cuda').device, run_reports._reporter is not None)\n"
    )
    monkeypatch.setenv(inheritance.REPORTS, f"1:{tmp_path}")
    for who, leaves in (("run", "False"), ("child", "True")):
        ran = subprocess.run(
            [sys.executable, "-c", look, who, str(tmp_path)], capture_output=True, text=True, check=True
        )
        assert ran.stdout.split() == ["cuda:0", leaves]
        assert len(list(tmp_path.iterdir())) == (leaves == "True")


def test_the_command_of_an_installed_package_can_be_run(tmp_path: Path) -> None:
    ran = lab("run", "-q", "pytest", "--version", cwd=tmp_path)
    assert ran.returncode == 0
    assert ran.stdout + ran.stderr == f"pytest {pytest.__version__}\n"
    (tmp_path / "pytest").write_text("print('the file is nearer')\n")
    assert lab("run", "-q", "pytest", cwd=tmp_path).stdout == "the file is nearer\n"
