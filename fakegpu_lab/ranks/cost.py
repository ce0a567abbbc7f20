"""What operations between ranks cost in simulated time.

As ProcessGroupNCCL does it: an operation with ``async_op=True`` runs on a stream of the group's own, after what the
current stream has queued; else on the current stream. It starts when it can start on every rank, and ends on all at
once. To wait for it lets the current stream wait, not the host (but for a barrier).

`charge` is told of every operation when all ranks have called it; how long it takes, `duration` says.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.torch_cuda.streams import from_pool
from fakegpu_lab.hardware import order
from fakegpu_lab.hardware.clock import Mark, await_mark, here, record

if TYPE_CHECKING:
    from fakegpu_lab.ranks.operation import Operation

_ALPHA_NS, _NS_PER_BYTE = 20_000, 0.01


def duration(parts: list[Operation]) -> int:
    """Nanoseconds that the operation takes between the devices of `parts`."""
    return _ALPHA_NS + int(max(part.nbytes for part in parts) * _NS_PER_BYTE)


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
    host.now += stream.overhead
    operation.stream = stream
    operation.launched_ns = operation.after_ns = host.now


def _own_stream(operation: Operation) -> Any:
    """The stream on which a channel's operations of one rank run, taken from the device's pool at the first."""
    streams, device = operation.channel.streams, operation.device
    key = (device, operation.rank)
    found = streams.get(key)
    if found is None and device is not None:
        found = streams[key] = device.stream_of(from_pool(device.index, 0))
    return found


def charge(parts: list[Operation]) -> None:
    """All ranks have called an operation: place it in time on each of their streams."""
    ns = duration(parts)
    start = 0
    for part in parts:
        start = max(start, part.after_ns, part.stream.end if part.stream is not None else 0)
    for part in parts:
        part.start_ns, part.end_ns = start, start + ns
        if part.stream is not None:
            part.stream.end = start + ns
            part.stream.busy += ns
            part.stream.ledger.kernels += 1


def wait(operation: Operation) -> None:
    """The calling rank waits for an operation that is complete."""
    host, device, stream = here.host, operation.device, operation.stream
    if device is None or stream is None:
        host.wait(operation.end_ns)
        return
    current = host.streams[device]
    if current is not stream:
        mark = Mark(stream, operation.end_ns)
        mark.seen = {**stream.seen, stream: operation.end_ns}
        await_mark(host, current, mark)
    if operation.kind == "BARRIER":
        order.synchronised(host, [stream])
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
