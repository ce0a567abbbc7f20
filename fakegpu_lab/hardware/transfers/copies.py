"""Copies between host and device and between devices: their simulated time, and their counts in the ledgers.

A device has one copy engine for each direction: copies in the same direction queue behind each other; copies in
opposite directions and kernels of other streams run at the same time. The host waits as "API synchronization behavior"
in the CUDA Runtime API describes, and for PyTorch's own synchronisation after it (aten/src/ATen/native/cuda/Copy.cu).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab.hardware.network.links import STAGED_BYTES
from fakegpu_lab.hardware.time.clock import synchronised
from fakegpu_lab.hardware.time.happens_before import merge

if TYPE_CHECKING:
    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.time.clock import Host


def to_device(host: Host, device: Device, nbytes: int, *, pinned: bool = False, non_blocking: bool = False) -> None:
    """Copy `nbytes` bytes from host memory, on the current stream.

    With pinned memory and `non_blocking`, the host continues at once. Otherwise it waits for the copy; for a small one
    from pageable memory with `non_blocking`, only until it is staged.
    """
    device.ledger.host_to_device(nbytes)
    end, staged = _queue_copy(host, device, "h2d", nbytes, pinned)
    if not non_blocking:
        _wait(host, device, end, "the copy to the device, which is not non_blocking")
    elif not pinned:
        why = "the copy to the device from pageable memory"
        _wait(host, device, staged if nbytes <= STAGED_BYTES else end, why)


def to_host(host: Host, device: Device, nbytes: int, *, pinned: bool = False, non_blocking: bool = False) -> None:
    """Copy `nbytes` bytes to host memory, on the current stream; only pinned and `non_blocking` does not wait."""
    device.ledger.device_to_host(nbytes)
    end, _ = _queue_copy(host, device, "d2h", nbytes, pinned)
    if not (pinned and non_blocking):
        _wait(host, device, end, "the copy to the host")


def to_peer(host: Host, source: Device, target: Device, nbytes: int) -> None:
    """Copy to another device, after all work queued on both current streams and before what they queue next."""
    ledger = source.ledger
    ledger.peer_to_peer(target.ledger, nbytes)
    ledger.p2p_sent_to[target.slot] = ledger.p2p_sent_to.get(target.slot, 0) + nbytes
    from_, to = host.streams[source], host.streams[target]
    host.now += from_.overhead
    ns = source.links.peer_ns(source.slot, target.slot, nbytes)
    ledger.p2p_sent_ns += ns
    before = max(from_.end, to.end)
    start = max(host.now, before, source.copy_engines["d2h"], target.copy_engines["h2d"])
    end = start + ns
    merge(from_.seen, {**to.seen, to: end})  # the copy, which is on both streams, included
    merge(to.seen, {**from_.seen, from_: end})
    from_.end = to.end = source.copy_engines["d2h"] = target.copy_engines["h2d"] = end
    recorder = source.timeline.recorder
    if recorder is not None:
        recorder.copy(host, from_, source.index, target.index, nbytes, start, end, pinned=None)


def _queue_copy(host: Host, device: Device, direction: str, nbytes: int, pinned: bool) -> tuple[int, int]:
    """Queue a copy on its engine; return when it ends, and when the host has staged it (if it must)."""
    stream = host.streams[device]
    host.now += stream.overhead
    to = direction == "h2d"
    ns = device.links.host_ns(device.slot, nbytes, to_device=to, pinned=pinned)
    if to:
        device.ledger.h2d_ns += ns
    else:
        device.ledger.d2h_ns += ns
    start = max(host.now, stream.end, device.copy_engines[direction])
    end = start + ns
    stream.end = device.copy_engines[direction] = end
    recorder = device.timeline.recorder
    if recorder is not None:
        source, target = (None, device.index) if to else (device.index, None)
        recorder.copy(host, stream, source, target, nbytes, start, end, pinned=pinned)
    return end, host.now + ns


def _wait(host: Host, device: Device, until: int, why: str) -> None:
    synchronised(host, [host.streams[device]])
    device.hold(host, until, why)
