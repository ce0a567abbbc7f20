"""Memory over time: it shares the GPU's axis with the kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import fakegpu_lab as lab
from fakegpu_lab.recording_views.memory import changes, memory_curve
from fakegpu_lab.recording_views.phases import phases

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def planned() -> Iterator[None]:
    lab.enable("a100:2", compute="meta")
    torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")  # takes the workspace
    yield
    lab.disable()


class Block(nn.Module):
    def __init__(self, width: int = 1024) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, device="cuda")
        self.up = nn.Linear(width, 4 * width, device="cuda")
        self.down = nn.Linear(4 * width, width, device="cuda")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def steps(number: int, *, optimizer: bool = True) -> lab.Trace:
    """Steps of training, all launched before the GPU has done the first."""
    model = nn.Sequential(*(Block() for _ in range(8)))
    adam = torch.optim.AdamW(model.parameters())
    torch.cuda.reset_peak_memory_stats()
    with lab.record() as trace:
        for _ in range(number):
            x = torch.zeros(4096, 1024, device="cuda")
            model(x).square().mean().backward()
            if optimizer:
                adam.step()
            model.zero_grad()
    return trace


def test_memory_climbs_in_forward_and_falls_in_backward(planned: None) -> None:
    trace = steps(1, optimizer=False)
    forward, backward = phases(trace.kernels, 0)
    assert (forward.name, backward.name) == ("forward", "backward")
    curve = memory_curve(trace, 0)
    highest = max(curve, key=lambda point: point[1])[0]
    assert trace.host_elapsed < 0.1 * trace.elapsed, "the host runs ahead, and its times would be wrong"
    first_step_of_backward = next(k for k in trace.kernels if k.backward and "linear" in k.name)
    assert forward.end_ns <= highest <= first_step_of_backward.end_ns

    def held(ns: int) -> int:
        return [nbytes for when, nbytes in curve if when <= ns][-1]

    tenths = [held(forward.start_ns + (forward.end_ns - forward.start_ns) * i // 10) for i in range(11)]
    assert tenths == sorted(tenths)
    tenths = [held(backward.start_ns + (backward.end_ns - backward.start_ns) * i // 10) for i in range(1, 11)]
    assert tenths == sorted(tenths, reverse=True)


def test_every_step_is_a_tooth_with_the_true_peak(planned: None) -> None:
    steps(1)  # the optimizer takes its memory
    trace = steps(3)
    found = phases(trace.kernels, 0)
    assert [phase.name for phase in found] == ["forward", "backward", "optimizer"] * 3
    curve = memory_curve(trace, 0)
    assert max(nbytes for _, nbytes in curve) == torch.cuda.max_memory_allocated()
    for forward, backward in zip(found[0::3], found[1::3], strict=True):
        inside = [nbytes for when, nbytes in curve if forward.start_ns <= when <= backward.end_ns]
        assert max(inside) > 2 * min(inside)


def test_an_allocation_stands_where_its_kernel_runs(planned: None) -> None:
    a = torch.zeros(4096, 4096, device="cuda")
    with lab.record() as trace:
        b = a @ a
        c = b @ b
        del b
        c @ c
    taken = [change for change in changes(trace, 0) if change.nbytes > 0]
    assert [change.ns for change in taken] == [kernel.start_ns for kernel in trace.kernels]
    freed = [change.ns for change in changes(trace, 0) if change.nbytes < 0]
    assert freed == [trace.kernels[1].end_ns, trace.kernels[2].end_ns]


def test_memory_from_before_the_recording_falls_where_it_is_freed(planned: None) -> None:
    a = torch.zeros(4096, 4096, device="cuda")
    old = torch.zeros(2**20, device="cuda")
    held = torch.cuda.memory_allocated()
    with lab.record() as trace:
        b = a @ a
        del old
        kept = b @ b
    assert kept.shape == b.shape
    block = next(block for block in trace.held_before if block.freed)
    assert block.block_bytes == 2**22
    (fallen,) = [change.ns for change in changes(trace, 0) if change.block is block]
    assert fallen == trace.kernels[0].end_ns
    curve = memory_curve(trace, 0)
    assert curve[0] == (trace.began_ns, held)
    assert curve[-1][1] == torch.cuda.memory_allocated()


def test_a_stream_s_memory_is_at_its_own_time(planned: None) -> None:
    a = torch.zeros(8192, 8192, device="cuda")
    batch = torch.ones(1024, pin_memory=True)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with lab.record() as trace:
        b = a @ a  # takes long
        with torch.cuda.stream(side):
            x = batch.to("cuda", non_blocking=True)
    assert (b.shape, x.shape) == (a.shape, batch.shape)
    (sent,) = trace.transfers
    (on_side,) = [change.ns for change in changes(trace, 0) if change.block.stream == side.stream_id]
    assert on_side == sent.start_ns < trace.kernels[0].end_ns


def test_a_model_without_modules_has_phases(planned: None) -> None:
    w = torch.zeros(1024, 1024, device="cuda", requires_grad=True)
    x = torch.zeros(1024, 1024, device="cuda")
    adam = torch.optim.Adam([w])
    with lab.record() as trace:
        (x @ w).sum().backward()
        torch.nn.utils.clip_grad_norm_([w], 1.0)
        adam.step()
    forward, backward, optimizer = phases(trace.kernels, 0)
    assert (forward.name, backward.name, optimizer.name) == ("forward", "backward", "optimizer")
    assert optimizer.start_ns > backward.end_ns, "clipping is between them"
