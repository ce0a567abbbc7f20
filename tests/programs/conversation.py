"""Every operation of torch.distributed on the ranks there are: `main` returns what this rank has after each."""

import gc
import os
import sys
import threading
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

REDUCTIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX")
DTYPES = (
    torch.float32,
    torch.bfloat16,
    torch.float64,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)


def numbers(rank: int, count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    return (torch.rand(count, generator=generator) * 5 + 0.5).to(dtype).cuda()


def main() -> list[Any]:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, size = dist.get_rank(), dist.get_world_size()
    found: list[Any] = []

    def keep(*tensors: torch.Tensor) -> None:
        found.append([t.double().tolist() for t in tensors])

    for name in REDUCTIONS:
        for dtype in DTYPES:
            if dtype is torch.bool and name == "AVG":
                continue
            x = numbers(rank, 5, dtype)
            dist.all_reduce(x, op=getattr(dist.ReduceOp, name))
            keep(x)
    x = numbers(rank, 40_000)  # in shares
    dist.all_reduce(x)
    keep(x[:3], x.sum())
    x = numbers(rank, 5)
    dist.all_reduce(x, op=dist._make_nccl_premul_sum(0.25))
    keep(x)
    x = torch.complex(numbers(rank, 3), numbers(rank + 9, 3))
    dist.all_reduce(x)
    keep(torch.view_as_real(x))
    for dtype in (torch.float32, torch.float8_e4m3fn, torch.complex64, torch.bool):
        x = numbers(rank, 4).to(dtype)
        dist.broadcast(x, src=size - 1)
        keep(torch.view_as_real(x) if x.is_complex() else x.float())
    x = numbers(rank, 4)
    dist.reduce(x, dst=0)
    keep(x) if rank == 0 else keep()
    x, y = numbers(rank, 6), torch.empty(6 * size).cuda()
    dist.all_gather_into_tensor(y, x)
    many = [torch.empty(6).cuda() for _ in range(size)]
    dist.all_gather(many, x)
    keep(y, *many)
    z = torch.empty(6).cuda()
    dist.reduce_scatter_tensor(z, y * (rank + 1))
    keep(z)
    dist.reduce_scatter(z, [part * (rank + 2) for part in many], op=dist.ReduceOp.MAX)
    keep(z)
    many = [torch.empty(6).cuda() for _ in range(size)] if rank == 0 else []
    dist.gather(x, many or None, dst=0)
    dist.scatter(z, [part + 1 for part in many] or None, src=0)
    keep(*many, z)
    y = torch.empty(size).cuda()
    dist.all_to_all_single(y, numbers(rank, size))
    keep(y)
    splits = [(rank + other) % 3 + 1 for other in range(size)]
    y = torch.empty(sum(splits)).cuda()
    dist.all_to_all_single(y, numbers(rank, sum(splits)), splits, splits)
    keep(y)
    outs = [torch.empty(n).cuda() for n in splits]
    dist.all_to_all(outs, list(numbers(rank, sum(splits)).split(splits)))
    keep(*outs)
    left, right = (rank - 1) % size, (rank + 1) % size
    y = torch.empty(3).cuda()
    if rank % 2:  # a send is over when it is received
        dist.recv(y, left)
        dist.isend(numbers(rank, 3), right).wait()
    else:
        dist.isend(numbers(rank, 3), right).wait()
        dist.recv(y, left)
    keep(y)
    ops = [dist.P2POp(dist.isend, numbers(rank + 5, 3), right), dist.P2POp(dist.irecv, y, left)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    keep(y)
    x = numbers(rank, 2)
    future = dist.all_reduce(x, async_op=True).get_future().then(lambda done: done.value()[0] * 2)
    keep(future.wait())
    tensors = [numbers(rank, 2) for _ in range(200)]  # more than a word holds
    with dist.distributed_c10d._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    keep(*tensors[:3])
    pair = dist.new_group([0, 1])
    if rank < 2:
        x = numbers(rank, 2)
        dist.all_reduce(x, group=pair)
        keep(x)
    keep(functional.all_gather_tensor(numbers(rank, 2), 0, dist.group.WORLD) + 0)
    keep(functional.reduce_scatter_tensor(numbers(rank, 2 * size), "avg", 0, dist.group.WORLD) + 0)
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    found.append(objects)
    dist.barrier()
    found.append([dist.get_backend(), dist.is_nccl_available(), torch.cuda.nccl.version() > (2, 20)])
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    dist.all_reduce(numbers(rank, 1 << 20))
    end.record()
    torch.cuda.synchronize()
    found.append(round(start.elapsed_time(end), 6))
    large, x = [numbers(rank, 1 << 21) for _ in range(2)], numbers(rank, 1 << 22)
    works = [dist.all_reduce(tensor, async_op=True) for tensor in large]
    start.record()
    for _ in range(8):  # kernels beside collectives take longer
        x = x + 1
    end.record()
    for work in works:
        work.wait()
    torch.cuda.synchronize()
    found.append(round(start.elapsed_time(end), 6))
    dist.destroy_process_group()
    return found


def threads_of_groups() -> list[str]:
    """The threads that still carry collectives, ten seconds after the groups were destroyed."""
    gc.collect()
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("group ")]
    for thread in threads:
        thread.join(10)
    return [thread.name for thread in threads if thread.is_alive()]


if __name__ == "__main__":
    torch.save(main(), os.path.join(sys.argv[1], f"{os.environ['RANK']}.pt"))  # noqa: PTH118
    if left := threads_of_groups():  # if they are in C++ when Python ends, the process aborts
        sys.exit(f"still running: {left}")
