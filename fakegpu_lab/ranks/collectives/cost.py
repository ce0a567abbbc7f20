"""What operations between ranks cost in simulated time.

As ProcessGroupNCCL does it: an operation with ``async_op=True`` runs on a stream of the group's own, after what the
current stream has queued; else on the current stream. It starts when it can start on every rank, and ends on all at
once. To wait for it lets the current stream wait, not the host (but for a barrier).

`charge` is told of every operation when all ranks have called it; how long it takes, the channel says, which asks the
machine's fabric (`price`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.recorder import races
from fakegpu_lab.driver.torch_cuda.streams import from_pool
from fakegpu_lab.hardware.time.clock import Mark, await_mark, here, record, synchronised
from fakegpu_lab.hardware.transfers import collectives
from fakegpu_lab.ranks.collectives import start_conditions
from fakegpu_lab.ranks.collectives.operation import P2P
from fakegpu_lab.ranks.collectives.price import FABRICS_NAMES, by_gloo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.hardware.network.fabric import Cost
    from fakegpu_lab.ranks.collectives.operation import Operation


def launch(operation: Operation) -> None:
    """A rank calls an operation: its host pays for the call, its stream is chosen."""
    host = here.host
    device = operation.device
    if device is None:
        operation.after_ns = operation.launched_ns = host.now
        return
    current = host.streams[device]
    stream = current
    if operation.asynchronous:
        stream = _own_stream(operation)
        mark = record(host, current)
        await_mark(host, stream, mark)
    operation.part = collectives.launch(host, device, stream, operation.global_rank)
    reads, writes = (operation.inputs, operation.outputs) if _writes(operation) else (operation.shown, [])
    operation.use = races.collective(operation.part, _name(operation), reads, writes)
    operation.stream = stream
    operation.launched_ns = operation.after_ns = host.now


def _writes(operation: Operation) -> bool:
    """Whether a rank's tensors are written to: those of whoever broadcasts, or gives to another one, are not."""
    if operation.kind == "BROADCAST":
        return operation.rank != operation.root
    return operation.kind != "REDUCE" or operation.rank == operation.root


def _name(operation: Operation) -> str:
    return f"{operation.channel.backend}:{FABRICS_NAMES.get(operation.kind, operation.kind.lower())}"


def _own_stream(operation: Operation) -> Any:
    """The stream on which a channel's operations of one rank run, taken from the device's pool at the first.

    Sends and receives have a stream for each other rank and direction (NCCL joins those of one group call in one
    kernel, where they do not wait for each other either).
    """
    streams, device = operation.channel.streams, operation.device
    key: tuple[Any, ...] = (device, operation.rank)
    if operation.kind in P2P:
        key = (*key, operation.peer, operation.kind == "SEND")
    found = streams.get(key)
    if found is None and device is not None:
        found = streams[key] = device.stream_of(from_pool(device.index, 0))
    return found


def charge(
    parts: list[Operation], price: Cost | None = None, nbytes: int = 0, elsewhere: Sequence[tuple[int, int]] = ()
) -> None:
    """All ranks have called an operation: place it in time on each of their streams.

    Parameters
    ----------
    price, nbytes
        What it costs and its size, where the channel does not see that from the parts.
    elsewhere
        Global ranks that are other processes, and when each was ready, ns.
    """
    first = parts[0]
    if first.part is None:
        start = max([*(part.after_ns for part in parts), *(ready for _, ready in elsewhere)])
        nbytes = max([nbytes, *(part.nbytes for part in parts)])
        end = start + by_gloo(first.kind, nbytes, len(parts) + len(elsewhere))
    else:
        price = price or first.channel.price(parts)
        nbytes = max([nbytes, *(part.nbytes for part in parts)])
        start, end = collectives.run(
            _name(first), [part.part for part in parts if part.part is not None], price, nbytes,
            group=first.channel.name, number=first.number, elsewhere=elsewhere,
        )  # fmt: skip
    for part in parts:
        part.start_ns, part.end_ns = start, end
        if part.use is not None:
            part.use.end = end
        for stream in part.waiting:
            stream.end = max(stream.end, end)


def wait(operation: Operation) -> None:
    """The calling rank waits for an operation that is complete."""
    host, device, stream = here.host, operation.device, operation.stream
    if device is None or stream is None:
        host.wait(operation.end_ns)
        return
    current = host.streams[device]
    if not operation.done:  # a send whose receiver has not come: what is queued until then is placed too early
        operation.waiting.append(current)
        start_conditions.block(operation, current)
    elif current is not stream:
        mark = Mark(stream, operation.end_ns)
        mark.seen = {**stream.seen, stream: operation.end_ns}
        await_mark(host, current, mark)
    if operation.kind == "BARRIER":
        synchronised(host, [stream])
        device.hold(host, operation.end_ns, "torch.distributed.barrier")


class RankFuture(torch.futures.Future[Any]):
    """A future of an operation: to wait for it lets the current stream wait."""

    _operations: list[Operation]

    def wait(self) -> Any:
        """The tensors."""
        for operation in self._operations:
            wait(operation)
        return super().wait()


def future(operations: list[Operation], result: Any) -> torch.futures.Future[Any]:
    """A complete future of operations that are complete."""
    made = RankFuture()
    made._operations = operations
    made.set_result(result)
    if torch._C._current_graph_task_id() != -1:
        # DDP's reducer waits for it in C++, in a callback of the same backward that runs after this one.
        engine: Any = torch.autograd.Variable._execution_engine
        engine.queue_callback(partial(_wait_for_all, operations))
    return made


def _wait_for_all(operations: list[Operation]) -> None:
    for operation in operations:
        wait(operation)
