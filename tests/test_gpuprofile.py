"""``%%gpuprofile``, at IPython's prompt and in a notebook."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from IPython.core.error import UsageError
from nbclient import NotebookClient

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

pytest.importorskip("plotly")

BEGIN = "%load_ext fakegpu_lab\n%fakegpu a100\nimport torch\na = torch.ones(1024, 1024, device='cuda')"
CELL = "b = a @ a\nc = b.relu()\nc[0, 0].item()\n"


@pytest.fixture
def shell(ipython: InteractiveShell) -> Iterator[InteractiveShell]:
    ipython.run_line_magic("load_ext", "fakegpu_lab")
    ipython.run_line_magic("fakegpu", "a100")
    ipython.run_cell("import torch\na = torch.ones(1024, 1024, device='cuda')")
    yield ipython
    ipython.run_line_magic("unload_ext", "fakegpu_lab")
    lab.disable()


def profile(shell: InteractiveShell, options: str = "", cell: str = CELL) -> Any:
    return shell.run_cell_magic("gpuprofile", options, cell)


def test_a_recording_around_it_shows_that_the_host_waits_for_earlier_cells(shell: InteractiveShell) -> None:
    with lab.record() as around:  # as a panel's
        shell.run_cell("for _ in range(100):\n    b = a @ a")
        profile(shell, "--no-figure")
    wait = around.waits[0]
    assert (wait.name, wait.end_ns) == ("%%gpuprofile", around.kernels[99].end_ns)


def test_the_lines_that_took_most_are_named(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    assert profile(shell) == 1024.0
    said = capsys.readouterr()
    assert said.err == ""
    first, *table, headers, one, two, three = said.out.splitlines()
    assert "of simulated time; cuda:0 busy" in first
    assert any(row.startswith("aten::mm ") for row in table), "a prompt has no room for a figure"
    assert headers.split() == ["where", "kernels", "copies", "host", "waited", "code"]
    time = r"[\d.]+ [nµ]s"
    assert re.fullmatch(rf"line 2 +1{time} +b = a @ a", one)
    assert re.fullmatch(rf"line 4 +{time} +{time} +c\[0, 0\]\.item\(\)", two)
    assert re.fullmatch(rf"line 3 +{time} +c = b\.relu\(\)", three)
    assert one.index("1") > two.index("line 4"), "the first is the time of kernels"
    assert shell.user_ns["b"][0, 0] == 1024


TRAIN = """\
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
x = torch.ones(1024, 1024).to("cuda")
loss = model(x).square().mean()
optimizer.zero_grad()
loss.backward()
optimizer.step()"""


def _ns(text: str) -> float:
    units = {"ns": 1, "µs": 1e3, "ms": 1e6}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+) (ns|µs|ms)", text))


@pytest.mark.parametrize("top", [1, 2, 5])
def test_the_lines_add_up_to_the_time_in_which_the_gpu_was_busy(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], top: int
) -> None:
    profile(shell, f"--no-figure --top {top}", TRAIN)
    first, *lines = capsys.readouterr().out.splitlines()
    busy = re.search(r"cuda:0 busy ([\d.]+ \w+)", first)
    assert busy is not None
    headers, *rows = lines
    kernels, copies = headers.index("kernels") + len("kernels"), headers.index("copies") + len("copies")
    on_gpu = [_ns(row[kernels - 8 : kernels]) for row in rows]
    assert sum(on_gpu) == pytest.approx(_ns(busy[1]), rel=0.02)
    assert any(_ns(row[kernels:copies]) for row in rows), "no kernel runs during these"
    if top == 5:
        assert any(line.endswith("optimizer.step()") for line in lines)


def test_that_kernels_overlap_is_said(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    both = "b = p @ p.T\nwith torch.cuda.stream(s):\n    c = p @ p.T\n"
    shell.run_cell(f"p, s = torch.ones(32, 2**16, device='cuda'), torch.cuda.Stream()\n{both}")  # take the workspaces
    profile(shell, "--no-figure", both)
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(r"Kernels of several streams ran at the same time, for [\d.]+ .s in total\.", last)


def test_options(shell: InteractiveShell, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    profile(shell, f"--no-figure --top 1 --chrome {path}")
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 5
    assert "b = a @ a" in out[2]
    assert out[3].startswith("2 more lines  ")
    assert out[4] == f"Written for https://ui.perfetto.dev: {path}"
    assert json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    profile(shell, f"--no-figure --top 0 --chrome {tmp_path / 'nowhere' / 'x.json'}")
    assert "could not be written: No such file or directory." in capsys.readouterr().out
    with pytest.raises(UsageError, match="--top -1"):
        profile(shell, "--top=-1")


def test_the_same_cell_says_the_same_twice(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    profile(shell, "--no-figure")  # the first product takes the workspace, too
    capsys.readouterr()
    profile(shell, "--no-figure")
    first = capsys.readouterr().out
    profile(shell, "--no-figure")
    assert capsys.readouterr().out == first


def test_an_error_is_raised_after_the_profile(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        profile(shell, "--no-figure", "b = a @ a\n1 / 0")
    assert re.search(r"^line 2 +[\d.]+ µs", capsys.readouterr().out, re.MULTILINE)
    with pytest.raises(SyntaxError):
        profile(shell, "", "b = = a")
    assert capsys.readouterr().out == ""


def test_nothing_on_a_gpu_is_said(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    assert profile(shell, "", "x = 3") is None
    assert "Nothing ran on a simulated GPU." in capsys.readouterr().out
    lab.disable()
    with pytest.raises(UsageError, match="No simulated GPU is enabled"):
        profile(shell)


def test_in_a_notebook_the_figure_is_shown() -> None:
    notebook = nbformat.v4.new_notebook()
    sources = [
        f"{BEGIN}\ndef square(x):\n    return x @ x",
        "%%gpuprofile\nb = square(a)\nb[0, 0].item()",
        "%%gpuprofile --no-figure\nb = a + a\nraise ValueError('a mistake')",
    ]
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    NotebookClient(notebook, timeout=120, allow_errors=True).execute()
    _, shown, failed = notebook.cells
    loading = [out for out in shown.outputs if "PlotlyConfig" in str(out) and "vnd.plotly" not in str(out)]
    shown.outputs = [out for out in shown.outputs if out not in loading]  # plotly 5 loads itself first
    kinds = [output.output_type for output in shown.outputs]
    assert kinds == ["stream", "display_data", "display_data", "display_data", "execute_result"]
    assert all(output.get("name") != "stderr" for output in shown.outputs)
    assert "The figure in words" in shown.outputs[1].data["text/html"]
    figure = shown.outputs[2].data["application/vnd.plotly.v1+json"]
    texts = [text for trace in figure["data"] for text in trace.get("hovertext", ())]
    assert any("In[1], line 6" in text and "return x @ x" in text for text in texts)
    lines = shown.outputs[3].data
    assert "In[1], line 6" in lines["text/plain"]
    assert "<td" in lines["text/html"]
    assert "In[1], line 6" in lines["text/html"]
    assert "line 2" in failed.outputs[1].data["text/plain"]
    assert failed.outputs[-1].ename == "ValueError"
    frames = "".join(failed.outputs[-1].traceback)
    assert "In[3]" in frames
    assert "gpuprofile.py" not in frames, "a student sees the cell, not the magic"
