"""Grade a class of 60: all rows right, two workers faster than one, a killed run resumed without loss.

    python benchmarks/grading.py            # all of it
    python benchmarks/grading.py --size 12  # fewer, for a look
    python benchmarks/grading.py --dask     # on a local cluster of two workers, too
    python benchmarks/grading.py --parts many --package ../before  # two workers, with the package of another checkout

The class is made here: two thirds right, partly right or wrong, the rest crashed, endless, hungry, empty, corrupt,
talkative, cheating, or with locked cells deleted, doubled and edited.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PACKAGE = ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import nbformat  # noqa: E402 - from here on, this checkout's own modules are found

from fakegpu_lab.course.lessons.release import released  # noqa: E402
from tests.course import graded_lesson as made  # noqa: E402
from tests.course.test_grading import HUNGRY, tampered  # noqa: E402

EXERCISE = "%%exercise move\n"
MOVES: dict[str, tuple[str, float]] = {  # an answer to the second exercise, and what it earns of 3
    "right": (made.RIGHT_MOVE, 3),
    "to": (EXERCISE + "def move(x):\n    return x.to(torch.device('cuda:0'))", 3),
    "stays": (EXERCISE + "def move(x):\n    return x", 2),
    "zeros": (EXERCISE + "def move(x):\n    return torch.zeros(4, device='cuda')", 1),
    "raises": (EXERCISE + "def move(x):\n    raise ValueError('no')", 0),
}
TROUBLE: dict[str, tuple[str, set[str], float]] = {  # answers that end badly, their statuses, what the move earns
    "exits": (EXERCISE + "import os; os._exit(3)", {"crashed"}, 0),
    "crashes": (EXERCISE + "import os, signal; os.abort()", {"crashed"}, 0),
    "endless": (EXERCISE + "def move(x):\n    while True: pass", {"timeout"}, 0),
    "sleeps": (EXERCISE + "import time\ntime.sleep(10000)", {"timeout"}, 0),
    "hungry": (HUNGRY, {"memory", "graded"}, 0),
    "talkative": (EXERCISE + "while True: print('x' * 10000)", {"output"}, 0),
    "forks": (EXERCISE + "import os\nwhile True: os.fork()", {"processes", "memory", "graded", "timeout"}, 0),
    "cheats": (EXERCISE + "torch.equal = lambda *a: True\ndef move(x): return x", {"graded"}, 2),
}


def write_class(folder: Path, size: int) -> dict[str, tuple[set[str], float]]:
    """Write the course and its submissions; return for each student the statuses that are right, and the points."""
    source = made.source()
    (folder / "source" / "two").mkdir(parents=True)
    nbformat.write(source, folder / "source" / "two" / "two.ipynb")
    starter = released(source)
    wanted: dict[str, tuple[set[str], float]] = {}

    def hand_in(name: str, raw: bytes, statuses: set[str], points: float) -> None:
        path = folder / "submitted" / name / "two" / "two.ipynb"
        path.parent.mkdir(parents=True)
        path.write_bytes(raw)
        wanted[name] = (statuses, points)

    odd: list[tuple[str, bytes, set[str], float]] = [
        (name, made.raw(made.submission(starter, move=answer)), statuses, 3 + points)
        for name, (answer, statuses, points) in TROUBLE.items()
    ]
    odd += [
        ("empty", b"", {"empty"}, 0),
        ("corrupt", made.raw(starter)[:500], {"unreadable"}, 0),
        ("starter", made.raw(starter), {"graded"}, 0),
        ("tampered", made.raw(tampered(starter)), {"graded"}, 6),
    ]
    for i in range(size):
        if i % 3 == 2:
            name, raw, statuses, points = odd[i // 3 % len(odd)]
            hand_in(f"{i:02}-{name}", raw, statuses, points)
        else:
            name, (answer, points) = list(MOVES.items())[i % len(MOVES)]
            hand_in(f"{i:02}-{name}", made.raw(made.submission(starter, move=answer)), {"graded"}, 3 + points)
    return wanted


def command(*options: str) -> list[str]:
    """``fakegpu-lab grade`` with the limits of this benchmark."""
    limits = ["--cell-seconds", "3", "--memory", "900MiB", "--processes", "24"]
    return [sys.executable, "-m", "fakegpu_lab", "grade", "--lesson", "two", "submitted", *limits, *options]


def grade(folder: Path, out: str, *options: str) -> float:
    """Grade, and return the seconds that it took."""
    began = time.perf_counter()
    subprocess.run(command("--out", out, *options), cwd=folder, env=environment(), check=True, capture_output=True)
    return time.perf_counter() - began


def environment() -> dict[str, str]:
    """Let the process find the modules of this checkout, or of the one that was asked for."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE), os.environ.get("PYTHONPATH", "")])}


def rows(path: Path) -> dict[str, dict[str, str]]:
    """Read a table by student."""
    with path.open(newline="", encoding="utf-8") as file:
        return {row["student_id"]: row for row in csv.DictReader(file)}


def wrong(table: dict[str, dict[str, str]], wanted: dict[str, tuple[set[str], float]]) -> list[str]:
    """Tell which rows are not as they should be."""
    found = [f"{name} has no row" for name in sorted(set(wanted) - set(table))]
    for name, row in table.items():
        statuses, points = wanted[name]
        if row["status"] not in statuses or float(row["score"]) != points:
            found.append(f"{name}: {row['status']} {row['score']} ({row['reason']}), not {statuses} {points}")
    return found


def killed_and_resumed(folder: Path, jobs: int) -> tuple[int, int]:
    """Kill a run in the middle; return how many submissions were done then, and how many runs it took in all."""
    run: Any = subprocess.Popen(
        command("--out", "killed.csv", "--jobs", str(jobs)),
        cwd=folder,
        env=environment(),
        stdout=subprocess.DEVNULL,
    )
    journal = folder / "killed.csv.journal"
    total = len(list((folder / "submitted").iterdir()))
    while run.poll() is None and (not journal.exists() or len(journal.read_text().splitlines()) < total // 3):
        time.sleep(0.1)
    run.send_signal(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
    run.wait()
    done = len(journal.read_text().splitlines())
    grade(folder, "killed.csv", "--jobs", str(jobs), "--resume")
    lines = [line for line in journal.read_text().splitlines() if line.startswith("{")]
    students = [json.loads(line)["outcome"]["student"] for line in lines[done:]]
    return done, done + len(students)


def main() -> None:
    """Do it, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--dask", action="store_true")
    parser.add_argument("--parts", nargs="*", choices=["one", "many", "killed"], default=["one", "many", "killed"])
    parser.add_argument("--package", type=Path, default=ROOT, help="the checkout whose grader is measured")
    asked = parser.parse_args()
    global PACKAGE
    PACKAGE = asked.package.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wanted = write_class(folder, asked.size)

        def done(what: str, seconds: float, table: str) -> None:
            print(f"{what}: {seconds:.1f} s, {seconds / asked.size:.2f} s a submission")
            faults = wrong(rows(folder / table), wanted)
            print("\n".join(faults) or f"all {asked.size} rows are right", flush=True)

        if "one" in asked.parts:
            done("1 worker", grade(folder, "one.csv"), "one.csv")
        if "many" in asked.parts:
            done(f"{asked.jobs} workers", grade(folder, "many.csv", "--jobs", str(asked.jobs)), "many.csv")
        if "killed" in asked.parts:
            began = time.perf_counter()
            before, all_ = killed_and_resumed(folder, asked.jobs)
            print(f"killed after {before} of {asked.size}, resumed: {all_ - before} more were graded")
            done("both runs", time.perf_counter() - began, "killed.csv")
        if asked.dask:
            from distributed import LocalCluster

            os.environ |= environment()  # the workers' own, too
            with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
                done("Dask, 2 workers", grade(folder, "dask.csv", "--dask", cluster.scheduler_address), "dask.csv")


if __name__ == "__main__":
    main()
