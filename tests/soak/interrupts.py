"""A program that is interrupted at random moments, again and again: ``python interrupts.py kind seed count``.

It prints how many interrupts were sent, how many arrived, and how often the machine was inconsistent afterwards.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn

import fakegpu_lab as lab
from fakegpu_lab.driver.base.tensor import FakeCudaTensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.hardware.machine import Machine

SPREAD = 0.012
"""Seconds within which an interrupt is sent."""


def train() -> Callable[[], None]:
    net = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4)).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    data = torch.randn(8, 16)

    def step() -> None:
        loss = net(data.cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def amp() -> Callable[[], None]:
    net = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    data = torch.randn(8, 16, device="cuda")

    def step() -> None:
        scaler = torch.amp.GradScaler("cuda", init_scale=8.0)  # one that is interrupted wants its update first
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = net(data).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def backward() -> Callable[[], None]:
    leaf = torch.randn(8, 8, device="cuda", requires_grad=True)

    def step() -> None:
        value = leaf
        for _ in range(6):
            value = value * 2 + 1
        value.sum().backward()

    return step


def record() -> Callable[[], None]:
    once = train()

    def step() -> None:
        with lab.record() as trace:
            once()
            once()
        assert trace.kernels
        assert all(one.end_ns >= one.start_ns for one in trace.allocations)

    return step


def ranks() -> Callable[[], None]:
    def program() -> None:
        dist.init_process_group("nccl")
        torch.cuda.set_device(dist.get_rank())
        leaf = torch.ones(8, 8, device="cuda", requires_grad=True)
        for _ in range(20):
            (leaf * 2).sum().backward()
            dist.all_reduce(leaf.grad)
        dist.destroy_process_group()

    return lambda: lab.run_ranks(program, 2) and None


KINDS = {"train": train, "amp": amp, "backward": backward, "record": record, "ranks": ranks, "alarm": train}


def main(kind: str, seed: int, count: int) -> None:
    machine = lab.enable("a100:2")
    dice = random.Random(seed)
    number = signal.SIGALRM if kind == "alarm" else signal.SIGINT
    if kind == "alarm":  # a program's own handler that raises, as timeouts have
        signal.signal(number, signal.default_int_handler)
    send = threading.Event()
    sent = 0

    def sender() -> None:
        nonlocal sent
        while True:
            send.wait()
            send.clear()
            until = time.perf_counter() + dice.random() * SPREAD
            while time.perf_counter() < until:
                time.sleep(0)
            sent += 1
            os.kill(os.getpid(), number)

    threading.Thread(target=sender, daemon=True).start()
    step = KINDS[kind]()
    step()
    arrived = wrong = 0
    while arrived < count:
        try:
            send.set()
            while True:
                step()
        except KeyboardInterrupt:
            arrived += 1
        if arrived % 10 == 0 or arrived == count:
            step()
            for found in inconsistent(machine):
                wrong += 1
                print("inconsistent:", found, flush=True)
    print(f"{kind}: {sent} sent, {arrived} arrived, {wrong} inconsistent")
    sys.exit(sent != arrived or wrong > 0)


def inconsistent(machine: Machine) -> list[str]:
    """What is wrong with the machine: twice, because another thread (a panel's, a rank's that ends) may be at work."""
    if not _inconsistent(machine):
        return []
    time.sleep(1)
    return _inconsistent(machine)


def _inconsistent(machine: Machine) -> list[str]:
    gc.collect()
    for device in machine.devices:  # the allocator frees blocks of other streams at the next allocation
        torch.cuda.synchronize(device.index)
        torch.empty(1, device=f"cuda:{device.index}")
    tensors = [thing for thing in gc.get_objects() if type(thing) is FakeCudaTensor]
    said = [] if torch.is_grad_enabled() else ["gradients are switched off"]
    if unmade := [tensor for tensor in tensors if not hasattr(tensor, "_device")]:
        said.append(f"{len(unmade)} tensors are only half made")
    for device in machine.devices:
        buffers = [tensor._buffer for tensor in tensors if getattr(tensor, "_device", None) is device]
        buffers += device.workspaces.values()
        held = sum({buffer.block.address: buffer.block.size for buffer in buffers if buffer.block is not None}.values())
        allocated = torch.cuda.memory_allocated(device.index)
        if allocated != held:
            said.append(f"{allocated} bytes of {device} are allocated, and its tensors hold {held}")
    return said


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
