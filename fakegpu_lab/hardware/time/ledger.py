"""A device's counters: kernels launched and bytes moved."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Ledger:
    """Counters of one device since the machine was enabled (a reset is a new machine).

    Transfers are counted where a driver counts them: a host-to-device copy on the receiving device, a device-to-host
    copy on the sending one, a peer copy on both (`p2p_sent`, `p2p_received`). Collectives are counted on every device
    that takes part, with their size as NCCL counts it, and the time that the device waited for the others.

    Attributes
    ----------
    h2d_ns, d2h_ns, p2p_sent_ns
        The total time of the copies, in nanoseconds.
    p2p_sent_to
        The bytes sent, by the receiving card's slot.
    """

    kernels: int = 0
    h2d_count: int = 0
    h2d_bytes: int = 0
    d2h_count: int = 0
    d2h_bytes: int = 0
    p2p_sent_count: int = 0
    p2p_sent_bytes: int = 0
    p2p_received_count: int = 0
    p2p_received_bytes: int = 0
    collective_count: int = 0
    collective_bytes: int = 0
    collective_wait_ns: int = 0
    h2d_ns: int = 0
    d2h_ns: int = 0
    p2p_sent_ns: int = 0
    p2p_sent_to: dict[int, int] = field(default_factory=dict)

    def host_to_device(self, nbytes: int) -> None:
        """Count one copy of `nbytes` bytes from host memory to this device."""
        self.h2d_count += 1
        self.h2d_bytes += nbytes

    def device_to_host(self, nbytes: int) -> None:
        """Count one copy of `nbytes` bytes from this device to host memory."""
        self.d2h_count += 1
        self.d2h_bytes += nbytes

    def peer_to_peer(self, receiver: Ledger, nbytes: int) -> None:
        """Count one copy of `nbytes` bytes from this device to the device whose ledger is `receiver`."""
        self.p2p_sent_count += 1
        self.p2p_sent_bytes += nbytes
        receiver.p2p_received_count += 1
        receiver.p2p_received_bytes += nbytes
