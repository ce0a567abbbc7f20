"""A real card's live views, on simulated cards that are treated as real: both show the same of the same program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from IPython.core.error import UsageError

import fakegpu_lab as lab
from fakegpu_lab import session
from fakegpu_lab.notebook.telemetry.source import Reader, Source
from fakegpu_lab.real import memory, nvml

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

    from fakegpu_lab.hardware.machine import Machine

PROGRAM = """
import json, os, subprocess, sys, time
import torch
import fakegpu_lab as lab
from fakegpu_lab import session
from fakegpu_lab.notebook.telemetry.source import Reader, Source

if sys.argv[1] == "real":
    session.watch()
source = Source()
source.open()
source.begin()
model = torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 2048)).cuda()
optimizer = torch.optim.Adam(model.parameters())
batch = torch.ones(8192, 2048).cuda()
other = torch.ones(1000, device="cuda:1")
source.poll()
for _ in range(20):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
torch.cuda.synchronize()
source.end()
time.sleep(0.3)  # NVML is read every quarter of a second
source.poll()
asks = '''
import json, pynvml
pynvml.nvmlInit()
found = []
for index in range(pynvml.nvmlDeviceGetCount()):
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    found.append([[one.pid, one.usedGpuMemory] for one in processes])
print(json.dumps(found))
'''
elsewhere = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=True)
cards = session.watched()
print(json.dumps({
    "message": Reader(source).message().model_dump(mode="json"),
    "snapshot": lab.snapshot(categories=True).model_dump(mode="json"),
    "panel": str(lab.panel()),
    "nvml": torch.cuda.utilization(0) / 100,
    "pid": os.getpid(),
    "elsewhere": json.loads(elsewhere.stdout),
    "processes": [list(map(list, cards.readings(n).processes)) for n in range(2)] if cards else None,
    "temperature": [cards.readings(n).temperature for n in range(2)] if cards else torch.cuda.temperature(0),
}))
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What both kinds of views show of the same program, each in a process of its own."""
    script = tmp_path_factory.mktemp("real") / "program.py"
    script.write_text(PROGRAM)
    found = {}
    for kind in ("real", "simulated"):
        command = [sys.executable, "-m", "fakegpu_lab", "run", "-q", "-d", "a100:2", "--compute", "meta"]
        environment = {**os.environ, session.TREAT_AS_REAL: "1"}
        done = subprocess.run(
            [*command, str(script), kind], capture_output=True, text=True, env=environment, timeout=600, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        found[kind] = json.loads(done.stdout)
    return found


def test_the_memory_is_the_same_byte_for_byte(shown: dict[str, dict[str, Any]]) -> None:
    real, simulated = (shown[kind]["message"]["devices"] for kind in ("real", "simulated"))
    assert [one["memory"] for one in real] == [one["memory"] for one in simulated]
    assert real[0]["memory"]["peak_allocated"] > real[0]["memory"]["allocated"] > 2**27
    assert [(one["index"], one["slot"], one["id"], one["name"], one["in_use"]) for one in real] == [
        (one["index"], one["slot"], one["id"], one["name"], one["in_use"]) for one in simulated
    ]


def test_what_memory_is_for_is_the_same_as_far_as_a_card_says(shown: dict[str, dict[str, Any]]) -> None:
    """Which tensors came from the host, and a library's workspace, only the simulation knows."""
    real, simulated = (shown[kind]["snapshot"]["devices"][0]["memory"]["categories"] for kind in ("real", "simulated"))
    for name in ("parameters", "gradients", "optimizer_state", "activations"):
        assert real[name] == simulated[name], name
    assert real["parameters"] == 2 * (2048 * 2048 + 2048) * 4
    assert real["other"] == simulated["other"] + simulated["inputs"] + simulated["workspace"]


def test_the_curves_end_where_the_memory_is(shown: dict[str, dict[str, Any]]) -> None:
    for kind in ("real", "simulated"):
        message = shown[kind]["message"]
        for slot in ("0", "1"):
            _, *held, reserved = message["history"][slot][-1]
            device = message["devices"][int(slot)]["memory"]
            assert (sum(held), reserved) == (device["allocated"], device["reserved"])
    real = shown["real"]["message"]["history"]["0"]
    assert len(real) >= 3
    times = [row[0] for row in real]
    assert times == sorted(set(times)), "one row for each reading"


def test_steps_are_counted(shown: dict[str, dict[str, Any]]) -> None:
    real, simulated = (shown[kind]["message"]["steps"] for kind in ("real", "simulated"))
    assert [number for _, number in real] == [number for _, number in simulated] == list(range(1, 21))


def test_utilization_is_nvmls(shown: dict[str, dict[str, Any]]) -> None:
    """The program keeps the card busy, so both are high; the simulation's is the share since the poll before."""
    real = shown["real"]
    assert real["message"]["utilisation"]["0"] == pytest.approx(real["nvml"], abs=0.01)
    assert real["message"]["utilisation"]["0"] == pytest.approx(
        shown["simulated"]["message"]["utilisation"]["0"], abs=0.1
    )
    assert real["message"]["utilisation"]["0"] > 0.8
    assert real["message"]["utilisation"]["1"] == shown["simulated"]["message"]["utilisation"]["1"] == 0
    assert real["temperature"][0] == shown["simulated"]["temperature"]


def test_processes_are_those_that_another_process_sees(shown: dict[str, dict[str, Any]]) -> None:
    real = shown["real"]
    assert real["processes"] == real["elsewhere"]
    memory_of = [one["memory"] for one in real["message"]["devices"]]
    assert real["processes"] == [[[real["pid"], one["context"] + one["reserved"]]] for one in memory_of]


def test_nothing_is_claimed_that_a_card_does_not_count(shown: dict[str, dict[str, Any]]) -> None:
    real, simulated = shown["real"], shown["simulated"]
    assert real["message"]["real"] is True
    assert simulated["message"]["real"] is False
    assert "kernels" not in real["panel"]
    assert "kernels" in simulated["panel"]
    assert "simulated" not in real["panel"].splitlines()[0]
    assert real["message"]["spec"] == "2 × NVIDIA A100-SXM4-80GB"
    (advice,) = real["message"]["advice"]
    assert "lab.record()" in advice["text"]


@pytest.fixture
def as_real(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setenv(session.TREAT_AS_REAL, "1")
    yield machine
    session.unwatch()


def test_polls_cost_the_program_no_time_and_do_not_wait(as_real: Machine) -> None:
    x = torch.ones(2048, 2048, device="cuda")
    source = Source()
    session.watch()
    source.open()
    try:
        with lab.trace.Trace(as_real) as trace:
            x @ x
            before = as_real.snapshot().now_ns
            for _ in range(20):
                source.poll()
            after = as_real.snapshot().now_ns
    finally:
        source.close()
    assert trace.waits == []
    assert after == before


def test_a_reader_gets_what_is_new(as_real: Machine) -> None:
    source = Source()
    session.watch()
    source.open()
    try:
        reader = Reader(source)
        source.poll()
        first = reader.message()
        kept = torch.ones(2**20, device="cuda")
        source.poll()
        second = reader.message()
    finally:
        source.close()
    assert first is not None
    assert (first.kind, first.real, len(first.devices)) == ("state", True, 2)
    assert second is not None
    assert second.kind == "update"
    assert [row[-2] for row in second.history[0]] == [kept.nbytes]
    assert second.history[0][-1][-1] == as_real.devices[0].allocator.reserved_bytes


def test_simulated_gpus_hide_real_ones(machine: Machine) -> None:
    with pytest.raises(lab.FakeGpuError, match=r"^Simulated GPUs are enabled, and hide real ones: .*%fakegpu off\.$"):
        lab.watch()


def test_without_a_gpu_it_says_where_there_is_one() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a card")
    with pytest.raises(lab.FakeGpuError, match=r"^torch sees no real GPU here: .* or enable a simulated one"):
        lab.watch()


def test_what_needs_the_simulation_says_so(as_real: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    session.watch()
    monkeypatch.setattr(session, "_machine", None)  # as on a computer with a card
    with pytest.raises(lab.FakeGpuError, match=r"^This needs a simulated GPU, and a real one is in use: enable a"):
        session.machine()


def test_enabling_simulated_gpus_ends_it(as_real: Machine) -> None:
    cards = session.watch()
    assert session.watch() is cards
    assert session.shown() is cards
    machine = lab.enable("t4")
    assert session.watched() is None
    assert session.shown() is machine


def test_the_magic(as_real: Machine, ipython: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    ipython.run_line_magic("load_ext", "fakegpu_lab")
    try:
        kept = torch.ones(2**20, device="cuda:1")
        panel = ipython.run_line_magic("fakegpu", "real")
        assert repr(panel).startswith("2 × NVIDIA A100-SXM4-80GB: memory by category, after ")
        assert "4.00 MiB" in repr(panel)
        assert "text/html" in panel._repr_mimebundle_()
        table = str(ipython.run_line_magic("fakegpu", ""))
        assert table.startswith("2 × NVIDIA A100-SXM4-80GB: 2 real GPUs")
        assert "kernels" not in table
        with pytest.raises(UsageError, match="takes no arguments"):
            ipython.run_line_magic("fakegpu", "real a100")
        capsys.readouterr()
        ipython.run_line_magic("fakegpu", "off")
        assert capsys.readouterr().out == "The panel no longer shows the real GPUs.\n"
        del kept
    finally:
        ipython.run_line_magic("unload_ext", "fakegpu_lab")


def test_what_memory_is_for_counts_views_once(as_real: Machine) -> None:
    layer = torch.nn.Linear(64, 64, bias=False, device="cuda")
    views = [layer.weight.t(), layer.weight[:10]]
    found = memory.by_category()[0]
    assert found.parameters == 64 * 64 * 4
    assert found.total == torch.cuda.memory_allocated()
    del views


def test_without_nvml_there_is_a_sentence_and_memory_still(as_real: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(nvml, "_library", lambda: None)
    assert nvml.why_missing().endswith("pip install nvidia-ml-py.")
    kept = torch.ones(2**20, device="cuda")
    device = session.watch().snapshot().devices[0]
    assert device.memory.allocated == kept.nbytes
    assert device.memory.free == torch.cuda.mem_get_info()[0]
    assert device.time.busy_ns == 0


def test_the_variable_of_the_tests_is_no_public_one() -> None:
    """Only tests set it, so the documentation does not name it."""
    from pathlib import Path as Folder

    docs: Path = Folder(__file__).parents[1] / "docs"
    assert not [page for page in docs.glob("*.md") if session.TREAT_AS_REAL in page.read_text(encoding="utf-8")]


RECORDED = """
import sys
import torch
import fakegpu_lab as lab
from fakegpu_lab import session

if sys.argv[1] == "real":
    session.watch()
model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)).cuda()
optimizer = torch.optim.Adam(model.parameters())


def step():
    optimizer.zero_grad()
    model(torch.ones(64, 512).cuda()).sum().backward()
    optimizer.step()


step()
with lab.record() as trace:
    step()
    step()
import json
print(json.dumps({
    "class": type(trace).__name__,
    "kernels": [[one.name, one.device, one.end_ns - one.start_ns] for one in trace.kernels],
    "transfers": [[one.kind, one.nbytes, one.end_ns - one.start_ns] for one in trace.transfers],
    "allocated": sorted(one.block_bytes for one in trace.allocations),
    "peak": trace.peak_memory(),
    "busy": trace.busy(),
    "elapsed": trace.elapsed,
    "summary": str(trace.summary()),
    "lines": str(trace.by_line()),
    "waits": len(trace.waits),
}))
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    script = tmp_path_factory.mktemp("recorded") / "program.py"
    script.write_text(RECORDED)
    found = {}
    for kind in ("real", "simulated"):
        command = [sys.executable, "-m", "fakegpu_lab", "run", "-q", "-d", "a100", str(script), kind]
        environment = {**os.environ, session.TREAT_AS_REAL: "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        found[kind] = json.loads(done.stdout)
    return found


def test_a_profilers_recording_has_what_the_simulations_has(recorded: dict[str, dict[str, Any]]) -> None:
    real, simulated = recorded["real"], recorded["simulated"]
    assert (real["class"], simulated["class"]) == ("ProfiledTrace", "Trace")
    assert [one[1:] for one in real["kernels"]] == [one[1:] for one in simulated["kernels"]]
    assert len(real["kernels"]) == 36
    assert real["transfers"] == simulated["transfers"] == [["h2d", 64 * 512 * 4, simulated["transfers"][0][2]]] * 2
    assert real["allocated"] == simulated["allocated"]
    assert real["busy"] == pytest.approx(simulated["busy"], rel=1e-9)
    assert real["elapsed"] == pytest.approx(simulated["elapsed"], rel=0.05)
    assert real["peak"] == simulated["peak"]
    assert real["waits"] == simulated["waits"]


def test_its_tables_name_the_program(recorded: dict[str, dict[str, Any]]) -> None:
    real = recorded["real"]
    assert "aten::linear_backward" in real["summary"]
    assert "NVIDIA A100-SXM4-80GB" in real["summary"]
    assert "simulated" not in real["summary"]
    assert "program.py" in real["lines"]
    assert "profiled.py" not in real["lines"]


def test_before_its_end_a_profilers_recording_has_no_records(as_real: Machine) -> None:
    session.watch()
    with lab.record() as trace:
        with pytest.raises(lab.FakeGpuError, match="when the recording has ended"):
            trace.kernels  # noqa: B018
        with pytest.raises(AttributeError):
            trace.__nothing__  # noqa: B018
        torch.ones(8, device="cuda")
    assert [kernel.name for kernel in trace.kernels] == ["aten::fill_"]


def test_a_recording_in_which_nothing_ran(as_real: Machine) -> None:
    session.watch()
    with lab.record() as trace:
        pass
    assert (trace.kernels, trace.transfers) == ([], [])
    assert trace.peak_memory(1) == torch.cuda.memory_allocated(1)
    assert repr(trace).startswith("<ProfiledTrace of ")


def test_gpuprofile_shows_what_a_real_card_did(
    as_real: Machine, ipython: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    ipython.run_line_magic("load_ext", "fakegpu_lab")
    try:
        session.watch()
        ipython.run_cell_magic("gpuprofile", "--no-figure", "import torch\ntorch.ones(8, device='cuda').exp()")
        said = capsys.readouterr().out
        assert "recorded on NVIDIA A100-SXM4-80GB" in said
        assert "simulated" not in said
        with pytest.raises(lab.FakeGpuError, match=r"^This check looks at what simulated GPUs did, and a real one is"):
            lab.expect.transfers(trace=lambda: None, h2d=0)
    finally:
        ipython.run_line_magic("unload_ext", "fakegpu_lab")
