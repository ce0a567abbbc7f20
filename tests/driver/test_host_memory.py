"""A computer, container or server with less memory than the simulated GPU says so before it ends the process."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab.cli import doctor
from fakegpu_lab.driver.environment import host_limits
from fakegpu_lab.driver.environment.host_limits import MemoryLimit
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from pathlib import Path

GIB = 2**30


class System:
    """A Linux of one's own: /proc and /sys/fs/cgroup."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.groups = folder / "proc", folder / "cgroup"
        self.file("proc/self/cgroup", "")
        self.file("proc/meminfo", f"MemTotal:  {16 * 2**20} kB\nMemAvailable:  {8 * 2**20} kB\nSwapFree:  0 kB\n")

    def file(self, name: str, text: object) -> None:
        path = self.proc.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    made = System(tmp_path)
    monkeypatch.setattr(host_limits, "PROC", made.proc)
    monkeypatch.setattr(host_limits, "GROUPS", made.groups)
    return made


def test_a_computer_has_what_linux_says(system: System) -> None:
    assert host_limits.memory() == [MemoryLimit("computer", 16 * GIB, 8 * GIB)]
    system.file("proc/meminfo", "MemTotal:  1024 kB\nMemAvailable:  512 kB\nSwapFree:  256 kB\n")
    assert host_limits.memory() == [MemoryLimit("computer", 1024 * 1024, 768 * 1024)]


def test_a_container_of_control_groups_2_has_its_own_limit(system: System) -> None:
    """As Docker and Kubernetes show it inside: the container's group is the root; pages of files can be had back."""
    system.file("proc/self/cgroup", "0::/")
    system.file("cgroup/memory.max", 2 * GIB)
    system.file("cgroup/memory.current", 3 * GIB // 2)
    system.file("cgroup/memory.stat", f"anon {GIB}\ninactive_file {GIB // 4}\nactive_file 1")
    assert host_limits.memory()[0] == MemoryLimit("container", 2 * GIB, 3 * GIB // 4)


def test_the_tightest_group_around_a_server_counts(system: System) -> None:
    """As systemd's units nest: the hub's slice has a limit, the student's scope a tighter one, or none."""
    system.file("proc/self/cgroup", "0::/hub.slice/ada.scope")
    for group, limit, used in (
        ("", "max", 5 * GIB),
        ("hub.slice/", 6 * GIB, 5 * GIB),
        ("hub.slice/ada.scope/", GIB, 0),
    ):
        system.file(f"cgroup/{group}memory.max", limit)
        system.file(f"cgroup/{group}memory.current", used)
    assert [limit[1:] for limit in host_limits.memory()] == [(GIB, GIB), (6 * GIB, GIB), (16 * GIB, 8 * GIB)]


def test_control_groups_1_are_read_too(system: System) -> None:
    system.file("proc/self/cgroup", "4:memory:/docker/4f\n1:cpu,cpuacct:/docker/4f\n0::/")
    system.file("cgroup/memory/memory.limit_in_bytes", 3 * GIB)  # the host's path is not seen inside
    system.file("cgroup/memory/memory.usage_in_bytes", GIB)
    system.file("cgroup/memory/memory.stat", "total_inactive_file 0")
    assert host_limits.memory()[0] == MemoryLimit("container", 3 * GIB, 2 * GIB)
    system.file("cgroup/memory/memory.limit_in_bytes", 9223372036854771712)
    assert host_limits.memory()[0].whose == "computer", "that number means: none"


def test_a_limit_of_the_shell_counts(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    limits = {resource.RLIMIT_AS: (4 * GIB, 4 * GIB), resource.RLIMIT_DATA: (resource.RLIM_INFINITY,) * 2}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    pages = GIB // resource.getpagesize()
    system.file("proc/self/statm", f"{3 * pages} 1 1 1 0 {2 * pages} 0")
    assert host_limits.memory()[0] == MemoryLimit("ulimit", 4 * GIB, GIB)


@pytest.mark.parametrize(
    ("files", "processors"),
    [
        ({"proc/self/cgroup": "0::/", "cgroup/cpu.max": "1500 1000"}, 1.5),
        ({"proc/self/cgroup": "0::/", "cgroup/cpu.max": "max 100000"}, 4),
        ({"proc/self/cgroup": "0::/a", "cgroup/a/cpu.max": "max 1000", "cgroup/cpu.max": "2000 1000"}, 2),
        ({"proc/self/cgroup": "1:cpu:/", "cgroup/cpu/cpu.cfs_quota_us": 1000, "cgroup/cpu/cpu.cfs_period_us": 500}, 2),
        ({"proc/self/cgroup": "1:cpu:/", "cgroup/cpu/cpu.cfs_quota_us": -1, "cgroup/cpu/cpu.cfs_period_us": 500}, 4),
    ],
)
def test_processors_of_a_container(
    system: System, monkeypatch: pytest.MonkeyPatch, files: dict[str, object], processors: float
) -> None:
    monkeypatch.setattr(host_limits.os, "sched_getaffinity", lambda process: range(4), raising=False)
    for name, text in files.items():
        system.file(name, text)
    assert host_limits.processors() == processors


def test_where_nothing_can_be_read_nothing_is_limited(system: System) -> None:
    for name in ("meminfo", "self/cgroup"):
        (system.proc / name).unlink()
    assert host_limits.memory() == []
    lab.enable("a100")
    assert torch.ones(2**23, device="cuda").sum().item() == 2**23


@pytest.fixture
def small_server(system: System) -> None:
    system.file("proc/self/cgroup", "0::/")
    system.file("cgroup/memory.max", 2 * GIB)
    system.file("cgroup/memory.current", GIB)


@pytest.mark.usefixtures("small_server")
@pytest.mark.parametrize(
    "allocate",
    [
        pytest.param(lambda: torch.zeros(GIB // 4, device="cuda"), id="zeros"),
        pytest.param(lambda: torch.randn(GIB // 4, device="cuda"), id="randn"),
        pytest.param(lambda: torch.ones(1, device="cuda").expand(GIB // 4).contiguous(), id="copy"),
        pytest.param(lambda: torch.empty(GIB // 4).to("cuda"), id="transfer"),
        pytest.param(lambda: torch.nn.Linear(2**14, 2**14, device="cuda"), id="module"),
        pytest.param(lambda: torch.ones(2**14, 8, device="cuda") @ torch.ones(8, 2**14, device="cuda"), id="product"),
    ],
)
@pytest.mark.parametrize("segments", ["expandable_segments:False", "expandable_segments:True"])
def test_what_the_server_has_no_room_for_is_refused_and_says_the_way_out(
    allocate: object, segments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", segments)
    lab.enable("a100")
    with pytest.raises(FakeGpuError) as told:
        allocate()  # type: ignore[operator]
    assert re.fullmatch(
        r"test_host_memory\.py:\d+ needs 1\.0\d? GiB for values on the simulated GPU\. The GPU has room, but its "
        r"values are kept in this computer's memory, and of the 2\.00 GiB that the container or server that this "
        r'runs in may use, 1\.00 GiB are left\. .* compute="meta" .*',
        str(told.value).replace("tests/driver/", ""),
    )
    assert torch.cuda.memory_allocated() < GIB // 2, "nothing of it was taken"
    assert torch.ones(3, device="cuda").sum().item() == 3


@pytest.mark.usefixtures("small_server")
def test_meta_tensors_and_empty_ones_need_no_memory() -> None:
    lab.enable("a100", compute="meta")
    assert torch.zeros(8 * GIB, device="cuda").shape == (8 * GIB,)
    lab.enable("a100")
    assert torch.empty(GIB, device="cuda").nbytes == 4 * GIB, "lesson 03 looks at the allocator with such tensors"


@pytest.mark.usefixtures("small_server")
def test_the_card_s_own_error_comes_first() -> None:
    lab.enable("a100", memory="512MiB")
    with pytest.raises(torch.OutOfMemoryError):
        torch.zeros(GIB // 4, device="cuda")


def test_small_steps_do_not_ask(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.enable("a100")
    asked: list[None] = []
    monkeypatch.setattr(host_limits, "memory", lambda: asked.append(None) or [])
    for _ in range(50):
        torch.ones(2**20, device="cuda")
    assert len(asked) == 1, "only when the card gives more memory"


def test_the_doctor_sees_a_container_s_limits(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(host_limits.os, "sched_getaffinity", lambda process: range(8), raising=False)
    monkeypatch.setattr(host_limits.os, "cpu_count", lambda: 8)
    system.file("proc/self/cgroup", "0::/")
    system.file("cgroup/memory.max", GIB)
    system.file("cgroup/memory.current", GIB - 100 * 2**20)
    system.file("cgroup/cpu.max", "200000 100000")
    assert [(found.grade, found.text) for found in [*doctor._memory(), doctor._processors()]] == [
        ("ok", "this computer has 16.0 GiB of memory; 8.00 GiB are left"),
        ("note", "the container or server that this runs in may use 1.00 GiB of memory; 100 MiB are left"),
        ("note", "2 of 8 processors may be used"),
    ]
    assert "OMP_NUM_THREADS=2" in doctor._processors().remedy
