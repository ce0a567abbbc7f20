"""The same program: the same interleaving, the same trace, every time. And Ctrl-C."""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import fakegpu_lab as lab


def train() -> float:
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(32, 64), nn.Dropout(0.5), nn.Linear(64, 8)).cuda()
    ddp = DistributedDataParallel(net, bucket_cap_mb=0.005)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01)
    for step in range(1, 3):
        optimizer.zero_grad()
        loss = ddp(torch.randn(4 + rank, 32, device="cuda")).pow(2).mean()
        loss.backward()
        optimizer.step()
        print(f"step {step}: {loss.item()}")
    dist.destroy_process_group()
    return loss.item()


def test_twenty_runs_are_the_same_to_the_nanosecond(capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> tuple[Any, ...]:
        lab.enable("a100:3")
        with lab.record() as trace:
            losses = lab.run_ranks(train, 3)
        records = [*trace.kernels, *trace.transfers, *trace.collectives, *trace.allocations, *trace.waits]
        seen = [(type(r).__name__, r.name, r.device, r.stream, r.start_ns, r.end_ns, r.thread, r.line) for r in records]
        assert {record.thread for record in records} >= {"rank 0", "rank 1", "rank 2"}
        assert len(trace.collectives) > 12
        snapshot = lab.snapshot().model_dump(mode="json")
        lab.disable()
        return losses, seen, snapshot, capsys.readouterr().out

    first = run()
    assert "[rank2] step 2: " in first[-1]
    for _ in range(19):
        assert run() == first


def test_ctrl_c_stops_all_ranks_and_leaves_everything_usable(request: pytest.FixtureRequest) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    lab.enable("a100:2")
    stopped = []

    def program() -> None:
        rank = int(os.environ["RANK"])
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl")
        try:
            if rank == 1:
                threading.Timer(0.2, _thread.interrupt_main).start()
                while True:
                    time.sleep(0.01)
            dist.barrier()
        finally:
            stopped.append(rank)

    began = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        lab.run_ranks(program, 2)
    assert time.perf_counter() - began < 5
    assert sorted(stopped) == [0, 1]
    assert len(lab.run_ranks(train, 2)) == 2
    lab.disable()
