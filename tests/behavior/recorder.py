"""Records the parts in the process that it runs in: the package is the one that this process imports.

A case that changes torch's own state (flags, streams, generators) restores it; a machine is new for each.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import fakegpu_lab as lab
from tests.behavior.cases import CASES, Case
from tests.behavior.observed import Machines, observed, stable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Found = tuple[str, dict[str, Any]]

PROBE = """import json as _json, fakegpu_lab as _lab
try:
    print(_json.dumps(_lab.snapshot().model_dump(mode="json"), indent=1))
except _lab.FakeGpuError as _error:
    print(_error)"""
"""A cell that shows the machine's state."""

VERSION = {"torch": {"version": torch.__version__.partition("+")[0]}}

TREE = Path(lab.__file__).parents[1]
"""The checkout that is recorded."""


def recorded(parts: list[str], only: str) -> dict[str, Any]:
    """All cases of the parts whose name contains `only`."""
    found: dict[str, Any] = dict(VERSION)
    for part in parts:
        found.update(PARTS[part](only))
    return found


def of_cases(only: str) -> Iterator[Found]:
    """The cases written by hand."""
    return of_these(case for case in CASES if only in case.name)


def of_the_suite() -> dict[str, Any]:
    """The few cases that the test suite compares: values only where they are the same on every computer.

    Warnings are left out: C++ gives many of them once in a process, in which other tests run, too.
    """
    found = dict(of_these((case for case in CASES if case.in_the_suite), only_exact_values=True))
    return VERSION | {name: {**case, "warnings": []} for name, case in found.items()}


def of_these(cases: Iterable[Case], *, only_exact_values: bool = False) -> Iterator[Found]:
    machines = Machines()
    for case in cases:
        machines.prepare(case.spec, case.memory)
        yield case.name, observed(case.run, with_values=case.exact or not only_exact_values)
        _gather()


def of_operators(only: str) -> Iterator[Found]:
    """Torch's operator database."""
    from tests.behavior import operators

    machines = Machines()
    for name, prepare, with_values in operators.cases():
        if only not in f"operators/{name}":
            continue
        machines.prepare("a100:2")
        try:
            run = prepare()
        except Exception as error:
            yield f"operators/{name}", {"error": f"before: {type(error).__name__}: {stable(str(error))}"}
            continue
        yield f"operators/{name}", observed(run, with_values=with_values)
        del run
        _gather()


def _gather() -> None:
    """Free what stands in cycles before the next case; what torch itself keeps is left alone."""
    gc.collect()
    gc.freeze()


def of_lessons(only: str) -> Iterator[Found]:
    """The lessons' notebooks with their solutions: what each cell showed, and the machine after it."""
    import nbformat
    from nbclient import NotebookClient

    for path in sorted((TREE / "lessons" / "source").glob("*/*.ipynb")):
        if only not in f"lessons/{path.stem}":
            continue
        notebook = nbformat.read(path, as_version=4)
        cells = []
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cells += [cell, nbformat.v4.new_code_cell(PROBE)]
        notebook.cells = cells
        with tempfile.TemporaryDirectory() as folder:
            client = NotebookClient(
                notebook,
                timeout=600,
                kernel_name="python3",
                allow_errors=True,
                resources={"metadata": {"path": folder}},
            )
            client.execute()
        for number, cell in enumerate(notebook.cells):
            shown = [stable(text) for text in texts(cell)]
            yield f"lessons/{path.stem} {number // 2:02} {'state' if number % 2 else 'shows'}", {"results": shown}


def texts(cell: Any) -> Iterator[str]:
    """What a cell showed, as text."""
    for output in cell.outputs:
        if output.output_type == "stream":
            yield from output.text.splitlines()
        elif output.output_type == "error":
            yield f"{output.ename}: {output.evalue}"
        else:
            data = output.data
            yield str(data.get("text/plain", sorted(data)))


def of_programs(only: str) -> Iterator[Found]:
    """Our own programs: what they print, and the report of their run."""
    programs = TREE / "tests" / "programs"
    for name, options, arguments in (
        ("devices", ["-d", "a100:2"], []),
        ("regression", ["-d", "a100"], []),
        ("convolution", ["-d", "t4"], []),
        ("gpt_8b", ["-d", "a100", "--compute", "meta"], []),
        ("ddp", ["-d", "a100:2"], ["torchrun", "--standalone", "--nproc_per_node=2"]),
        ("sharded", ["-d", "a100:2"], ["torchrun", "--standalone", "--nproc_per_node=2"]),
    ):
        if only not in f"programs/{name}":
            continue
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            command = [sys.executable, "-m", "fakegpu_lab", "run", "--quiet", "--clock", "simulated", *options]
            command += ["--report", str(report), *arguments, str(programs / f"{name}.py")]
            ran = subprocess.run(
                command, capture_output=True, text=True, check=False, cwd=folder, timeout=900, env=os.environ
            )
            lines = [f"exit status {ran.returncode}", *sorted(map(stable, ran.stdout.splitlines()))]
            if report.is_file():
                lines += json.dumps(json.loads(report.read_text()), indent=1, sort_keys=True).splitlines()
        yield f"programs/{name}", {"results": [stable(line) for line in lines]}


PARTS: dict[str, Callable[[str], Iterator[Found]]] = {
    "cases": of_cases,
    "operators": of_operators,
    "lessons": of_lessons,
    "programs": of_programs,
}
