"""``clock="simulated"``: a program that times itself with `time` measures the simulated GPU."""

from __future__ import annotations

import itertools
import logging
import queue
import subprocess
import sys
import sysconfig
import threading
import time
import timeit
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab.driver.environment import program_clock
from fakegpu_lab.user_code import frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ORIGINALS = dict(vars(time))


@pytest.fixture
def simulated() -> Iterator[None]:
    lab.enable("a100", memory="4GiB", clock="simulated")
    yield
    lab.disable()


def _products(clock: Callable[[], Any], count: int = 20) -> tuple[Any, float]:
    """What a clock measures of some matrix products, and their simulated time."""
    x = torch.ones(512, 512, device="cuda")
    x @ x  # loads cuBLAS
    torch.cuda.synchronize()
    began, simulated = clock(), lab.clock()
    for _ in range(count):
        x @ x
    torch.cuda.synchronize()
    return clock() - began, lab.clock() - simulated


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize("name", ["time", "perf_counter", "monotonic", "process_time"])
def test_a_program_measures_simulated_time(name: str) -> None:
    assert _products(getattr(time, f"{name}_ns"))[0] == pytest.approx(_products(time.perf_counter_ns)[0], abs=1000)
    measured, expected = _products(getattr(time, name))
    assert measured == pytest.approx(expected, abs=2e-6)
    assert expected < 1e-3


@pytest.mark.usefixtures("simulated")
def test_a_name_imported_before_measures_it_too() -> None:
    measured, expected = _products(perf_counter)
    assert measured == pytest.approx(expected, abs=2e-6)
    assert timeit.default_timer is time.perf_counter


def test_disable_gives_the_computers_clock_back() -> None:
    lab.enable("a100", clock="simulated")
    from time import monotonic  # held while it is simulated

    while_simulated = time.sleep
    lab.reset()
    assert time.sleep is while_simulated
    lab.disable()
    assert {name: value for name, value in vars(time).items() if _ORIGINALS.get(name) is not value} == {}
    assert timeit.default_timer is perf_counter is _ORIGINALS["perf_counter"]
    assert abs(monotonic() - time.monotonic()) < 1
    lab.enable("a100")
    assert time.time is _ORIGINALS["time"]
    lab.disable()


@pytest.mark.usefixtures("simulated")
def test_the_clocks_go_on_from_what_they_showed() -> None:
    assert abs(time.time() - _ORIGINALS["time"]()) < 60
    assert abs(time.monotonic() - _ORIGINALS["monotonic"]()) < 60


@pytest.mark.usefixtures("simulated")
def test_two_readings_differ() -> None:
    for read in (time.time, time.perf_counter):
        readings = [read() for _ in range(1000)]
        assert all(later > earlier for earlier, later in itertools.pairwise(readings))


@pytest.mark.usefixtures("simulated")
def test_a_sleep_is_simulated_and_real() -> None:
    real = _ORIGINALS["perf_counter"]
    with lab.record() as trace:
        began, processed, really = time.perf_counter(), time.process_time(), real()
        time.sleep(0.05)
        assert real() - really >= 0.05
        assert time.perf_counter() - began == pytest.approx(0.05, abs=1e-5)
        assert time.process_time() - processed < 1e-5, "a sleep takes no time of the processor"
    assert [work.name for work in trace.host_work] == ["sleep"]
    with pytest.raises(TypeError):
        time.sleep("a while")  # type: ignore[arg-type]


@pytest.mark.usefixtures("simulated")
def test_a_thread_reads_its_own_time() -> None:
    found: list[float] = []
    thread = threading.Thread(target=lambda: found.append(_products(time.perf_counter)[0]))
    thread.start()
    thread.join()
    assert found[0] == pytest.approx(_products(time.perf_counter)[0], rel=0.2)


@pytest.mark.usefixtures("simulated")
def test_pythons_own_modules_keep_the_computers_clock() -> None:
    lab.host_work(3600)
    now = _ORIGINALS["time"]()
    record = logging.LogRecord("name", logging.INFO, "", 1, "message", None, None)
    assert abs(record.created - now) < 60
    began = _ORIGINALS["monotonic"]()
    with pytest.raises(queue.Empty):
        queue.Queue[int]().get(timeout=0.05)
    assert not threading.Event().wait(0.05)
    assert _ORIGINALS["monotonic"]() - began >= 0.1
    assert timeit.timeit("time.sleep(0.01)", "import time", number=1) >= 0.01
    assert timeit.timeit("pass", number=10) < 1


def test_whose_code_it_is() -> None:
    own = [__file__, "train.py", "/tmp/ipykernel_17/2.py", "<stdin>", "<string>"]
    assert all(frames.kind(name) & frames.OWN for name in own)
    throughput = str(Path(sysconfig.get_path("purelib")) / "lightning" / "fabric" / "utilities" / "throughput.py")
    assert program_clock._reads_simulated_time(throughput)
    assert frames.kind(throughput) == frames.LIBRARY
    others = [threading.__file__, torch.__file__, pytest.__file__, lab.__file__, "<frozen runpy>", "<timeit-src>"]
    assert not any(program_clock._reads_simulated_time(name) for name in others)


@pytest.mark.long
def test_a_script_and_its_children_follow(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        """
from time import perf_counter, sleep
import torch
import torch.multiprocessing as mp

def measured(_=0):
    torch.cuda.synchronize()
    began = perf_counter()
    sleep(0.5)
    print(round(perf_counter() - began, 4), flush=True)

if __name__ == "__main__":
    measured()
    mp.spawn(measured, nprocs=1)
"""
    )
    command = [sys.executable, "-m", "fakegpu_lab", "run", "-q", "--clock", "simulated", "train.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["0.5", "0.5"], ran.stderr
