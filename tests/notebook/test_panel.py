"""The panel where nothing moves, its magics, and the footer. (That it moves, tests/browser sees.)"""

from __future__ import annotations

import gc
import re
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pytest
import torch
from IPython.core.error import UsageError
from nbclient import NotebookClient
from nbconvert import HTMLExporter

import fakegpu_lab as lab
from fakegpu_lab.hardware.memory_categories import NAMES
from fakegpu_lab.notebook.panel import COLOURS, Panel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell


@pytest.fixture
def shell(ipython: InteractiveShell) -> Iterator[InteractiveShell]:
    gc.collect()
    ipython.run_line_magic("load_ext", "fakegpu_lab")
    yield ipython
    ipython.run_line_magic("fakegpu", "footer off")
    ipython.run_line_magic("unload_ext", "fakegpu_lab")
    lab.disable()


def test_without_a_machine_it_says_what_to_do(shell: InteractiveShell) -> None:
    shown = shell.run_line_magic("fakegpu", "panel")
    assert "%fakegpu a100:2 enables two" in repr(shown)
    assert set(shown._repr_mimebundle_()) == {"text/plain"}


def test_the_bars_of_a_picture_have_one_scale(shell: InteractiveShell) -> None:
    """A GPU with much less memory in use must not look fuller than another one."""
    lab.enable("a100:2", memory="1GiB")
    large = torch.ones(2**26, device="cuda:0")
    small = torch.ones(2**18, device="cuda:1")
    page = lab.panel()._repr_mimebundle_()["text/html"]
    widths = [float(width) for width in re.findall(r'title="other: [\d,]+ bytes" style="width: ([\d.]+)%', page)]
    assert widths == pytest.approx([25, 100 / 1024], abs=1e-3)
    assert page.count("NVIDIA A100-SXM4-80GB: ") == 4, "above its bar and as its description, and not in the table"
    del large, small


def test_a_picture_has_no_table_that_a_narrow_page_would_cut(shell: InteractiveShell) -> None:
    """Each figure stands below its name, as many beside each other as have room."""
    lab.enable("a100:2", memory="1GiB")
    layer = torch.nn.Linear(512, 512, device="cuda")
    page = lab.panel()._repr_mimebundle_()["text/html"]
    assert "<table" not in page
    listed = r'role="listitem"><div[^>]*>(?:<span[^>]*></span>)?([\w ,]+)</div><div>([^<]*)</div>'
    figures = re.findall(listed, page)
    assert figures[:2] == [("allocated", "1.00 MiB"), ("parameters", "1.00 MiB")]
    names = ["allocated", "parameters", "reserved", "reserved, unused", "peak", "CUDA context", "kernels", "busy"]
    assert [name for name, _ in figures] == 2 * names
    assert page.count("grid-template-columns: repeat(auto-fill, minmax(") == 2
    del layer


def test_a_bar_has_what_is_reserved_and_cuda_s_own_memory_too(shell: InteractiveShell) -> None:
    lab.enable("a100", memory="1GiB")
    x = torch.ones(30 * 2**20, device="cuda")
    unused = torch.ones(30 * 2**20, device="cuda")
    del unused
    page = lab.panel()._repr_mimebundle_()["text/html"]
    memory = lab.snapshot().devices[0].memory
    parts = dict(re.findall(r'title="([\w ,]+): ([\d,]+) bytes', page))
    assert parts == {
        "other": f"{memory.allocated:,}",
        "reserved, unused": f"{memory.reserved - memory.allocated:,}",
        "CUDA context": f"{memory.context:,}",
    }
    del x


def test_a_still_that_was_asked_for_does_not_say_why_it_is_one(shell: InteractiveShell) -> None:
    lab.enable("a100")
    assert "needs a notebook" in repr(lab.panel())
    assert "needs a notebook" not in repr(lab.panel(live=False))


RANKS = """\
import torch, torch.distributed as dist
dist.init_process_group("nccl")
x = torch.ones(8, device=f"cuda:{dist.get_rank()}")
dist.all_reduce(x)"""


def test_collectives_are_counted_apart_from_other_kernels(shell: InteractiveShell) -> None:
    lab.enable("a100:2")
    shell.run_cell_magic("ranks", "2", RANKS)
    headers, row, *_ = repr(lab.panel()).splitlines()[1:]
    assert re.search(r"peak +collectives +other kernels +busy$", headers)
    assert re.search(r" 1 +1 +[\d.]+ µs$", row)


def test_in_a_terminal_it_is_a_table(shell: InteractiveShell) -> None:
    lab.enable("a100:2", memory="1GiB")
    layer = torch.nn.Linear(512, 512, device="cuda")
    x = torch.ones(8, 512).to("cuda:1")
    shown = repr(lab.panel())
    assert "cuda:0  NVIDIA A100-SXM4-80GB  1.00 GiB   1.00 MiB    1.00 MiB" in shown
    assert "inputs" in shown
    assert "gradients" not in shown, "columns of what nobody has are left out"
    assert "needs a notebook" in shown
    assert repr(lab.panel()) == shown
    page = lab.panel()._repr_mimebundle_()["text/html"]
    assert "1,050,624 bytes" in page
    assert re.findall(r'title="(\w+):', page) == ["parameters", "inputs"]
    del layer, x


def test_bad_input_is_one_sentence(shell: InteractiveShell) -> None:
    with pytest.raises(lab.FakeGpuError, match="no theme 'pink'"):
        lab.panel(theme="pink")
    with pytest.raises(lab.FakeGpuError, match="this Python has no notebook"):
        lab.panel(live=True)
    with pytest.raises(UsageError, match="footer on prints"):
        shell.run_line_magic("fakegpu", "footer maybe")


def test_the_footer_tells_what_each_cell_did(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    def cell(code: str) -> str:
        shell.run_cell(code)
        said = capsys.readouterr()
        assert said.err == ""
        return said.out

    cell("%fakegpu a100 --memory 1GiB")
    assert cell("%fakegpu footer on") == ""
    assert cell("pass") == ""
    said = cell("import torch\nx = torch.ones(1000, 1000).to('cuda')\ny = x @ x")
    told = r"\[\d+ µs simulated · 1 kernel · 1 transfer \(3\.81 MiB\) · peak memory 15\.\d MiB\]\n"
    assert re.fullmatch(told, said)
    assert "2 kernels · 0 transfers ·" in cell("z = y + y + y")
    cell("%fakegpu footer off")
    assert cell("z = y + y") == ""
    shell.run_cell("del x, y, z")


@pytest.mark.long
def test_nbconvert_has_a_picture_and_no_empty_box() -> None:
    """And two runs give the same outputs, as nbval compares them."""
    code = [
        "%load_ext fakegpu_lab\n%fakegpu a100 --memory 1GiB",
        "import torch\nx = torch.ones(1000, 1000).to('cuda')",
        "%fakegpu panel",
    ]
    outputs = []
    for _ in range(2):
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in code])
        NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
        (output,) = notebook.cells[-1].outputs
        outputs.append(output.data)
    assert outputs[0] == outputs[1]
    assert set(outputs[0]) == {"text/plain", "text/html"}
    page, _ = HTMLExporter().from_notebook_node(notebook)
    assert 'aria-label="cuda:0 NVIDIA' in page
    assert "3.81 MiB allocated of 1.00 GiB" in page


def test_colab_is_told_where_its_widget_manager_is(monkeypatch: pytest.MonkeyPatch) -> None:
    anywidget = pytest.importorskip("anywidget")
    enabled: list[bool] = []
    output = types.ModuleType("google.colab.output")
    vars(output).update(
        enable_custom_widget_manager=lambda: enabled.append(True),
        _widgets=types.SimpleNamespace(_installed_url="https://ssl.gstatic.com/manager.js"),
    )
    monkeypatch.setitem(sys.modules, "google.colab.output", output)
    lab.enable("a100")
    shown = Panel(None)
    shown.widget = anywidget.AnyWidget(_esm="export default {}")
    bundle, metadata = shown._repr_mimebundle_()
    assert enabled == [True]
    assert {"text/plain", "application/vnd.jupyter.widget-view+json"} <= set(bundle)
    assert "manager.js" in str(metadata["application/vnd.jupyter.widget-view+json"]["colab"])
    lab.disable()


ROOT = Path(__file__).parents[2]


def test_the_categories_of_memory_have_one_order() -> None:
    source = ROOT / "labextension/src/views/series.ts"
    listed = re.search(r"CATEGORIES = \[(.*?)\]", source.read_text(encoding="utf-8"), re.DOTALL)
    assert listed is not None
    assert tuple(re.findall(r"\w+", listed[1])) == NAMES


@pytest.mark.parametrize("sheet", ["fakegpu_lab/notebook/panel.css", "labextension/style/views.css"])
def test_the_categories_of_memory_have_one_colour_each(sheet: str) -> None:
    text = (ROOT / sheet).read_text(encoding="utf-8")
    first = {
        name.replace("-", "_"): colour for name, colour in reversed(re.findall(r"--(?:fg-)?([\w-]+): (#\w+);", text))
    }
    assert {name: first[name] for name in NAMES} == COLOURS
