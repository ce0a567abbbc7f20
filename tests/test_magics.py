"""``%fakegpu``, in IPython without a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from IPython.core.error import UsageError

import fakegpu_lab as lab
from fakegpu_lab import session
from fakegpu_lab.formatting.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell


@pytest.fixture
def shell(ipython: InteractiveShell) -> Iterator[InteractiveShell]:
    """IPython with the extension loaded, as ``%load_ext fakegpu_lab`` does it."""
    ipython.run_line_magic("load_ext", "fakegpu_lab")
    yield ipython
    ipython.run_line_magic("unload_ext", "fakegpu_lab")
    lab.disable()


def fakegpu(shell: InteractiveShell, line: str) -> Table | None:
    return shell.run_line_magic("fakegpu", line)


def test_a_spec_enables_the_gpus_and_shows_them(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    shown = fakegpu(shell, "a100:1, t4:2 --memory 2GiB")
    assert torch.cuda.device_count() == 3
    assert isinstance(shown, Table)
    assert "cuda:2  Tesla T4               2.00 GiB" in str(shown)
    assert '<td style="text-align: left">Tesla T4</td>' in shown._repr_html_()
    assert capsys.readouterr().err == ""


def test_without_arguments_it_shows_what_happened(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    assert fakegpu(shell, "") is None
    assert capsys.readouterr().out == "No simulated GPU is enabled; %fakegpu a100 enables one.\n"
    fakegpu(shell, "a100")
    kept = torch.ones(2**20).to("cuda")
    shown = fakegpu(shell, "")
    assert isinstance(shown, Table)
    assert shown.title == "a100: 1 simulated GPU"
    (row,) = shown.rows
    cells = dict(zip(shown.headers, row, strict=True))
    assert cells["allocated"] == "4.00 MiB"
    assert cells["H2D"] == "1 (4.00 MiB)"
    assert str(fakegpu(shell, "")) == str(shown), "the same state is shown in the same words"
    del kept


def test_a_cells_clock_can_be_simulated(shell: InteractiveShell) -> None:
    shell.run_cell("from time import perf_counter")
    fakegpu(shell, "a100 --clock simulated")
    shell.run_cell("import time\nimport fakegpu_lab as lab\nbegan = time.time(), perf_counter()\nlab.host_work(60)")
    shell.run_cell("took = time.time() - began[0], perf_counter() - began[1]")
    assert shell.user_ns["took"] == pytest.approx((60, 60), abs=1e-4)
    lab.disable()
    shell.run_cell("took = perf_counter() - time.perf_counter()")
    assert abs(shell.user_ns["took"]) < 1
    with pytest.raises(UsageError, match="--clock and --host go with the GPUs to enable"):
        fakegpu(shell, "off --clock simulated")


@pytest.mark.parametrize("magic", ["fakegpu", "gpuprofile", "ranks", "lesson", "progress", "share"])
def test_an_unclosed_quotation_mark_is_one_sentence(shell: InteractiveShell, magic: str) -> None:
    cell = ("1",) if magic in ("gpuprofile", "ranks") else ()
    run = shell.run_cell_magic if cell else shell.run_line_magic
    with pytest.raises(UsageError, match="is opened and not closed in a100 'unclosed: close it, or leave it out"):
        run(magic, "a100 'unclosed", *cell)


def test_meta_is_said(shell: InteractiveShell) -> None:
    assert "shapes and memory only" in str(fakegpu(shell, "a100 --compute meta"))
    assert lab.machine().compute == "meta"


def test_reset_and_off(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    fakegpu(shell, "a100:2")
    machine = lab.machine()
    assert "2 simulated GPUs" in str(fakegpu(shell, "reset"))
    assert lab.machine() is not machine
    assert fakegpu(shell, "off") is None
    assert not session.enabled()
    assert not torch.cuda.is_available()
    assert capsys.readouterr().out == "The simulated GPUs are off.\n"


def test_profiles_lists_the_catalogue(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    assert fakegpu(shell, "profiles dgx a100") is None
    said = capsys.readouterr()
    assert "NVIDIA DGX A100" in said.out
    assert said.err == ""


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("a1o0", "the nearest of"),
        ("a100:0", "asks for 0 devices"),
        ("a100:10000", "asks for 10,000 devices"),
        ("no.yaml", "There is no file no.yaml"),
        ("a100 --memory -2GiB", "expected one argument"),
        ("a100 --memory=-2GiB", "is not above zero bytes"),
        ("a100 --compute quantum", "invalid choice"),
        ("--memory 2GiB", "go with the GPUs to enable"),
        ("off --memory 2GiB", "go with the GPUs to enable"),
        ("off now", "takes no arguments"),
        ("reset", "No simulated GPU is enabled"),
        ("profiles h1oo", "No GPU or node is called 'h1oo'"),
        ("a101", "the nearest of .* are 'a100', "),
        ("smi", r"Did you mean !nvidia-smi\?"),
        ("ranks 4", r"Did you mean %%ranks\?"),
        ("rest", r"Did you mean %fakegpu reset\?"),
    ],
)
def test_bad_input_is_one_sentence_without_a_traceback(shell: InteractiveShell, line: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as caught:
        fakegpu(shell, line)
    assert len(str(caught.value).splitlines()) == 1
    assert not session.enabled()


def test_it_documents_itself(shell: InteractiveShell) -> None:
    text = shell.object_inspect("%fakegpu")["docstring"]
    assert "%fakegpu [--memory SIZE] [--compute {real,meta}]" in text
    assert "%fakegpu profiles h100" in text


@pytest.mark.filterwarnings("ignore:.*pending deprecation:PendingDeprecationWarning")
def test_tab_offers_names(shell: InteractiveShell) -> None:
    assert shell.complete("dgx-h", "%fakegpu dgx-h", 14)[1] == ["dgx-h100", "dgx-h200"]


def test_reloading_loses_nothing(ipython: InteractiveShell) -> None:
    ipython.run_line_magic("load_ext", "fakegpu_lab")
    try:
        fakegpu(ipython, "t4")
        machine = lab.machine()
        ipython.run_line_magic("unload_ext", "fakegpu_lab")
        assert "fakegpu" not in ipython.magics_manager.magics["line"]
        ipython.run_line_magic("load_ext", "fakegpu_lab")
        assert lab.machine() is machine
    finally:
        lab.disable()


def test_a_mistyped_word_is_guessed(shell: InteractiveShell) -> None:
    with pytest.raises(UsageError, match=r"Did you mean %fakegpu reset\?"):
        fakegpu(shell, "rset")


def test_reset_cures_a_device_side_assert_and_says_so(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    fakegpu(shell, "a100")
    fakegpu(shell, "reset")
    assert capsys.readouterr().out == ""
    x = torch.ones(3, device="cuda")
    x[torch.tensor([7], device="cuda")]
    with pytest.raises(torch.AcceleratorError):
        x.tolist()
    fakegpu(shell, "reset")
    assert "The error of the failed kernel is gone" in capsys.readouterr().out
    assert torch.ones(3, device="cuda").tolist() == [1, 1, 1]
