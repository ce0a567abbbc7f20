"""A class at work on one machine: what each student's kernel takes, and how long their cells do.

    python benchmarks/classroom.py [--students 1 10 40] [--pause SECONDS] [--lessons 01 02 03] [--json FILE]
    python benchmarks/classroom.py --quick       # one student and two, the first cells of lesson 01: a minute

Each student has a kernel of their own, as on a hub, and runs the cells of the lessons with the solutions written in.
Between two cells they read and write: pauses are drawn from an exponential distribution with the mean `--pause`, the
same for each run. Everyone begins within ten seconds, as in a room. The table is Markdown, for docs/hub.md.

A student's memory is the most that was found after a cell, of the kernel and its children: what nobody else has (their
unique set size), and with shared pages, such as torch's code, in parts (proportional set size). What the whole class
takes is the drop of the computer's available memory, so nothing else should run. JupyterLab's own server is not in it,
and is added below the table. First results are counted from the start of the kernel.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
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
SERVER = 110 / 1024
"""GiB of one student's JupyterLab 4.6, with nbgrader's extensions, after it has shown its page."""


@dataclass
class Student:
    """What one student saw."""

    first: float = 0.0
    seconds: list[float] = field(default_factory=list)
    own: int = 0
    part: int = 0
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


def held(process: psutil.Process) -> tuple[int, int]:
    """Bytes of a kernel and its children: their own, and with shared pages in parts."""
    own = part = 0
    for one in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            found = one.memory_full_info()
            own, part = own + found.uss, part + found.pss
    return own, part


def work(student: Student, todo: list[str], pause: float, seed: int) -> None:
    """Run all cells in a kernel of one's own."""
    chance = random.Random(seed)
    time.sleep(chance.uniform(0, START))
    began = time.perf_counter()
    hub = {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": str(4 * 2**20)}  # as docs/hub/jupyterhub_config.py
    environment = os.environ | hub | {"FAKEGPU_LAB_PROGRESS": "off"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    manager, client = start_new_kernel(kernel_name="python3", env=environment, **quiet)
    try:
        process = psutil.Process(manager.provisioner.pid)
        for source in todo:
            before = time.perf_counter()
            reply = client.execute_interactive(source, timeout=600, output_hook=lambda message: None)
            student.seconds.append(time.perf_counter() - before)
            student.first = student.first or time.perf_counter() - began
            own, part = held(process)
            student.own, student.part = max(student.own, own), max(student.part, part)
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
    before = least = psutil.virtual_memory().available
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        least = min(least, psutil.virtual_memory().available)
        time.sleep(0.5)
    seconds = sorted(second for one in students for second in one.seconds)
    return {
        "students": number,
        "own, MiB": statistics.mean(one.own for one in students) / 2**20,
        "part, MiB": statistics.mean(one.part for one in students) / 2**20,
        "all, GiB": (before - least) / 2**30,
        "left, GiB": least / 2**30,
        "first, s": statistics.median(one.first for one in students),
        "half, ms": statistics.median(seconds) * 1e3,
        "95 %, ms": seconds[int(0.95 * (len(seconds) - 1))] * 1e3,
        "failed": [one.failed for one in students if one.failed],
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The table of docs/hub.md."""
    heads = ("Students", "Memory of their own, each", "All of them take", "First result after",
             "Half of all cells within", "95 % within", "… of the first row's")  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", f"|{' ---: |' * len(heads)}"]
    for row in rows:
        cells = (f"{row['students']}", f"{row['own, MiB']:.0f} MiB", f"{row['all, GiB']:.1f} GiB",
                 f"{row['first, s']:.1f} s", f"{row['half, ms']:.0f} ms", f"{row['95 %, ms'] / 1e3:.1f} s",
                 f"{row['95 %, ms'] / rows[0]['95 %, ms']:.1f} ×")  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def worth(row: dict[str, Any]) -> str:
    """What a GiB of a server is good for: as if everyone held at once the most that they ever hold."""
    each = row["own, MiB"] / 1024 + SERVER
    server = f"With {SERVER * 1024:.0f} MiB for each student's JupyterLab"
    return f"{server}, a GiB is good for {1 / each:.1f} students at work."


def main() -> int:
    """Measure, and print the table; 1 if a cell failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--students", type=int, nargs="+", default=[1, 10, 40])
    parser.add_argument("--pause", type=float, default=10.0, help="the mean pause between two cells, in seconds")
    parser.add_argument("--lessons", nargs="+", default=["01", "02", "03"])
    parser.add_argument("--cells", type=int, help="only so many of the cells")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="one student and two, 20 cells, short pauses")
    asked = parser.parse_args()
    if asked.quick:
        asked.students, asked.pause, asked.lessons, asked.cells = [1, 2], 0.5, ["01"], 20
    todo = cells(asked.lessons)[: asked.cells]
    print(f"{len(todo)} cells of {', '.join(asked.lessons)}; {os.cpu_count()} processors, pauses of {asked.pause:g} s")
    rows: list[dict[str, Any]] = []
    for number in asked.students:
        rows.append(classroom(number, todo, asked.pause))
        print(", ".join(f"{name} {value:,.1f}" for name, value in rows[-1].items() if name != "failed"), flush=True)
        for failed in rows[-1]["failed"][:3]:
            print(f"    failed: {failed}")
    print(f"\n{table(rows)}\n\n{worth(rows[-1])}")
    if asked.json:
        Path(asked.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return int(any(row["failed"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
