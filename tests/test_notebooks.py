"""The bundled notebooks, and programs as notebook cells. (That the notebooks run, nbval checks.)"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from nbclient import NotebookClient

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "lessons" / "source").glob("*/*.ipynb"))
PROGRAMS = ROOT / "tests" / "programs"


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request: pytest.FixtureRequest) -> Any:
    return nbformat.read(request.param, as_version=4)


def outputs(notebook: Any) -> Iterator[Any]:
    for cell in notebook.cells:
        if cell.cell_type == "code":
            yield from cell.outputs


def text(cell: Any) -> str:
    """What a cell printed."""
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def test_notebooks_are_valid_and_clean(notebook: Any) -> None:
    """Without outputs and widget state, and with ids that stay: a change of a lesson reads as one."""
    nbformat.validate(notebook)
    assert list(outputs(notebook)) == []
    assert [cell.execution_count for cell in notebook.cells if cell.cell_type == "code" and cell.execution_count] == []
    assert set(notebook.metadata) <= {"kernelspec", "language_info"}
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)


def test_programs_run_as_notebook_cells_and_train_as_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAKEGPU_LAB_MACHINE", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    programs = [(PROGRAMS / f"{name}.py").read_text() for name in ("convolution", "devices", "regression")]
    cells = [*programs, "%load_ext fakegpu_lab\n%fakegpu a100:2", *programs, "%fakegpu off"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    assert [output for output in outputs(notebook) if output.get("name") == "stderr"] == []
    for on_cpu, on_gpu in zip(notebook.cells[: len(programs)], notebook.cells[len(programs) + 1 : -1], strict=True):
        assert "cuda" not in text(on_cpu)
        assert "cuda" in text(on_gpu)
        assert losses(text(on_gpu)) == losses(text(on_cpu))


def losses(said: str) -> list[str]:
    """The lines with losses, without the devices at their ends."""
    return [re.sub(r" (cpu|cuda:\d)$", "", line) for line in said.splitlines() if line.startswith("loss:")]
