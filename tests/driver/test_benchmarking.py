"""torch.utils.benchmark and timing loops with events give simulated times."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import timeit
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.benchmark import Timer
from torch.utils.benchmark.utils import timer as torch_timer

import fakegpu_lab as lab
from fakegpu_lab.driver.base.cuda_messages import TORCH_VERSION
from fakegpu_lab.hardware.time import host_costs

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("machine")


def _kernel_seconds(run: Callable[[], Any]) -> float:
    with lab.record() as trace:
        run()
    return sum(kernel.duration for kernel in trace.kernels)


@pytest.fixture
def matrix() -> torch.Tensor:
    return torch.randn(1024, 1024, device="cuda")


def test_a_timer_measures_simulated_time(matrix: torch.Tensor) -> None:
    expected = _kernel_seconds(lambda: matrix @ matrix)
    timer = Timer("x @ x", globals={"x": matrix})
    for measured in (timer.timeit(10), timer.blocked_autorange(), timer.adaptive_autorange()):
        assert measured.median == pytest.approx(expected, rel=0.1)
        assert measured.iqr == pytest.approx(0, abs=1e-9)


def test_a_launch_bound_statement_costs_its_launches() -> None:
    x = torch.ones(4, device="cuda")
    began = time.monotonic()
    measured = Timer("x + 1; x + 1", globals={"x": x}).blocked_autorange()
    host = lab.machine().host
    each = (host.ns(host_costs.POINTWISE.forward) + host.launch_us * 1e3) / 1e9
    assert measured.median == pytest.approx(2 * each, rel=0.01)
    assert time.monotonic() - began < 10  # torch alone would run it a hundred thousand times


def test_two_measurements_are_equal(matrix: torch.Tensor) -> None:
    first, second = (Timer("x.relu()", globals={"x": matrix}).blocked_autorange() for _ in range(2))
    assert first.raw_times == pytest.approx(second.raw_times, rel=1e-9)
    assert first.number_per_run == second.number_per_run


def test_the_timer_of_torch_before_2_13(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its timer, imported without a machine, is the clock itself: there is no code to replace."""
    lab.disable()
    init = Timer.__init__
    monkeypatch.setattr(torch_timer, "timer", timeit.default_timer)
    lab.enable("a100")
    x = torch.randn(1024, 1024, device="cuda")
    expected = _kernel_seconds(lambda: x @ x)
    assert Timer("x @ x", globals={"x": x}).timeit(10).mean == pytest.approx(expected, rel=0.1)
    slow = Timer("x @ x", "", "", timeit.default_timer, {"x": x}).timeit(2)  # asked for: the wall clock
    assert slow.mean != pytest.approx(expected, rel=0.1)
    lab.disable()
    assert torch_timer.timer is timeit.default_timer
    assert Timer.__init__ is init


def test_a_statement_on_the_host_is_measured_by_the_wall_clock() -> None:
    measured = Timer("time.sleep(0.002)", globals={"time": time}).timeit(3)
    assert 0.002 <= measured.median < 0.1
    measured = Timer("time.sleep(0.001)", globals={"time": time}).blocked_autorange(min_run_time=0.02)
    assert 0.001 <= measured.median < 0.1


def test_a_statement_that_takes_time_without_a_launch_is_measured_in_simulated_time() -> None:
    """Pinning 4 MB takes the host 0.4 ms; it launches nothing."""
    x = torch.randn(1_000_000)
    x.pin_memory()
    began = lab.clock()
    x.pin_memory()
    expected = lab.clock() - began
    timer = Timer("x.pin_memory()", globals={"x": x})
    for measured in (timer.timeit(10), timer.blocked_autorange(), timer.adaptive_autorange()):
        assert measured.median == pytest.approx(expected, rel=0.01)
        assert measured.iqr == pytest.approx(0, abs=1e-9)


def test_torchs_timer_comes_back() -> None:
    timed = Timer("x + 1", globals={"x": torch.ones(2)})
    lab.disable()
    if TORCH_VERSION >= (2, 13):  # before, it is the clock itself
        assert "fakegpu_lab" not in torch_timer.timer.__code__.co_filename
    assert timed.timeit(5).median > 0


def _do_bench(
    run: Callable[[], Any], warmup_ms: float = 0.5, rep_ms: float = 2, cache_bytes: int = 1 << 20
) -> list[float]:
    """The loop of triton.testing.do_bench: milliseconds of each run, with the L2 cache written over before each."""
    run()
    torch.cuda.synchronize()
    cache = torch.empty(cache_bytes // 4, dtype=torch.int, device="cuda")
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(5):
        cache.zero_()
        run()
    end.record()
    torch.cuda.synchronize()
    estimate = start.elapsed_time(end) / 5
    warmups, repeats = max(1, int(warmup_ms / estimate)), max(1, int(rep_ms / estimate))
    starts = [torch.cuda.Event(enable_timing=True) for _ in range(repeats)]
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(repeats)]
    for _ in range(warmups):
        run()
    for i in range(repeats):
        cache.zero_()
        starts[i].record()
        run()
        ends[i].record()
    torch.cuda.synchronize()
    return [s.elapsed_time(e) for s, e in zip(starts, ends, strict=True)]


def test_do_bench_gives_the_kernels_time() -> None:
    x = torch.randn(1024, 1024, device="cuda")
    expected = _kernel_seconds(lambda: x @ x) * 1e3
    times = _do_bench(lambda: x @ x)
    assert len(times) > 1
    assert statistics.median(times) == pytest.approx(expected, rel=0.1)
    assert torch.quantile(torch.tensor(times), torch.tensor([0.2, 0.8])).tolist() == pytest.approx(
        [expected] * 2, rel=0.1
    )


def test_the_clock_shows_launches_until_somebody_synchronises() -> None:
    x = torch.randn(4096, 4096, device="cuda")
    x @ x  # loads cuBLAS
    torch.cuda.synchronize()
    began = lab.clock()
    x @ x
    launched = lab.clock() - began
    torch.cuda.synchronize()
    done = lab.clock() - began
    host = lab.machine().host
    assert launched == pytest.approx((host.ns(host_costs.PRODUCT.forward) + host.launch_us * 1e3) / 1e9)
    assert done > 50 * launched
    lab.host_work(0.5)
    assert lab.clock() - began == pytest.approx(done + 0.5)
    torch.accelerator.synchronize()
    lab.disable()
    with pytest.raises(lab.FakeGpuError):
        lab.clock()


def test_accelerator_synchronize_waits() -> None:
    x = torch.randn(4096, 4096, device="cuda")
    began = lab.clock()
    x @ x
    torch.accelerator.synchronize()
    assert lab.clock() - began > 1e-4


LATE = """
import sys, torch, fakegpu_lab as lab
lab.enable("a100")
assert "torch.utils.benchmark" not in sys.modules
from torch.utils.benchmark import Timer
x = torch.ones(16, device="cuda")
print(Timer("x + 1", globals={"x": x}).timeit(10).mean < 5e-5)
lab.disable()
lab.enable("a100")
lab.disable()
print(not any(type(finder).__module__.startswith("fakegpu_lab") for finder in sys.meta_path))
"""


def test_the_timer_may_be_imported_after_the_machine_is_there() -> None:
    ran = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["True", "True"]
