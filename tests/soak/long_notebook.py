"""A notebook of many cells, all kinds in turn, in one kernel: ``python notebook.py CELLS``."""

from __future__ import annotations

import statistics
import sys
import time

import nbformat
from nbclient import NotebookClient

FIRST = """
%load_ext fakegpu_lab
%fakegpu a100:2
import fakegpu_lab as lab, os, psutil, torch
from torch import nn
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).cuda()
optimizer = torch.optim.Adam(net.parameters())
def step():
    optimizer.zero_grad()
    net(torch.randn(8, 16, device="cuda")).square().mean().backward()
    optimizer.step()
step()
"""
KINDS = (
    "for _ in range(20): step()",
    "%%gpuprofile\nstep()",
    """%%ranks 2
import torch.distributed as dist
dist.init_process_group("nccl")
x = torch.ones(4, device=dist.get_rank())
dist.all_reduce(x)
print(x.sum().item())""",
    "with lab.record() as trace: step()\ntrace",
    "%%check sum\nexpect.equal(torch.ones(2, device='cuda').sum().item(), 2.0)",
    "trace.figure()",
    "try: torch.empty(1 << 40, device='cuda')\nexcept torch.cuda.OutOfMemoryError as error: print(str(error)[:40])",
    "lab.panel()",
    "%%exercise sum\nstep()",
    "%fakegpu",
    "!nvidia-smi -L",
    "trace.summary()",
)
MEMORY = "print(psutil.Process().memory_info().rss)"
ALLOWED = 24 << 20
"""Bytes by which the kernel may grow after a quarter of the cells: IPython keeps inputs and outputs."""


def main(count: int) -> None:
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(FIRST)]
    book.cells += [nbformat.v4.new_code_cell(KINDS[number % len(KINDS)]) for number in range(count)]
    client = NotebookClient(book, timeout=300, kernel_name="python3")
    times: list[list[float]] = [[] for _ in KINDS]
    with client.setup_kernel():
        client.execute_cell(book.cells[0], 0)
        before = 0
        for number in range(count):
            began = time.monotonic()
            client.execute_cell(book.cells[number + 1], number + 1)
            times[number % len(KINDS)].append(time.monotonic() - began)
            if number in (count // 4, count - 1):
                asked = client.execute_cell(nbformat.v4.new_code_cell(MEMORY), number + 1)
                memory = int(asked.outputs[0].text)
                before = before or memory
        grown = memory - before
    slower = [statistics.median(one[-4:]) / statistics.median(one[1:5]) for one in times if len(one) > 8]
    said = f"at worst {max(slower):.1f} times as long at the end" if slower else "too few cells to compare times"
    size = len(nbformat.writes(book)) / 2**20
    print(
        f"{count} cells, {said}; "
        f"the kernel grew by {grown / 2**20:.1f} MiB of {before >> 20}; the file has {size:.1f} MiB"
    )
    sys.exit(grown > ALLOWED)


if __name__ == "__main__":
    main(int(sys.argv[1]))
