"""Starts the workers: one for each machine, and one without a machine for the CPU variants of what failed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from tests.upstream import files, log

REPOSITORY = Path(__file__).parents[2]


def run(
    tree: Path,
    results: Path,
    only: tuple[str, ...],
    sample: int = 0,
    minutes: float = 0,
    timeout: float = 0,
    *,
    again: bool = False,
    twins: bool = True,
    seed: int = 0,
    draw: int = 0,
) -> None:
    """Run the chosen files; what a log already has is not run again."""
    (results / "cpu").mkdir(parents=True, exist_ok=True)
    by_machine: dict[str, list[str]] = defaultdict(list)
    found = files.found(tree, only)
    for name in files.drawn(list(found), draw, seed) if draw else found:
        by_machine[found[name].machine].append(name)
        if again:
            forget_failures(log.path_of(results, name))
    for machine, names in by_machine.items():
        limits = ["--sample", str(sample), "--minutes", str(minutes), "--timeout", str(timeout)]
        limits += ["--seed", str(seed)]
        work(tree, results, names, "--machine", machine, *limits, *["--again"] * again)
        if twins:
            run_twins(tree, results, names)


def run_some(tree: Path, tests: tuple[str, ...]) -> None:
    """Run single tests, each given as ``file.py::Class::test``, and print what they say."""
    wanted: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        name, _, inside = test.partition("::")
        wanted[name].append(inside)
    with tempfile.TemporaryDirectory() as folder:
        for name, inside in wanted.items():
            path = log.path_of(Path(folder), name)
            path.with_suffix(".ids").write_text("\n".join(inside))
            work(tree, Path(folder), [name], "--machine", files.found(tree, (name,))[name].machine)
            found = log.read(path)
            print(found.unloadable or path.with_suffix(".out").read_text(errors="replace"))
            for test, outcome in found.outcomes.items():
                print(f"{name}::{test} {outcome['status']} in {outcome['seconds']} s", outcome["detail"], sep="\n")


def work(tree: Path, results: Path, names: list[str], *options: str) -> None:
    """Let a worker run files."""
    command = [sys.executable, "-m", "tests.upstream.worker", str(tree), str(results), *names, *options]
    subprocess.run(command, cwd=REPOSITORY, env=environment(), stdin=subprocess.DEVNULL, check=False)


def environment() -> dict[str, str]:
    """The worker's environment: this package, one thread, no machine yet."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FAKEGPU_LAB")}
    path = os.pathsep.join(filter(None, [str(REPOSITORY), kept.get("PYTHONPATH", "")]))
    return {**kept, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTORCH_PRINT_REPRO_ON_FAILURE": "0", "CI": ""}


def run_twins(tree: Path, results: Path, names: list[str]) -> None:
    """Run the CPU variants of the tests that failed, without a machine: some fail because of the tree alone."""
    with_twins = []
    for name in names:
        found, path = log.read(log.path_of(results, name)), log.path_of(results, name, on_cpu=True)
        on_cpu = log.read(path)
        failed = {twin(test) for test, outcome in found.outcomes.items() if outcome["status"] == "failed"}
        if failed - set(on_cpu.outcomes) or (found.unloadable and not on_cpu.unloadable):
            path.with_suffix(".ids").write_text("\n".join(sorted(failed)))
            with_twins.append(name)
    if with_twins:
        work(tree, results, with_twins)


def twin(test: str) -> str:
    """The CPU variant of a test; itself if it has no variants."""
    cls, name = test.split("::")
    variant = re.sub(r"^(.*)_cuda(?=_|$)", r"\1_cpu", name)
    if cls == "GPUTests":  # Inductor's
        return f"CpuTests::{variant}"
    return f"{cls.removesuffix('CUDA')}CPU::{variant}" if cls.endswith("CUDA") else test


def forget_failures(path: Path) -> None:
    """Mark the failed tests of a log as not run."""
    failed = [test for test, outcome in log.read(path).outcomes.items() if outcome["status"] in ("failed", "timeout")]
    if failed:
        with path.open("a", encoding="utf-8") as file:
            for test in failed:
                log.Writer(file).write(forget=test)
