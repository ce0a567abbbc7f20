"""What PyTorch's own work takes on the simulated host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import fakegpu_lab as lab
from fakegpu_lab.driver.environment import own_code
from fakegpu_lab.hardware.time import host_costs
from fakegpu_lab.hardware.time.clock import here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fakegpu_lab.hardware.machine import Machine


@pytest.fixture(autouse=True)
def machine(usual_hosts: None) -> Iterator[Machine]:
    yield lab.enable("a100")
    lab.disable()


def took(action: Callable[[], object]) -> int:
    """Nanoseconds of the host for something that it has done before."""
    action()
    torch.cuda.synchronize()
    before = here.host.now
    action()
    return here.host.now - before


def expected(*costs: int, launches: int = 1) -> int:
    host = lab.machine().host
    return sum(host.ns(cost) for cost in costs) + launches * round(host.launch_us * 1e3)


def test_an_op_takes_the_time_of_its_kind() -> None:
    x, w = torch.ones(8, 8, device="cuda"), torch.ones(8, 8, device="cuda")
    assert took(lambda: x + w) == expected(host_costs.POINTWISE.forward)
    assert took(lambda: x.add_(w)) == expected(host_costs.IN_PLACE.forward)
    assert took(lambda: x @ w) == expected(host_costs.PRODUCT.forward)
    assert took(lambda: x.t()) == expected(host_costs.VIEW.forward, launches=0)


def test_a_module_takes_time_though_it_runs_no_op() -> None:
    x, nothing = torch.ones(8, 8, device="cuda"), nn.Identity()
    assert took(lambda: nothing(x)) == lab.machine().host.ns(host_costs.MODULE_CALL)
    lab.disable()
    assert not [name for name in vars(nn.modules.module) if "fakegpu" in name]
    assert nothing(torch.ones(2)).sum() == 2
    lab.enable("a100")


def test_backward_has_no_python() -> None:
    x = torch.ones(8, device="cuda", requires_grad=True)

    def backward() -> None:
        y = (x * 2).sum()
        before = here.host.now
        y.backward()
        times.append(here.host.now - before)

    times: list[int] = []
    backward()
    backward()
    backward()
    with lab.record() as trace:
        backward()
    assert times[1] == times[2] == times[3]
    inside = [k for k in trace.kernels if k.backward]
    assert inside
    host = lab.machine().host
    assert all(
        k.launched_ns - k.dispatched_ns <= expected(host_costs.POINTWISE.backward) + host.ns(5_000) for k in inside
    )


@pytest.mark.parametrize(("how", "fewer"), [({"fused": True}, "foreach"), ({"foreach": True}, "loop")])
def test_fused_is_faster_than_foreach_and_foreach_than_a_loop(how: dict[str, bool], fewer: str) -> None:
    def step(**options: bool) -> int:
        parameters = [nn.Parameter(torch.ones(4, device="cuda")) for _ in range(30)]
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        return took(torch.optim.Adam(parameters, **options).step)

    slower = {"foreach": {"foreach": True}, "loop": {"foreach": False}}[fewer]
    assert step(**how) < 0.8 * step(**slower)


def test_a_graph_is_one_launch() -> None:
    x = torch.ones(8, device="cuda")

    def work() -> torch.Tensor:
        y = x
        for _ in range(20):
            y = y + 1
        return y

    work()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    assert took(graph.replay) < 0.1 * took(work)


def test_the_host_can_be_chosen() -> None:
    x = torch.ones(8, device="cuda")
    slow = took(lambda: x + 1)
    lab.enable("a100", host="desktop-2023")
    x = torch.ones(8, device="cuda")
    assert took(lambda: x + 1) < 0.6 * slow
    assert lab.reset().host.id == "desktop-2023"
    with pytest.raises(lab.FakeGpuError, match="No host is called 'abacus'"):
        lab.enable("a100", host="abacus")


def test_measured_counts_the_programs_own_code() -> None:
    lab.enable("a100", host="measured")
    x = torch.ones(8, device="cuda")
    x + 1
    with lab.record() as trace:
        x + 1
        sum(range(3_000_000))  # some 50 ms of the program's own
        x + 1
    assert max(work.duration for work in trace.host_work if work.name == own_code.NAME) > 0.005
    lab.enable("a100")
    x = torch.ones(8, device="cuda")
    with lab.record() as trace:
        x + 1
        sum(range(3_000_000))
        x + 1
    assert not trace.host_work


def test_a_recording_shows_python_pytorch_and_the_launch_apart() -> None:
    x = torch.ones(8, device="cuda")
    with lab.record() as trace:
        for _ in range(3):
            x + 1
    second = trace.kernels[1]
    host = lab.machine().host
    python = second.dispatched_ns - trace.kernels[0].launched_ns
    assert python == host.ns(host_costs.PYTHON)
    bars = [bar for bar in trace.figure().data if bar.name and bar.name.startswith("host")]
    assert {"host: Python", "host: PyTorch's C++", "host launches"} <= {bar.name for bar in bars}
