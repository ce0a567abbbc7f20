"""A class at work on one machine: what each student's kernel takes, and how long their cells do.

    python benchmarks/classroom.py [--students 1 10 40] [--pause SECONDS] [--lessons 01 02 03] [--json FILE]

Each student has a kernel of their own, as on a hub, and runs the cells of the lessons with the solutions written in.
Between two cells they read and write: pauses are drawn from an exponential distribution with the mean `--pause`, the
same for each run. Everyone begins within ten seconds, as in a room. Memory is the kernel's proportional set size with
its children: pages that several kernels share, such as torch's code, count in parts. JupyterLab's own server is not in
it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import psutil
from jupyter_client.manager import start_new_kernel

LESSONS = Path(__file__).resolve().parents[1] / "lessons" / "source"
START = 10.0
"""Seconds within which everyone opens the notebook."""


@dataclass
class Student:
    """What one student saw."""

    first: float = 0.0
    seconds: list[float] = field(default_factory=list)
    peak: int = 0
    failed: str = ""


def cells(names: list[str]) -> list[str]:
    """The code cells of the lessons, with the solutions, and without those that are meant to fail."""
    found = []
    for name in names:
        (path,) = LESSONS.glob(f"{name}*/*.ipynb")
        for cell in nbformat.read(path, 4).cells:
            expected = "raises-exception" in cell.metadata.get("tags", [])
            if cell.cell_type == "code" and not expected and cell.source.strip():
                found.append(cell.source)
    return found


def held(process: psutil.Process) -> int:
    """Bytes of a kernel and its children, shared pages in parts."""
    total = 0
    for one in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            total += one.memory_full_info().pss
    return total


def work(student: Student, todo: list[str], pause: float, seed: int) -> None:
    """Run all cells in a kernel of one's own."""
    chance = random.Random(seed)
    time.sleep(chance.uniform(0, START))
    began = time.perf_counter()
    environment = os.environ | {"FAKEGPU_LAB_PROGRESS": "off", "OMP_NUM_THREADS": "1"}
    manager, client = start_new_kernel(kernel_name="python3", env=environment)
    try:
        process = psutil.Process(manager.provisioner.pid)
        for source in todo:
            before = time.perf_counter()
            reply = client.execute_interactive(source, timeout=600, output_hook=lambda message: None)
            student.seconds.append(time.perf_counter() - before)
            student.first = student.first or time.perf_counter() - began
            student.peak = max(student.peak, held(process))
            if reply["content"]["status"] != "ok":
                student.failed = f"{reply['content'].get('ename')}: {source[:60]!r}"
            time.sleep(chance.expovariate(1 / pause))
    except Exception as error:
        student.failed = f"{type(error).__name__}: {error}"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def classroom(number: int, todo: list[str], pause: float) -> dict[str, Any]:
    """Let `number` students work, and sum up."""
    students = [Student() for _ in range(number)]
    threads = [threading.Thread(target=work, args=(one, todo, pause, i)) for i, one in enumerate(students)]
    least = psutil.virtual_memory().available
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        least = min(least, psutil.virtual_memory().available)
        time.sleep(0.5)
    seconds = sorted(second for one in students for second in one.seconds)
    return {
        "students": number,
        "MiB each": statistics.mean(one.peak for one in students) / 2**20,
        "first result, s": statistics.median(one.first for one in students),
        "cell, median ms": statistics.median(seconds) * 1e3,
        "cell, 95th ms": seconds[int(0.95 * (len(seconds) - 1))] * 1e3,
        "least memory left, GiB": least / 2**30,
        "failed": [one.failed for one in students if one.failed],
    }


def main() -> int:
    """Measure, and print the table; 1 if a cell failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--students", type=int, nargs="+", default=[1, 10, 40])
    parser.add_argument("--pause", type=float, default=10.0, help="the mean pause between two cells, in seconds")
    parser.add_argument("--lessons", nargs="+", default=["01", "02", "03"])
    parser.add_argument("--cells", type=int, help="only so many of the cells")
    parser.add_argument("--json", metavar="FILE")
    asked = parser.parse_args()
    todo = cells(asked.lessons)[: asked.cells]
    print(f"{len(todo)} cells of {', '.join(asked.lessons)}; {os.cpu_count()} processors, pauses of {asked.pause:g} s")
    rows: list[dict[str, Any]] = []
    for number in asked.students:
        rows.append(classroom(number, todo, asked.pause))
        if len(rows) == 1:
            print("  ".join(f"{name:>22}" for name in rows[0] if name != "failed"))
        print("  ".join(f"{value:22,.1f}" for name, value in rows[-1].items() if name != "failed"), flush=True)
        for failed in rows[-1]["failed"][:3]:
            print(f"    failed: {failed}")
    if asked.json:
        Path(asked.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return int(any(row["failed"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
