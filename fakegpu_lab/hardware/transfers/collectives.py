"""Collectives in simulated time: each device's part runs on a stream of its own, and all end together.

Like NCCL's, a part's kernel starts when its launch has reached the card and its stream is free; it waits for the
others, which keeps the stream busy. When the last part has started, the bytes move for the time that `Fabric` computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fakegpu_lab.hardware.time.happens_before import merge
from fakegpu_lab.hardware.time.records import Collective

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.network.fabric import Cost
    from fakegpu_lab.hardware.time.clock import Host, Stream


@dataclass(slots=True, eq=False)
class Part:
    """One device's part in a collective.

    Attributes
    ----------
    rank
        The global rank that it belongs to.
    thread
        The host thread that launched it.
    launched_ns
        When the launch had reached the card.
    after_ns
        The end of what was queued on the current stream before it, if it runs on another one.
    ready_ns
        When its stream was free for it; set by `run`.
    note
        The index of the recorder's note about it; -1 outside a recording.
    """

    device: Device
    stream: Stream
    rank: int
    thread: str
    launched_ns: int
    after_ns: int = 0
    ready_ns: int = 0
    note: int = -1


def launch(host: Host, device: Device, stream: Stream, rank: int = 0, after_ns: int = 0) -> Part:
    """Launch a part: the host pays for the launch and continues."""
    host.now += stream.overhead
    recorder = device.timeline.recorder
    note = recorder.note(host) if recorder is not None else -1
    merge(stream.seen, host.seen)
    return Part(device, stream, rank, host.name, host.now, after_ns, host.now, note)


def expect(part: Part, ready_ns: int, cost: Cost) -> None:
    """Note what a collective that was just called will take from its card (`CollectiveLoad`)."""
    device = part.device
    if cost.blocks:
        device.timeline.expect(
            part.stream, part.launched_ns, ready_ns, cost.ns, cost.blocks, cost.memory_traffic, device.roofline
        )


def run(
    name: str,
    parts: Sequence[Part],
    cost: Cost,
    nbytes: int,
    *,
    group: str = "",
    number: int = 0,
    elsewhere: Sequence[tuple[int, int]] = (),
) -> tuple[int, int]:
    """Place a collective, whose parts are all launched, on their streams.

    Parameters
    ----------
    name
        Such as ``"nccl:all_reduce"``.
    nbytes
        Its size, as NCCL counts it.
    group, number
        The process group's name, and the operation's number in it.
    elsewhere
        Ranks that other processes simulate, and when each was ready, ns.

    Returns
    -------
    tuple
        When the last part was ready, and when all ended, ns.
    """
    for part in parts:
        part.ready_ns = max(part.launched_ns, part.after_ns, part.stream.end)
    joined = max([*(part.ready_ns for part in parts), *(ready for _, ready in elsewhere)])
    end = joined + cost.ns
    if cost.on_links_ns and len(parts) == 2:
        sender, receiver = (part.device.peer_links for part in parts)
        end = sender.carry(receiver, end - cost.on_links_ns, cost.on_links_ns)
    ranks = tuple(part.rank for part in parts)
    if elsewhere:
        ranks = tuple(sorted((*ranks, *(rank for rank, _ in elsewhere))))
    for part in parts:
        device, stream = part.device, part.stream
        stream.end = end
        stream.busy += end - part.ready_ns
        device.timeline.collective(stream, part.ready_ns, end)
        ledger = device.ledger
        ledger.collective_count += 1
        ledger.collective_bytes += nbytes
        ledger.collective_wait_ns += joined - part.ready_ns
        recorder = device.timeline.recorder
        if recorder is not None:
            record = Collective(
                name, device.index, stream.id, part.ready_ns, end, part.thread, group=group, rank=part.rank,
                ranks=ranks, number=number, nbytes=nbytes, algorithm=cost.algorithm, protocol=cost.protocol,
                bus_bandwidth=cost.bus_bandwidth, joined_ns=joined, launched_ns=part.launched_ns,
            )  # fmt: skip
            recorder.collective(record, part.note)
    return joined, end
