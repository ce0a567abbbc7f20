"""The command line: see the package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from tests.behavior import __doc__ as usage
from tests.behavior.comparing import differences
from tests.behavior.writing import RECORDED, text

ROOT = Path(__file__).parents[2]
PARTS = "cases,operators,lessons,programs"

IN_A_TREE = """
import sys
sys.path.insert(0, sys.argv[1])
import tests.behavior
del sys.path[0]
from tests.behavior import writing
writing.write(*sys.argv[2:])
"""
"""The cases come from this checkout, `fakegpu_lab` from the one in PYTHONPATH."""


@click.group(help=usage)
def main() -> None:
    pass


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--tree", type=click.Path(path_type=Path, exists=True), default=ROOT)
@click.option("--only", default="", help="Cases whose name contains this.")
@click.option("--parts", default=PARTS, show_default=True)
def record(file: Path, tree: Path, only: str, parts: str) -> None:
    """Record a checkout into FILE."""
    record_tree(tree, file, only, parts)


@main.command()
def renew() -> None:
    """Write again what the test suite compares with: tests/behavior/recorded.json."""
    from tests.behavior.recorder import of_the_suite

    RECORDED.write_text(text(of_the_suite()))


@main.command()
@click.argument("old", type=click.Path(path_type=Path, exists=True))
@click.argument("new", type=click.Path(path_type=Path, exists=True))
@click.option("--only", default="", help="Cases whose name contains this.")
@click.option("--parts", default=PARTS, show_default=True)
def compare(old: Path, new: Path, only: str, parts: str) -> None:
    """Print what differs, case by case; the exit status is 1 if anything does."""
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for number, which in enumerate((old, new)):
            file = which
            if which.is_dir():
                file = Path(folder) / f"{number}.json"
                record_tree(which, file, only, parts)
            found.append(read(file))
    lines, cases = [], 0
    for name, lines_of_case in differences(*found):
        if only in name and part_of(name) in parts.split(","):
            cases += 1
            lines += [name, *(f"    {line}" for line in lines_of_case)]
    click.echo("\n".join([*lines, f"{cases} cases differ"]))
    sys.exit(cases > 0)


def part_of(name: str) -> str:
    """The part that a case belongs to."""
    family = name.partition("/")[0]
    return family if family in PARTS.split(",") else "cases"


def record_tree(tree: Path, file: Path, only: str, parts: str) -> None:
    """Record a checkout in a process of its own, with one thread: the order of sums is always the same."""
    environment = os.environ | {"PYTHONPATH": str(tree.resolve()), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    environment |= {"FAKEGPU_LAB_PROGRESS": "off"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", IN_A_TREE, str(ROOT), str(file.resolve()), only, parts]
        subprocess.run(command, check=True, cwd=folder, env=environment)


def read(file: Path) -> dict[str, Any]:
    recording: dict[str, Any] = json.loads(file.read_text())
    return recording


if __name__ == "__main__":
    main()
