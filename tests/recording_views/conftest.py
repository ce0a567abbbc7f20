"""A recording that has a bit of everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import fakegpu_lab as lab

if TYPE_CHECKING:
    from fakegpu_lab.hardware.machine import Machine


def some_work() -> None:
    """A step of a small model on one device, a copy to another, a side stream, host work."""
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.LayerNorm(256)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.ones(64, 256).pin_memory()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x = batch.to("cuda", non_blocking=True)
    torch.cuda.current_stream().wait_stream(side)
    lab.host_work(30e-6)
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    loss.item()
    x.to("cuda:1").mul_(2)
    torch.cuda.synchronize("cuda:1")


@pytest.fixture
def trace(machine: Machine) -> lab.Trace:
    with lab.record() as recorded:
        some_work()
    return recorded
