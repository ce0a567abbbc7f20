"""Files are compared as recordings are, in Python and on the command line."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import fakegpu_lab as lab
from fakegpu_lab.cli.commands import cli


def program(batches: list[torch.Tensor], model: torch.nn.Module) -> None:
    for batch in batches:
        model(batch.to("cuda", non_blocking=True)).square().mean().backward()
    torch.cuda.synchronize()


@pytest.fixture
def both() -> list[lab.Trace]:
    """A program from pageable and from pinned memory."""
    lab.enable("a100", compute="meta")
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(3))).cuda()
    pageable = [torch.rand(4096, 1024) for _ in range(3)]
    pinned = [batch.pin_memory() for batch in pageable]
    program(pageable, model)
    traces = []
    for batches in (pageable, pinned):
        with lab.record() as trace:
            program(batches, model)
        traces.append(trace)
    lab.disable()
    return traces


@pytest.fixture
def files(both: list[lab.Trace], tmp_path: Path) -> list[str]:
    names = ("pageable.json", "pinned.json.gz")
    return [str(trace.to_chrome_trace(tmp_path / name)) for trace, name in zip(both, names, strict=True)]


def test_files_compare_as_the_recordings_that_they_were_written_from(both: list[lab.Trace], files: list[str]) -> None:
    live, read = lab.compare(*both), lab.compare(*map(lab.open, files))
    assert read.speedup == pytest.approx(live.speedup, rel=1e-6)
    assert read.sentence.partition("(")[0] == live.sentence.partition("(")[0]  # a file's lines have no text
    assert [(c.kind, c.reason, round(c.ns)) for c in read.causes] == [
        (c.kind, c.reason, round(c.ns)) for c in live.causes
    ]
    for table, other in zip(read.tables[:2], live.tables[:2], strict=True):
        assert [row[:-1] for row in table.rows] == [row[:-1] for row in other.rows]  # the last may be a line


def test_a_recording_and_a_file_of_another_are_compared(both: list[lab.Trace], files: list[str]) -> None:
    compared = lab.compare(both[0], lab.open(files[1]))
    assert (compared.causes[0].kind, compared.causes[0].reason) == ("copies", "pinned")


def test_the_command_prints_the_sentence_and_the_tables_and_writes_a_page(files: list[str], tmp_path: Path) -> None:
    page = tmp_path / "compared.html"
    ran = CliRunner().invoke(cli, ["compare", *files, "--html", str(page)], catch_exceptions=False)
    assert ran.exit_code == 0
    assert re.match(r"pinned is [\d.]+(%| times) (faster|as fast) (than|as) pageable: ", ran.stdout)
    assert "pinned instead of pageable memory" in ran.stdout
    assert "Where the time went" in ran.stdout
    assert ran.stderr == ""
    assert ran.stdout.endswith(f"The page with the timelines is {page}.\n")
    assert "Where the time went" in page.read_text(encoding="utf-8")


def test_files_of_one_name_are_called_by_their_folders(both: list[lab.Trace], tmp_path: Path) -> None:
    paths = []
    for trace, folder in zip(both, ("monday", "tuesday"), strict=True):
        (tmp_path / folder).mkdir()
        paths.append(str(trace.to_chrome_trace(tmp_path / folder / "run.json")))
    assert CliRunner().invoke(cli, ["compare", *paths]).stdout.startswith("tuesday/run is ")


@pytest.mark.parametrize("broken", ["missing", "text", "itself", "snapshot", "folder"])
def test_bad_input_is_one_sentence(broken: str, files: list[str], tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    arguments = ["compare", files[0], str(other)]
    if broken == "text":
        other.write_text("not a trace")
    elif broken == "itself":
        arguments[2] = files[0]
    elif broken == "snapshot":
        arguments[2] = str(tmp_path / "other.pickle")
        (tmp_path / "other.pickle").write_bytes(pickle.dumps({"segments": [], "device_traces": [[]]}))
    elif broken == "folder":
        arguments = [*arguments[:2], files[1], "--html", str(tmp_path / "no" / "page.html")]
    ran = CliRunner().invoke(cli, arguments)
    assert isinstance(ran.exception, lab.FakeGpuError)
    expected = {"missing": "other.json", "text": "other.json", "itself": "cannot be compared with itself",
                "snapshot": "snapshot", "folder": "its folder does not exist"}  # fmt: skip
    assert expected[broken] in str(ran.exception)
    assert "\n" not in str(ran.exception)


# ----------------------------------------------- what a profiler wrote


@pytest.mark.parametrize("with_ops", [True, False], ids=["with the host's ops", "only what ran on the card"])
def test_a_profiler_s_trace_is_compared_with_a_recording_of_the_same(tmp_path: Path, with_ops: bool) -> None:
    lab.enable("a100", compute="meta")
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(3))).cuda()
    batches = [torch.rand(4096, 1024).pin_memory() for _ in range(3)]
    program(batches, model)
    only = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=None if with_ops else only) as profiler:
        program(batches, model)
    path = tmp_path / "run.pt.trace.json"
    profiler.export_chrome_trace(str(path))
    with lab.record() as trace:
        program(batches, model)
    lab.disable()
    compared = lab.compare(lab.open(path), trace, ("profiled", "recorded"))
    kernels = [row for row in compared.changes if row.is_kernel]
    assert kernels
    assert all(row.before.calls == row.after.calls for row in kernels), "every kernel was found again"
    ratio = compared.after.means["kernels"] / compared.before.means["kernels"]
    assert ratio == pytest.approx(1, rel=0.01)


# ------------------------------------------------------------- real cards

REAL = Path(__file__).parents[1] / "recording_views" / "real"
"""Traces of real cards; NOTICE.md says where they come from."""


def alexnet() -> torch.nn.Module:
    nn = torch.nn
    sizes = [(3, 64, 11, 4, 2), (64, 192, 5, 1, 2), (192, 384, 3, 1, 1), (384, 256, 3, 1, 1), (256, 256, 3, 1, 1)]
    features: list[torch.nn.Module] = []
    for number, (into, out, kernel, stride, padding) in enumerate(sizes):
        features += [nn.Conv2d(into, out, kernel, stride, padding), nn.ReLU(True)]
        features += [nn.MaxPool2d(3, 2)] if number in (0, 1, 4) else []
    return nn.Sequential(
        *features, nn.AdaptiveAvgPool2d((6, 6)), nn.Flatten(), nn.Dropout(), nn.Linear(9216, 4096), nn.ReLU(True),
        nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(True), nn.Linear(4096, 1000),
    )  # fmt: skip


def test_a_real_card_is_compared_with_the_same_program_simulated() -> None:
    lab.enable("a100", compute="meta")
    with lab.record() as simulated, torch.no_grad():
        model = alexnet().cuda()
        x = torch.rand(128, 3, 224, 224, device="cuda")
        for _ in range(2):
            model(x)
        torch.cuda.synchronize()
    lab.disable()
    compared = lab.compare(lab.open(REAL / "alexnet.json.gz"), simulated, ("card", "model"))
    for side in (compared.before, compared.after):
        assert all(sum(kinds.values()) == side.elapsed_ns for kinds in side.sums.values())
    assert "The times of model come from a model, without what CUDA takes to start" in compared.sentence
    assert "those of card were measured" in compared.sentence
    rows = {row.name.removeprefix("aten::"): row for row in compared.changes}
    found = {name for name, row in rows.items() if row.before.calls and row.after.calls}
    assert {"cudnn_convolution", "addmm", "max_pool2d_with_indices", "clamp_min_", "native_dropout"} <= found
    assert rows["clamp_min_"].before.calls == rows["clamp_min_"].after.calls == 14
    assert rows["addmm"].before.calls == 2 * rows["addmm"].after.calls == 12  # the card adds the bias on its own
    copied = {row[0]: row[1:3] for row in compared.totals().rows}
    assert copied["copied to GPUs"][0] == copied["copied to GPUs"][1]  # the parameters
    assert copied["arithmetic"][0] == "–"  # which the profiler did not record
    assert 0.5 < compared.after.means["kernels"] / compared.before.means["kernels"] < 2


def test_two_ranks_of_a_real_job_are_compared() -> None:
    compared = lab.compare(lab.open(REAL / "dlrm_rank0.json.gz"), lab.open(REAL / "dlrm_rank1.json.gz"))
    for side in (compared.before, compared.after):
        assert all(sum(kinds.values()) == side.elapsed_ns for kinds in side.sums.values())
    kernels = [row for row in compared.changes if row.is_kernel]
    same = [row for row in kernels if row.before.calls and row.after.calls]
    assert len(same) > 0.8 * len(kernels)
