"""A class at work on one machine: what each student's kernel takes, and how long their cells do.

    python benchmarks/classroom.py [--students 1 10 40] [--pause SECONDS] [--lessons 01 02 03] [--json FILE]
    python benchmarks/classroom.py --quick       # one student and two, the first cells of lesson 01: a minute

Each student has a kernel of their own, as on a hub, and runs the cells of one lesson with the solutions written in: the
first student of the first lesson, the second of the second, and so on, again and again. Between two cells they read and
write: pauses are drawn from an exponential distribution with the mean `--pause`, the same for each run. Everyone begins
within ten seconds, as in a room. The table is Markdown, for docs/hub.md.

One student is the measure for the others: they work alone, through one lesson after the other, each in a new kernel.
Their pauses are a second at most, because there is nobody whom they could wait for.

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
import time
from concurrent.futures import ThreadPoolExecutor, wait
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


def cells(name: str) -> list[str]:
    """The code cells of a lesson, with the solutions, and without those that are meant to fail."""
    (path,) = LESSONS.glob(f"{name}*/*.ipynb")
    return [
        cell.source
        for cell in nbformat.read(path, 4).cells
        if cell.cell_type == "code" and cell.source.strip()
        if "raises-exception" not in cell.metadata.get("tags", [])
    ]


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


def classroom(number: int, lessons: list[list[str]], pause: float) -> dict[str, Any]:
    """Let `number` students work, and sum up."""
    alone = number == 1
    students = [Student() for _ in (lessons if alone else range(number))]
    before = least = psutil.virtual_memory().available
    with ThreadPoolExecutor(number) as room:
        working = [
            room.submit(work, one, lessons[i % len(lessons)], min(pause, 1) if alone else pause, i)
            for i, one in enumerate(students)
        ]
        while wait(working, 0.5).not_done:
            least = min(least, psutil.virtual_memory().available)
    seconds = sorted(second for one in students for second in one.seconds)
    return {
        "students": number,
        "own, MiB": round(statistics.mean(one.own for one in students) / 2**20),
        "own by lesson, MiB": [
            round(statistics.mean(one.own for one in students[i :: len(lessons)]) / 2**20)
            for i in range(min(len(lessons), len(students)))
        ],
        "part, MiB": round(statistics.mean(one.part for one in students) / 2**20),
        "all, GiB": round((before - least) / 2**30, 2),
        "left, GiB": round(least / 2**30, 2),
        "first, s": round(statistics.median(one.first for one in students), 2),
        "half, ms": round(statistics.median(seconds) * 1e3, 1),
        "95%, ms": round(seconds[int(0.95 * (len(seconds) - 1))] * 1e3),
        "longest, s": round(seconds[-1], 1),
        "cells, s": round(sum(seconds) / len(students), 1),
        "failed": [one.failed for one in students if one.failed],
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The table of docs/hub.md."""
    heads = ("Students", "Memory of their own, each", "Memory in all", "First result after",
             "Half of all cells within", "95% within", "… of the first row's")  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", f"|{' ---: |' * len(heads)}"]
    for row in rows:
        cells = (f"{row['students']}", f"{row['own, MiB']:.0f} MiB", f"{row['all, GiB']:.1f} GiB",
                 f"{row['first, s']:.1f} s", f"{row['half, ms']:.0f} ms", f"{row['95%, ms'] / 1e3:.1f} s",
                 f"{row['95%, ms'] / rows[0]['95%, ms']:.1f} ×")  # fmt: skip
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
    parser.add_argument("--json", metavar="FILE", help="where rows are kept: the table has those of earlier runs, too")
    parser.add_argument("--quick", action="store_true", help="one student and two, 20 cells, short pauses")
    asked = parser.parse_args()
    if asked.quick:
        asked.students, asked.pause, asked.lessons, asked.cells = [1, 2], 0.5, ["01"], 20
    lessons = [cells(name)[: asked.cells] for name in asked.lessons]
    each = ", ".join(f"{len(todo)} of {name}" for name, todo in zip(asked.lessons, lessons, strict=True))
    print(f"Cells: {each}; {os.cpu_count()} processors, pauses of {asked.pause:g} s", flush=True)
    kept = Path(asked.json) if asked.json else None
    rows: list[dict[str, Any]] = json.loads(kept.read_text("utf-8")) if kept and kept.exists() else []
    for number in asked.students:
        row = classroom(number, lessons, asked.pause)
        rows = sorted([*(old for old in rows if old["students"] != number), row], key=lambda one: one["students"])
        print(", ".join(f"{name} {value}" for name, value in row.items() if name != "failed"), flush=True)
        for failed in row["failed"][:3]:
            print(f"    failed: {failed}")
        if kept:
            kept.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    print(f"\n{table(rows)}\n\n{worth(rows[-1])}")
    return int(any(row["failed"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
