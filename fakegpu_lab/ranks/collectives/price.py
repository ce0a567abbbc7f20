"""What an operation between ranks costs: `hardware.fabric` asked in the words of torch.distributed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab.hardware.network import nccl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.hardware.network.fabric import Cost, Fabric
    from fakegpu_lab.hardware.network.nccl import Operation as Named

FABRICS_NAMES: dict[str, Named] = {
    "ALLREDUCE": "all_reduce",
    "ALLREDUCE_COALESCED": "all_reduce",
    "BROADCAST": "broadcast",
    "REDUCE": "reduce",
    "ALLGATHER": "all_gather",
    "_ALLGATHER_BASE": "all_gather",
    "ALLGATHER_COALESCED": "all_gather",
    "GATHER": "gather",
    "SCATTER": "scatter",
    "REDUCE_SCATTER": "reduce_scatter",
    "_REDUCE_SCATTER_BASE": "reduce_scatter",
    "REDUCE_SCATTER_COALESCED": "reduce_scatter",
    "ALLTOALL": "all_to_all",
    "ALLTOALL_BASE": "all_to_all",
    "BARRIER": "barrier",
    "MONITORED_BARRIER": "barrier",
    "SEND": "send",
    "RECV": "recv",
    "RECVANYSOURCE": "recv",
}
"""What the fabric calls operations, by kind."""

GLOO_STEP_NS = 25_000
GLOO_RATE = 2.0e9
"""A step of Gloo's between two processes of a host, and its bytes per second: estimates, of TCP over loopback."""


def by_gloo(kind: str, nbytes: int, ranks: int) -> int:
    """Nanoseconds that Gloo takes between hosts' memories: its rings have the steps of NCCL's."""
    name = FABRICS_NAMES[kind]
    number = 1 if name in ("send", "recv") else nccl.steps(name, ranks)
    return number * GLOO_STEP_NS + round(nbytes * nccl.bus_factor(name, ranks) / GLOO_RATE * 1e9)


def price(kind: str, nbytes: int, links: Fabric, slots: Sequence[int]) -> Cost:
    """The time of an operation of that kind and size among devices in these places of the fabric."""
    return links.cost(FABRICS_NAMES[kind], slots, max(nbytes, 4))
