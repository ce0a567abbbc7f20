"""The simulated time of operations between ranks.

As in ProcessGroupNCCL, an operation with ``async_op=True`` runs on a stream of the communicator's own, after the work
queued on the current stream; otherwise it runs on the current stream. It starts when it can start on every rank, and
ends on all at once. Waiting for it makes the current stream wait, not the host (except for a barrier).

`launch` runs at each rank's call, `charge` once all ranks have called, `wait` where a rank waits for the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.recorder import race_detection, results
from fakegpu_lab.driver.torch_cuda.streams import from_pool
from fakegpu_lab.hardware.first_use import CHANNEL_BYTES
from fakegpu_lab.hardware.network import nccl
from fakegpu_lab.hardware.time.clock import Mark, await_mark, here, record, synchronised
from fakegpu_lab.hardware.transfers import collectives
from fakegpu_lab.ranks.collectives import start_conditions
from fakegpu_lab.ranks.collectives.operation import KINDS, P2P
from fakegpu_lab.ranks.dist import dist

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.network.fabric import Cost, Fabric
    from fakegpu_lab.ranks.collectives.operation import Operation

CALL_NS = 12_000
"""What torch.distributed adds to a launch before NCCL gets it: Python, checks, a work object, events. (Timed from
Python, all-reduces on 8 H200 take 10 to 19 µs longer than those of nccl-tests on 8 H100, whose links are the same:
tests/fidelity/published.csv and all_reduce_8xH100.csv. Of sends and receives nothing is known; they do not pay it.)"""

GLOO_STEP_NS = 25_000
"""A step of Gloo's between two processes of a host: an estimate, of TCP over loopback."""

GLOO_RATE = 2.0e9
"""Gloo's bytes per second between two processes of a host: an estimate, of TCP over loopback."""


def gloo_ns(kind: str, nbytes: int, ranks: int) -> int:
    """Nanoseconds that Gloo takes between hosts' memories: its rings have the steps of NCCL's."""
    name = KINDS[kind].model
    number = 1 if name in ("send", "recv") else nccl.steps(name, ranks)
    return number * GLOO_STEP_NS + round(nbytes * nccl.bus_factor(name, ranks) / GLOO_RATE * 1e9)


def nccl_cost(kind: str, nbytes: int, links: Fabric, slots: Sequence[int]) -> Cost:
    """The cost of an operation of NCCL's between devices in these slots of the fabric."""
    return links.cost(KINDS[kind].model, slots, max(nbytes, 4))


def launch(operation: Operation) -> None:
    """A rank calls an operation: charge its host for the call, and choose its stream."""
    host = here.host
    device = operation.device
    if device is None:
        operation.after_ns = operation.launched_ns = host.now
        return
    _connect(operation, device)
    if operation.kind not in P2P:
        host.work(CALL_NS)
    current = host.streams[device]
    stream, after_ns = current, 0
    if operation.asynchronous:
        start_conditions.run_beside(operation)
        stream = _own_stream(operation)
        mark = record(host, current)
        # The wait belongs to this operation: earlier ones on the stream may not be placed in time yet.
        after_ns, end = mark.time, stream.end
        await_mark(host, stream, mark)
        stream.end = end
    operation.part = collectives.launch(host, device, stream, operation.global_rank, after_ns)
    reads, writes = (operation.inputs, operation.outputs) if _writes(operation) else (operation.main_tensors, [])
    operation.made_by = results.nodes_of(operation.main_tensors)
    operation.use = race_detection.collective(operation.part, _name(operation), reads, writes)
    operation.stream = stream
    operation.launched_ns = host.now
    operation.after_ns = max(host.now, after_ns)
    expected = operation.channel.expected(operation) if operation.kind not in P2P else None
    if expected is not None:
        ready = operation.after_ns if operation.asynchronous else max(host.now, stream.end)
        collectives.expect(operation.part, ready, expected)


def _connect(operation: Operation, device: Device) -> None:
    """Charge the first operation of each rank for the communicator, which ProcessGroupNCCL makes then."""
    channel = operation.channel
    key = (operation.rank, operation.peer) if operation.alone else (operation.rank,)
    if channel.backend == "nccl" and key not in channel.connected:
        machine = current.machine
        assert machine is not None
        channels = machine.fabric.channels(device.slot)
        ranks, part = (2, 0.5) if operation.alone else (channel.size, 1.0)
        try:
            nbytes = device.first_uses.communicator(ranks, round(channels * CHANNEL_BYTES * part))
        except RuntimeError as error:
            raise dist.DistBackendError(str(error)) from None
        channel.connected[key] = device, nbytes


def _writes(operation: Operation) -> bool:
    """Whether the caller's tensors are written: not the root's in a broadcast, only the root's in a reduce."""
    if operation.kind == "BROADCAST":
        return operation.rank != operation.root
    return operation.kind != "REDUCE" or operation.rank == operation.root


def written(parts: list[Operation]) -> list[Any]:
    """The tensors that an operation writes to, on all ranks."""
    return [tensor for part in parts if part.kind != "SEND" and _writes(part) for tensor in part.outputs or part.inputs]


def _name(operation: Operation) -> str:
    return f"{operation.channel.backend}:{KINDS[operation.kind].model}"


def _own_stream(operation: Operation) -> Any:
    """The stream on which a communicator's operations of one rank run; the first takes it from the device's pool.

    Sends and receives have a stream for each peer and direction (NCCL joins those of one group call in one kernel,
    where they do not wait for each other either).
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
    parts: list[Operation], cost: Cost | None = None, nbytes: int = 0, elsewhere: Sequence[tuple[int, int]] = ()
) -> None:
    """All ranks have called an operation: place it in time on each of their streams.

    Parameters
    ----------
    cost
        What it costs between devices; None between CPUs.
    nbytes
        Its size, where it is larger than that of the parts.
    elsewhere
        Global ranks that are other processes, and when each was ready, ns.
    """
    first = parts[0]
    nbytes = max([nbytes, *(part.nbytes for part in parts)])
    if cost is None:
        start = max([*(part.after_ns for part in parts), *(ready for _, ready in elsewhere)])
        end = start + gloo_ns(first.kind, nbytes, len(parts) + len(elsewhere))
    else:
        start, end = collectives.run(
            _name(first), [part.part for part in parts if part.part is not None],
            cost, nbytes, group=first.channel.name, number=first.number, elsewhere=elsewhere,
        )  # fmt: skip
    for part in parts:
        part.start_ns, part.end_ns = start, end
        if part.use is not None:
            part.use.end = end
        for stream in part.waiting:
            stream.end = max(stream.end, end)


def wait(operation: Operation) -> None:
    """The calling rank waits for an operation."""
    host, device, stream = here.host, operation.device, operation.stream
    if device is None or stream is None:
        host.wait(operation.end_ns)
        return
    current = host.streams[device]
    if not operation.done:  # a send that is not received yet: work queued until then is placed too early
        operation.waiting.append(current)
        if operation.use is not None:
            operation.use.awaited += (current,)
        start_conditions.block_stream(operation, current)
    elif current is not stream:
        mark = Mark(stream, operation.end_ns)
        mark.seen = {**stream.seen, stream: operation.end_ns}
        await_mark(host, current, mark)
    if operation.kind == "BARRIER":
        synchronised(host, [stream])
        device.hold(host, operation.end_ns, "torch.distributed.barrier")
