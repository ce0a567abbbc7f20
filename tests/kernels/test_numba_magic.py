"""``%%kernel``: the cards of the kernels that a cell launches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import fakegpu_lab as lab

pytest.importorskip("numba", reason="the extra `numba` is not installed")
pytest.importorskip("greenlet", reason="the extra `numba` is not installed")

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell

KERNEL = """
import torch
from numba import cuda

@cuda.jit
def double(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = 2 * x[i]
"""


@pytest.fixture
def shell(ipython: InteractiveShell) -> Iterator[InteractiveShell]:
    ipython.run_line_magic("load_ext", "fakegpu_lab")
    ipython.run_line_magic("fakegpu", "a100")
    ipython.run_cell(KERNEL)
    yield ipython
    ipython.run_line_magic("unload_ext", "fakegpu_lab")
    lab.disable()


def test_a_cell_shows_a_card_for_its_kernel(shell, capsys):
    shell.run_cell_magic("kernel", "", "double[4, 256](torch.ones(1000, device='cuda'))")
    said = capsys.readouterr()
    assert not said.err
    assert said.out.startswith("double: 4 blocks of 256 threads, ")
    assert "x[i] = 2 * x[i]" in said.out
    assert "touches 4 sectors of 32 bytes: 100% of what is moved was requested." in said.out


def test_a_cell_without_a_kernel_says_so(shell, capsys):
    shell.run_cell_magic("kernel", "", "torch.ones(4, device='cuda') + 1")
    assert "This cell launched no kernel of its own" in capsys.readouterr().out
    shell.run_cell_magic("kernel", "triple", "double[1, 32](torch.ones(4, device='cuda'))")
    assert "No kernel triple was launched in this cell; its own kernels: double." in capsys.readouterr().out
