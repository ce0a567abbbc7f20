"""The soaks, short; see README.md."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

TIMES = int(os.environ.get("FAKEGPU_LAB_SOAK", "1"))
SEED = os.environ.get("FAKEGPU_LAB_SOAK_SEED", "0")


def soak(program: str, *arguments: object) -> None:
    """Run a program in a process of its own: it must end well, and say nothing on stderr."""
    command = [sys.executable, str(Path(__file__).with_name(program)), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300 * TIMES)
    print(done.stdout.strip())
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sends itself SIGINT")
@pytest.mark.parametrize("kind", ["train", "amp", "backward", "record", "ranks", "alarm"])
def test_every_interrupt_arrives_and_leaves_the_machine_consistent(kind: str) -> None:
    soak("interrupts.py", kind, SEED, 40 * TIMES)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGALRM")
def test_stop_in_a_kernel_arrives_and_leaves_everything_consistent() -> None:
    soak("kernel.py", "--seed", SEED, 2 * TIMES, "train", "widget", "alarm", "check", "run_ranks")


@pytest.mark.slow
def test_threads_record_and_take_snapshots_at_the_same_time() -> None:
    soak("threads.py", 20_000 * TIMES)


@pytest.mark.slow
def test_a_long_training_takes_no_more_memory() -> None:
    soak("steps.py", 2_000 * TIMES)


@pytest.mark.slow
def test_machines_come_and_go_without_a_trace() -> None:
    soak("machines.py", 25 * TIMES)
