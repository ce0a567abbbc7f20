"""Runs files of PyTorch's tests one after the other, each in processes of its own, and keeps a log for each."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from tests.upstream import files, log

REPOSITORY = Path(__file__).parents[2]
START_UP = 240
"""Seconds that a file may take to import."""
GRACE = 40
"""Seconds between a test's alarm and the end of its process."""


def run(
    tree: Path, results: Path, only: tuple[str, ...], sample: int = 0, minutes: float = 0, *, again: bool = False
) -> None:
    """Run the chosen files; what a log already has is not run again."""
    results.mkdir(parents=True, exist_ok=True)
    for name, group in files.found(tree, only).items():
        path = log_of(results, name)
        if again:
            forget_failures(path)
        print(f"{name} …", end=" ", flush=True)
        started = time.monotonic()
        run_file(tree, name, path, [*arguments(group), "--sample", str(sample)], group.timeout, minutes)
        twins(tree, name, results, group)
        found = log.read(path)
        counts = {s: sum(o["status"] == s for o in found.outcomes.values()) for s in ("passed", "failed", "skipped")}
        said = found.unloadable.strip().splitlines()[-1:] or [str(counts)]
        print(*said, f"{time.monotonic() - started:.0f} s", flush=True)


def run_some(tree: Path, tests: tuple[str, ...]) -> None:
    """Run single tests, each given as ``file.py::Class::test``, and print what they say."""
    wanted: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        name, _, inside = test.partition("::")
        wanted[name].append(inside)
    with tempfile.TemporaryDirectory() as folder:
        for name, inside in wanted.items():
            path, ids, group = log_of(Path(folder), name), Path(folder, "ids"), files.found(tree, (name,))[name]
            ids.write_text("\n".join(inside))
            run_file(tree, name, path, [*arguments(group), "--ids", str(ids)], group.timeout)
            found = log.read(path)
            print(found.unloadable or path.with_suffix(".out").read_text(errors="replace"))
            for test, outcome in found.outcomes.items():
                print(f"{name}::{test} {outcome['status']} in {outcome['seconds']} s", outcome["detail"], sep="\n")


def arguments(group: files.Group) -> list[str]:
    """How a worker is to run the tests of a group."""
    flags = ["--every-test"] * group.every_test + ["--fork-server"] * group.processes
    return ["--machine", group.machine, "--timeout", str(group.timeout), *flags]


def forget_failures(path: Path) -> None:
    """Mark the failed tests of a log as not run."""
    failed = [test for test, outcome in log.read(path).outcomes.items() if outcome["status"] == "failed"]
    if failed:
        with path.open("a", encoding="utf-8") as file:
            for test in failed:
                log.Writer(file).write(forget=test)


def log_of(results: Path, name: str) -> Path:
    """Where the outcomes of a file are."""
    return results / (name.removesuffix(".py").replace("/", "-") + ".jsonl")


def twin_log_of(results: Path, name: str) -> Path:
    """Where the outcomes of its CPU variants are."""
    return log_of(results, name).with_suffix(".cpu")


def run_file(tree: Path, name: str, path: Path, arguments: list[str], timeout: float, minutes: float = 0) -> None:
    """Start workers until every test has an outcome, or the minutes are over."""
    until = time.monotonic() + minutes * 60 if minutes else float("inf")
    while time.monotonic() < until:
        before = len(log.read(path).outcomes)
        size = path.stat().st_size if path.exists() else 0
        command = [sys.executable, "-m", "tests.upstream.worker", str(tree), name, str(path), *arguments]
        with path.with_suffix(".out").open("ab") as out:
            process = subprocess.Popen(
                command, cwd=REPOSITORY, env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip
            killed = watch(process, path, timeout, until)
        with contextlib.suppress(ProcessLookupError):  # processes that a test has left behind
            os.killpg(process.pid, signal.SIGKILL)
        if killed == "minutes":
            return
        found = log.read(path)
        if found.running:
            timed_out = found.alarm or bool(killed)
            code = process.returncode
            died = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            detail = "Took too long" if timed_out else f"Crash: the process ended with {died}"
            with path.open("a", encoding="utf-8") as file:
                log.Writer(file).write(
                    id=found.running, status="failed", seconds=timeout if timed_out else 0,
                    detail=f"{detail}\n{tail(path.with_suffix('.out'))}",
                )  # fmt: skip
        elif found.unloadable or '"end": true' in text_after(path, size):
            return
        elif len(found.outcomes) == before:  # it died before its first test
            with path.open("a", encoding="utf-8") as file:
                log.Writer(file).write(unloadable=f"Crash at import\n{tail(path.with_suffix('.out'))}")
            return


def watch(process: subprocess.Popen[bytes], path: Path, timeout: float, until: float) -> str:
    """Wait for a worker. Returns why it was killed, if it was."""
    size, since = -1, time.monotonic()
    while process.poll() is None:
        time.sleep(0.3)
        now = time.monotonic()
        if path.exists() and path.stat().st_size != size:
            size, since = path.stat().st_size, now
        limit = timeout + GRACE if log.read_last(path).get("start") or log.read_last(path).get("alarm") else START_UP
        reason = "minutes" if now > until else "time" if now - since > limit else ""
        if reason:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return reason
    return ""


def text_after(path: Path, size: int) -> str:
    """What a process has added to a log."""
    with path.open("rb") as file:
        file.seek(size)
        return file.read().decode()


def tail(path: Path, lines: int = 25) -> str:
    """The end of a file."""
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def environment() -> dict[str, str]:
    """The worker's environment: this package, one thread, no machine yet."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FAKEGPU_LAB")}
    path = os.pathsep.join(filter(None, [str(REPOSITORY), kept.get("PYTHONPATH", "")]))
    return {**kept, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTORCH_PRINT_REPRO_ON_FAILURE": "0", "CI": ""}


def twins(tree: Path, name: str, results: Path, group: files.Group) -> None:
    """Run the CPU variants of the tests that failed, without a machine: some fail because of the tree alone."""
    found = log.read(log_of(results, name))
    path = twin_log_of(results, name)
    done = log.read(path).outcomes
    wanted = {twin(test) for test, outcome in found.outcomes.items() if outcome["status"] == "failed"} - set(done)
    if found.unloadable and not log.read(path).unloadable:
        wanted = {"none"}
    if not wanted:
        return
    ids = path.with_suffix(".ids")
    ids.write_text("\n".join(sorted(wanted)))
    run_file(tree, name, path, ["--timeout", str(group.timeout), "--ids", str(ids)], group.timeout)
    ids.unlink()


def twin(test: str) -> str:
    """The CPU variant of a test; itself if it has no variants."""
    cls, name = test.split("::")
    if not cls.endswith("CUDA"):
        return test
    variant = re.sub(r"^(.*)_cuda(?=_|$)", r"\1_cpu", name)
    return f"{cls.removesuffix('CUDA')}CPU::{variant}"
