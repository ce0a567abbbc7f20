"""Advice: each rule with a program that it fires on, and one like it that it lets pass."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import fakegpu_lab as lab
from fakegpu_lab.advice import Advice, kernels, training, transfers
from fakegpu_lab.advice.finding import WIDTH
from fakegpu_lab.hardware.time.records import Collective, Kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fakegpu_lab.advice import Finding
    from fakegpu_lab.hardware.machine import Machine


@pytest.fixture(autouse=True)
def machine() -> Iterator[Machine]:
    """Two A100s that compute no values: what takes time here is simulated."""
    yield lab.enable("a100:2", memory="8GiB", compute="meta")
    lab.disable()


def only(advice: Advice, rule: str) -> Finding:
    (found,) = [finding for finding in advice if finding.rule == rule]
    return found


def of(line: str) -> str:
    """The text of a record's line."""
    name, _, number = line.rpartition(":")
    return Path(name).read_text(encoding="utf-8").splitlines()[int(number) - 1]


def step(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = model(x).square().mean()
    loss.backward()
    return loss


def test_a_wait_in_each_step() -> None:
    model, x = nn.Linear(512, 512, device="cuda"), torch.ones(512, 512, device="cuda")
    with lab.record() as trace:
        for _ in range(6):
            step(model, x)
            torch.cuda.synchronize()  # in each step
    found = only(lab.advise(trace), "sync_each_step")
    assert "# in each step" in of(found.line)
    assert "6 times" in found.text
    with lab.record() as trace:
        for _ in range(6):
            step(model, x)
        torch.cuda.synchronize()
    assert "sync_each_step" not in lab.advise(trace).rules


def test_reading_the_loss_in_each_step() -> None:
    lab.enable("a100", memory="1GiB")
    x = torch.ones(64, 64, device="cuda")
    with lab.record() as trace:
        for _ in range(5):
            x.sum().item()  # to the host
    assert "# to the host" in of(only(lab.advise(trace), "sync_each_step").line)
    assert "tiny_transfers" not in lab.advise(trace).rules  # one habit, one finding


def test_many_small_copies() -> None:
    parts = [torch.ones(100) for _ in range(40)]
    with lab.record() as trace:
        for part in parts:
            part.to("cuda")  # one by one
    found = only(lab.advise(trace), "tiny_transfers")
    assert "# one by one" in of(found.line)
    assert "40 copies to the device, of 400 B on average" in found.text
    with lab.record() as trace:
        torch.stack(parts).to("cuda")
    assert "tiny_transfers" not in lab.advise(trace).rules


def test_the_same_tensor_again() -> None:
    table = torch.ones(256, 256)
    with lab.record() as trace:
        for _ in range(5):
            table.to("cuda")
    found = only(lab.advise(trace), "same_again")
    assert "The same 256 KiB went to the device in 5 copies" in found.text
    with lab.record() as trace:
        for number in range(5):
            table.fill_(number)  # it changes: not the same
            table.to("cuda")
            torch.ones(256, 256).to("cuda")  # each new, often at the address of the one before
    assert "same_again" not in lab.advise(trace).rules


def test_the_same_parts_of_a_data_set_in_each_epoch() -> None:
    data = torch.ones(4, 128, 128)
    with lab.record() as trace:
        for _ in range(4):
            for part in range(4):
                data[part].to("cuda")
    assert "4 tensors, 256 KiB together, went to the device in 16 copies" in only(lab.advise(trace), "same_again").text


def test_non_blocking_from_pageable_memory() -> None:
    batch = torch.ones(1024, 1024)
    with lab.record() as trace:
        batch.to("cuda", non_blocking=True)  # not pinned
    assert "# not pinned" in of(only(lab.advise(trace), "pageable_non_blocking").line)
    batch = batch.pin_memory()
    with lab.record() as trace:
        batch.to("cuda", non_blocking=True)
    assert "pageable_non_blocking" not in lab.advise(trace).rules


@pytest.mark.parametrize("pinned", [False, True])
def test_batches_from_pageable_memory(pinned: bool) -> None:
    batches = [torch.ones(512, 512) for _ in range(6)]
    if pinned:
        batches = [batch.pin_memory() for batch in batches]
    with lab.record() as trace:
        for batch in batches:
            batch.to("cuda", non_blocking=pinned)
    rules = lab.advise(trace).rules
    assert ("unpinned_loader" in rules) is not pinned
    assert not rules & {"same_again", "pageable_non_blocking"}


def test_kernels_shorter_than_launches() -> None:
    small, large = torch.ones(8, device="cuda"), torch.ones(2048, 2048, device="cuda")
    torch.cuda.synchronize()
    with lab.record() as trace:
        for _ in range(60):
            small = small + 1  # tiny
    found = only(lab.advise(trace), "launch_bound")
    assert "# tiny" in of(found.line)
    assert (
        "60 kernels ran for 2.00 µs on average, and the host took 18.0 µs to launch each (3.90 µs in Python"
        in found.text
    )
    assert "A CUDA graph of the step (one launch for all kernels) would save 962 µs of 1.08 ms" in found.remedy
    assert "(tests/advice/test_advice.py:" in trace.summary().note, "the summary names the line, too"
    with lab.record() as trace:
        for _ in range(60):
            large = large @ large
    assert "launch_bound" not in lab.advise(trace).rules


def test_lines_of_text_are_short_and_numbers_stay_with_their_units() -> None:
    small = torch.ones(8, device="cuda")
    with lab.record() as trace:
        for _ in range(60):
            small = small + 1
    title, *lines = str(only(lab.advise(trace), "launch_bound")).splitlines()
    assert "The host keeps cuda:0 waiting" in title
    assert len(lines) > 2
    assert all(line.startswith("  ") and len(line) <= WIDTH for line in lines)
    assert not any(line[-1].isdigit() for line in lines)


def test_ranks_that_wait_alike_are_one_finding() -> None:
    with lab.record() as trace:
        for _ in range(60):
            for device in range(2):
                torch.ones(8, device=f"cuda:{device}")
    assert only(lab.advise(trace), "launch_bound").title == "The host keeps cuda:0 waiting, and cuda:1 as well"


def trained(*, graph: bool = False, **options: bool) -> lab.Trace:
    """Ten training steps of a small model, with such an optimizer, maybe in a CUDA graph."""
    model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(8)]).cuda()
    x = torch.ones(32, 64, device="cuda")
    optimizer = torch.optim.Adam(model.parameters(), capturable=graph, **options)

    def train() -> None:
        optimizer.zero_grad()
        step(model, x)
        optimizer.step()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            train()
    torch.cuda.current_stream().wait_stream(side)
    action = train
    if graph:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            train()
        action = captured.replay
    torch.cuda.synchronize()
    with lab.record() as trace:
        for _ in range(10):
            action()
        torch.cuda.synchronize()
    return trace


def played(*, graph: bool) -> lab.Trace:
    """A game: what is seen is copied to the device, a network chooses, and the choice is read before the next move."""
    model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(4)]).cuda()
    seen = torch.zeros(20, 32, 64, device="cuda")
    choices = list[torch.Tensor]()

    def choose() -> None:
        choices[:] = [sum(model(part) for part in seen[:5]).argmax()]

    with torch.no_grad():
        choose()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            choose()
        torch.cuda.synchronize()
        with lab.record() as trace:
            for _ in range(20):
                for part in seen:
                    part.copy_(torch.zeros(32, 64))
                (captured.replay if graph else choose)()
                choices[0].item()
    return trace


def summed(*, read: bool) -> lab.Trace:
    """A loop that reads each sum, or not."""
    x = torch.ones(32, 64, device="cuda")
    with lab.record() as trace:
        for _ in range(30):
            total = (x + 1).sum()
            if read:
                total.item()
    return trace


@pytest.mark.parametrize(
    ("what", "before", "after"),
    [
        ("a CUDA graph", trained, lambda: trained(graph=True)),
        ("a CUDA graph", lambda: played(graph=False), lambda: played(graph=True)),
        ("`fused=True`", lambda: trained(foreach=False), lambda: trained(fused=True)),
        ("reading values once", lambda: summed(read=True), lambda: summed(read=False)),
    ],
    ids=["graph", "graph and copies", "fused", "item"],
)
def test_what_helps_saves_about_as_much_as_it_says(
    what: str, before: Callable[[], lab.Trace], after: Callable[[], lab.Trace]
) -> None:
    lab.enable("a100")
    slow = before()
    ways = only(lab.advise(slow), "launch_bound").remedy.split("; ")
    (way,) = [one for one in ways if what in one[0].lower() + one[1:]]
    number, unit = way.partition("would save ")[2].split()[:2]
    says = float(number) * {"µs": 1e-6, "ms": 1e-3}[unit]
    assert slow.elapsed - after().elapsed == pytest.approx(says, rel=0.15)


@pytest.mark.parametrize(("seconds", "fires"), [(0.01, True), (1e-5, False)])
def test_a_device_that_waits_for_the_host(seconds: float, fires: bool) -> None:
    x = torch.ones(2048, 2048, device="cuda")
    with lab.record() as trace:
        for _ in range(5):
            lab.host_work(seconds)
            x = x @ x
    assert ("gpu_idle" in lab.advise(trace).rules) is fires


class Slow(torch.utils.data.Dataset):
    """A dataset that takes 10 ms for an item."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        lab.host_work(0.01)
        return torch.ones(8)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")
def test_a_device_that_waits_for_the_loaders_workers() -> None:
    x = torch.ones(2048, 2048, device="cuda")
    loader = torch.utils.data.DataLoader(Slow(), num_workers=1, multiprocessing_context="fork")
    with lab.record() as trace:
        for _ in loader:
            x = x @ x
    assert "Use more workers" in only(lab.advise(trace), "gpu_idle").remedy


def test_activations_that_a_stored_loss_keeps() -> None:
    model, x = nn.Sequential(nn.Linear(256, 256), nn.ReLU()).cuda(), torch.ones(64, 256, device="cuda")
    losses = []
    with lab.record() as trace:
        for _ in range(6):
            losses.append(model(x).square().mean())  # noqa: PERF401 - with its graph
    advice = lab.advise(trace)
    found = only(advice, "kept_activations")
    assert "with its graph" in of(found.line)
    assert "held by the list `losses`" in found.text
    assert "held by the list <code>losses</code>" in Advice([found])._repr_html_()
    assert "leak" not in advice.rules  # one habit, one finding
    with lab.record() as trace:
        for _ in range(6):
            losses.append(model(x).square().mean().detach())  # noqa: PERF401 - as people write it
    assert "kept_activations" not in lab.advise(trace).rules


def test_a_leak_and_who_holds_it() -> None:
    cache = {}
    with lab.record() as trace:
        for number in range(6):
            cache[number] = torch.ones(1000, device="cuda") * number  # never given back
    found = only(lab.advise(trace), "leak")
    assert "# never given back" in of(found.line)
    assert "held by the dict `cache`" in found.text
    with lab.record() as trace:
        for number in range(6):
            cache[0] = torch.ones(1000, device="cuda") * number
    assert "leak" not in lab.advise(trace).rules


def test_a_model_made_while_recording_is_no_leak() -> None:
    x = torch.ones(4096, 1024, device="cuda")
    with lab.record() as trace:
        layers = nn.Sequential(*[nn.Linear(1024, 1024, device="cuda") for _ in range(8)])
        optimizer = torch.optim.Adam(layers.parameters())
        for _ in range(4):
            optimizer.zero_grad()
            step(layers, x)
            optimizer.step()
    assert not lab.advise(trace).rules & {"leak", "kept_activations"}


def test_data_parallel() -> None:
    model, x = nn.Linear(64, 64).cuda(), torch.ones(8, 64, device="cuda")
    with lab.record() as trace:
        nn.DataParallel(model)(x)
    assert "data_parallel" in lab.advise(trace).rules
    with lab.record() as trace:
        model(x)
    assert "data_parallel" not in lab.advise(trace).rules


def recording(*parts: tuple[int, int], work: list[tuple[int, int]]) -> Any:
    """All-reduces and kernels of one device at these times, ms."""
    ms = 1_000_000
    return SimpleNamespace(
        began_ns=0,
        ended_ns=100 * ms,
        collectives=[
            Collective("nccl:all_reduce", 0, 1, a * ms, b * ms, line="train.py:3", nbytes=2**20, joined_ns=a * ms)
            for a, b in parts
        ],
        kernels=[Kernel("aten::mm", 0, 0, a * ms, b * ms) for a, b in work],
    )


def test_an_all_reduce_with_nothing_beside_it() -> None:
    (found,) = kernels.all_reduce_alone(recording((40, 60), (60, 90), work=[(0, 40), (90, 100)]))
    assert (found.line, found.cost_ns) == ("train.py:3", 50_000_000)
    assert "moved 2.00 MiB in 2 collectives; for 50.0 ms of their 50.0 ms no kernel ran" in found.text
    assert kernels.all_reduce_alone(recording((10, 30), (60, 90), work=[(0, 100)])) == []
    assert kernels.all_reduce_alone(recording((40, 41), (60, 61), work=[(0, 30)])) == []  # too short to matter


def test_an_optimizer_that_was_made_before_to() -> None:
    lab.enable("a100", memory="1GiB")
    weight = torch.ones(64, 64, requires_grad=True)
    optimizer = torch.optim.SGD([weight])
    x = torch.ones(64, 64, device="cuda")
    with lab.record() as trace:
        (x @ weight.to("cuda")).sum().backward()
    (found,) = training.optimizer_before_to(trace, [optimizer])
    assert "SGD updates 1 of its 1 tensors on the CPU" in found.text
    assert "come back over the bus" in found.text


def test_an_optimizer_of_another_copy_of_the_model() -> None:
    model, x = nn.Linear(64, 64), torch.ones(64, 64, device="cuda")
    optimizer = torch.optim.SGD(model.parameters())
    on_device = copy.deepcopy(model).cuda()
    with lab.record() as trace:
        step(on_device, x)
    assert "the model trains other tensors there" in only(lab.advise(trace), "optimizer_before_to").text
    del optimizer
    beside = torch.optim.SGD(nn.Linear(3, 3).parameters())  # of a small model that belongs on the CPU
    right = torch.optim.SGD(on_device.parameters())
    assert training.optimizer_before_to(trace, [beside, right], list(on_device.parameters())) == []


def test_a_program_without_faults() -> None:
    model = nn.Sequential(*[nn.Linear(2048, 2048, device="cuda") for _ in range(3)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [torch.ones(4096, 2048).pin_memory() for _ in range(5)]
    with lab.record() as trace:
        for batch in batches:
            optimizer.zero_grad()
            step(model, batch.to("cuda", non_blocking=True))
            optimizer.step()
    advice = lab.advise(trace)
    assert list(advice) == []
    assert repr(advice) == "No known problem was found."


def test_findings_stand_in_the_order_of_their_cost_and_show_themselves() -> None:
    table = torch.ones(1024, 1024)
    with lab.record() as trace:
        for _ in range(5):
            table.to("cuda")  # <again>
            torch.cuda.synchronize()
            lab.host_work(0.0001)
    advice = lab.advise(trace)
    assert len(advice) >= 1
    assert [f.cost_ns for f in advice] == sorted((f.cost_ns for f in advice), reverse=True)
    text, page = repr(advice), advice._repr_html_()
    assert (
        "The same tensor is copied repeatedly (test_advice.py:" in text
        or "The same tensor is copied repeatedly (tests/" in text
    )
    assert "&lt;again&gt;" in page
    assert "<again>" not in page


def test_advice_after_the_machine_is_gone_and_of_a_full_recording() -> None:
    table = torch.ones(64, 64)
    with lab.record(limit=5) as trace:
        for _ in range(8):
            table.to("cuda")
    lab.disable()
    advice = lab.advise(trace)
    assert "same_again" in advice.rules
    assert "no details were kept" in repr(advice)


def test_transfers_alone_are_enough_for_its_rules() -> None:
    with lab.record() as trace:
        pass
    assert [rule(trace) for rule in (transfers.same_again, transfers.tiny_transfers, transfers.unpinned_loader)] == [
        [], [], [],
    ]  # fmt: skip
