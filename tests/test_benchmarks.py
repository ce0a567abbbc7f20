"""`benchmarks/real_gpu.py` records the simulation whole, and `compare_real.py` finds what differs."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SECTIONS = BENCHMARKS / "sections"
RECORDING = BENCHMARKS.parent / "fakegpu_lab" / "measure" / "recording"
CARD = "t4"


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All sections, as `--quick` records them under the simulation; on one worker, once."""
    file = tmp_path_factory.mktemp("recording") / "simulated.json"
    script = str(BENCHMARKS / "real_gpu.py")
    done = run("-m", "fakegpu_lab", "run", "--quiet", "--devices", CARD, script, "--quick", str(file))
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return file


@pytest.fixture(scope="module")
def report(recording: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(recording.read_text())
    return loaded


def failures(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        if set(value) == {"error"}:
            yield path
        for name, inner in value.items():
            yield from failures(inner, f"{path}/{name}")


def compared(*arguments: str) -> dict[str, Any]:
    done = run(str(BENCHMARKS / "compare_real.py"), *arguments, "--json")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    return result


def test_every_section_is_recorded(report: dict[str, Any]) -> None:
    assert report["errors"] == {}
    assert list(report["sections"]) == sorted(report["seconds"])
    assert len(report["sections"]) == 9


def test_it_records_what_the_simulation_must_reproduce(report: dict[str, Any]) -> None:
    sections = report["sections"]
    works = {name: phases for name, phases in sections["workloads"].items() if "error" not in phases}
    assert len(works) >= 24
    for name, phases in works.items():
        figures = list(phases.values())
        assert max(f["peak_allocated"] for f in figures) > 2**20 or name == "attention_flash", name
        assert all(f["allocated"] <= f["peak_allocated"] <= f["peak_reserved"] for f in figures), name
        assert figures[0] is not None
        assert phases["after"]["allocated"] == 0, name
    assert len(sections["saved"]) >= 60
    assert len(sections["casts"]) >= 150
    assert len(sections["numbers"]) >= 80
    assert len(sections["messages"]["devices"]) >= 40
    assert len(sections["times"]) >= 75
    assert sections["allocation"]["sizes"]["1048577 bytes"]["allocated"] == 1049088
    assert sections["environment"]["device_name"] == "Tesla T4"
    assert sections["workspaces"]["mm_float32"]["kept"] == 8_519_680


def test_few_items_fail_under_the_simulation(report: dict[str, Any]) -> None:
    """Those of autocast are among them: an op that is given mixed dtypes fails on some cards too."""
    failed = [path for path in failures(report["sections"]) if not path.startswith("/casts/")]
    assert len(failed) <= 12, failed


def test_what_the_figures_say_is_so(report: dict[str, Any]) -> None:
    """A few that are known from first principles: a recorder that measured the wrong thing would miss them."""
    saved, works = report["sections"]["saved"], report["sections"]["workloads"]
    size = 64 * 128 * 4
    assert saved["mul_64x128"]["kept"] == size  # the operands are kept anyway
    assert saved["gelu_64x128"]["kept"] == size
    assert saved["dropout_64x128"]["kept"] == size + size // 4  # and the mask, a byte an element
    assert saved["half_64x128"]["kept"] == size // 2
    assert works["relu_in_place"]["forward"]["peak_allocated"] == works["relu"]["forward"]["peak_allocated"] - 4 * 2**20
    loop, fused, foreach = (
        works[f"mlp_adam_{kind}"]["step_2"]["peak_allocated"] for kind in ("loop", "fused", "foreach")
    )
    assert fused < loop < foreach
    assert works["gpt_checkpointed"]["forward_1"]["allocated"] < works["gpt"]["forward_1"]["allocated"]


def test_a_recording_agrees_with_itself(recording: Path) -> None:
    result = compared(str(recording), str(recording))
    assert result["differences"] == []
    for row in result["summary"]:
        assert row["compared"] == row["equal"]
        assert row["only real"] == row["only simulated"] == 0
    assert sum(row["compared"] for row in result["summary"]) > 3000


def test_a_simulated_recording_has_the_same_shape_again(recording: Path) -> None:
    """With one file the simulation of its card is recorded; what needs no process of its own suffices here."""
    for section in ("allocation", "casts"):
        result = compared(str(recording), "--section", section)
        (row,) = result["summary"]
        assert row["section"] == section
        assert row["compared"] == row["equal"] > 50
        assert row["only real"] == row["only simulated"] == 0


def test_differences_are_found(recording: Path, report: dict[str, Any], tmp_path: Path) -> None:
    changed = copy.deepcopy(report)
    sections = changed["sections"]
    was = sections["workloads"]["mlp_sgd"]["forward_1"]["allocated"]
    sections["workloads"]["mlp_sgd"]["forward_1"]["allocated"] = was * 2
    sections["messages"]["devices"]["add"] = "RuntimeError: something else"
    sections["environment"]["system"] = "another"
    del sections["saved"]["add_64x128"]
    other = tmp_path / "other.json"
    other.write_text(json.dumps(changed))
    result = compared(str(other), str(recording))
    found = {d["path"]: d["error"] for d in result["differences"]}
    assert found == {"workloads/mlp_sgd/forward_1/allocated": 0.5, "messages/devices/add": None}
    rows = {row["section"]: row for row in result["summary"]}
    assert rows["saved"]["only simulated"] == 4
    assert rows["messages"]["different"] == 1
    table = run(str(BENCHMARKS / "compare_real.py"), str(other), str(recording))
    assert table.returncode == 0
    assert "50.0%" in table.stdout
    assert "differs" in table.stdout


def test_times_are_compared_once_there_are_any(report: dict[str, Any], tmp_path: Path) -> None:
    real, with_times, without = (copy.deepcopy(report) for _ in range(3))
    real["sections"]["times"]["launch_add"] = {"seconds": 4e-6, "calls": 1}
    with_times["sections"]["times"]["launch_add"] = {"seconds": 5e-6, "calls": 9}
    without["sections"]["times"]["launch_add"] = {"seconds": 0.0, "calls": 9}
    files = []
    for name, value in (("real", real), ("with", with_times), ("without", without)):
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(json.dumps(value))
    (difference,) = compared(str(files[0]), str(files[1]), "--section", "times")["differences"]
    assert difference["error"] == pytest.approx(0.25)
    result = compared(str(files[0]), str(files[2]), "--section", "times")
    assert result["differences"] == []
    assert "times/launch_add/seconds" in result["left_out"]["no time yet"]


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.json"
    nothing.write_text("{}")
    done = run(str(BENCHMARKS / "compare_real.py"), str(nothing))
    assert done.returncode == 1
    assert "is no recording of real_gpu.py" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_recorder_needs_torch_alone() -> None:
    files = [BENCHMARKS / "real_gpu.py", *SECTIONS.glob("*.py"), *RECORDING.glob("*.py")]
    imported = {
        line.split()[1]
        for file in files
        for line in file.read_text().splitlines()
        if line.startswith(("import ", "from "))
    }
    elsewhere = {name.partition(".")[0] for name in imported if not name.startswith(".")}
    assert elsewhere - set(sys.stdlib_module_names) == {"torch", "recording"}


def test_the_recorder_runs_where_the_package_is_not(tmp_path: Path) -> None:
    """As copied to another machine: the script and the folders of sections, side by side."""
    shutil.copy(BENCHMARKS / "real_gpu.py", tmp_path)
    shutil.copytree(SECTIONS, tmp_path / "sections")
    shutil.copytree(RECORDING, tmp_path / "recording")
    out = tmp_path / "out.json"
    script = [str(tmp_path / "real_gpu.py"), "--quick", "--sections", "environment,numbers", str(out)]
    done = run("-m", "fakegpu_lab", "run", "--quiet", "--devices", CARD, *script)
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text())["sections"]["environment"]["device_name"] == "Tesla T4"


def test_without_a_card_it_says_what_to_do() -> None:
    done = run(str(BENCHMARKS / "real_gpu.py"), "--quick")
    if "sees no CUDA device" not in done.stderr:
        pytest.skip("there is a card")
    assert done.returncode == 2
    assert "fakegpu-lab run" in done.stderr


def test_a_step_is_taken_apart() -> None:
    done = run(str(BENCHMARKS / "where.py"), "--quick", "--ops", "MLP step")
    assert done.returncode == 0, done.stderr
    _, row, *ops = done.stdout.splitlines()
    cpu, wrapping, memory, timing, rest, simulated, wrapped_ratio, ratio = (float(word) for word in row.split()[2:])
    assert cpu + wrapping + memory + timing + rest == pytest.approx(simulated, abs=0.05)
    assert wrapped_ratio > 1
    assert ratio == pytest.approx(simulated / cpu, rel=0.01)
    assert {line.split()[0]: float(line.split()[1]) for line in ops}["aten.detach.default"] == 6


def test_the_floor_is_found() -> None:
    """It computes by itself what the simulation has handlers for, so a new one may be missing there."""
    done = run(str(BENCHMARKS / "floor.py"), "--quick")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["simulated", "bare"]
