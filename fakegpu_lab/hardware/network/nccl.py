"""NCCL's model of a collective's time: latency and bandwidth of each algorithm and protocol; it takes the fastest.

After ncclTopoTuneModel and ncclTopoGetAlgoTime (src/graph/tuning.cc) and the search for channels (src/graph/search.cc)
of NCCL 2.27; the tables are from tuning.cc. NCCL uses them to choose, and chooses well. As times they need changes:
`latency_factor`, `NVLS_START` and `NETWORK_GROWTH`, chosen on published measurements (tests/fidelity). CollNet and PAT
are left out: they need switches that add up values, or one GPU for each node.

As in NCCL, latencies are in microseconds and bandwidths in GB/s.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Literal, NamedTuple

Operation = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
    "all_to_all", "gather", "scatter", "send", "recv", "barrier",
]  # fmt: skip
Algorithm = Literal["ring", "tree", "nvls", "nvls_tree", "p2p"]
Protocol = Literal["LL", "LL128", "Simple"]

_TWO_PASSES = ("all_reduce", "barrier")  # they reduce, then spread the result

VOLTA, AMPERE, HOPPER, BLACKWELL = range(4)
"""Generations, as in NCCL's tables; older cards count as Volta."""

_BASE: dict[str, dict[Protocol, float]] = {
    "tree": {"LL": 6.8, "LL128": 14.0, "Simple": 8.4},
    "ring": {"LL": 6.6, "LL128": 14.0, "Simple": 8.4},
}
_HOP: dict[str, dict[str, dict[Protocol, float]]] = {
    "nvlink": {
        "tree": {"LL": 0.6, "LL128": 1.25, "Simple": 4.0},
        "ring": {"LL": 0.6, "LL128": 1.9, "Simple": 3.4},
    },
    "pcie": {
        "tree": {"LL": 1.0, "LL128": 1.9, "Simple": 4.0},
        "ring": {"LL": 1.0, "LL128": 2.5, "Simple": 5.7},
    },
    "network": {
        "tree": {"LL": 5.0, "LL128": 8.5, "Simple": 14.0},
        "ring": {"LL": 2.7, "LL128": 4.0, "Simple": 14.0},
    },
}
_NVLS_TREE_NETWORK = 20.9

# By generation; for one node, two nodes, and more.
_MAX_LL = ((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0, 45.0, 35.0), (282.0, 90.0, 70.0))
_MAX_RING_LL128 = ((20.0,) * 3, (20.0,) * 3, (36.7,) * 3, (40.0,) * 3)
_MAX_TREE_LL128 = ((20.0,) * 3, (20.0,) * 3, (36.7, 36.7, 29.0), (55.6, 31.67, 20.0))
_MAX_TREE = ((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0), (70.0, 42.8, 24.0))
_MAX_NVLS_TREE = ((0.0,) * 3, (0.0,) * 3, (0.0, 57.7, 45.5), (0.0, 96.0, 80.0))
_NVLS_EFFICIENCY = (0.0, 0.0, 0.85, 0.74)

# Trees at medium sizes, by powers of two from 64 bytes.
_TREE_CORRECTION: dict[Protocol, tuple[float, ...]] = {
    "LL": (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1),
    "LL128": (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1),
    "Simple": (
        0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9,
        0.9,
    ),
}  # fmt: skip

_SPEEDS_INTRA: tuple[tuple[float, ...], ...] = (
    (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
    (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3),
    (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18),
)
_SPEEDS_INTER: tuple[tuple[float, ...], ...] = (
    (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12),
    (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
    (96, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
)
_MAX_CHANNELS = 16
"""Channels in a search; NCCL doubles them later, without changing the sum."""

NVLS_START = (0.0, 0.0, 60.0, 115.0)
"""Microseconds until NVLS runs at its bandwidth, by generation. NCCL's table says 25, which is enough for choosing; 8
H100 need this long at 4 to 256 MiB and 8 B200 at 64 MiB to 1 GiB, while the switches' pipeline fills."""

NETWORK_GROWTH = 0.03
"""By this LL's latency between nodes grows with each doubling from 8 bytes on (published.csv, two DGX A100)."""

RING_LL_BYTES = 512 * 8
"""Below this many bytes for each rank and channel, a ring with LL uses fewer channels: NCCL_LL_MAX_NTHREADS threads
with NCCL_LL_THREAD_THRESHOLD bytes each (enqueue.cc)."""


def latency_factor(generation: int) -> float:
    """How much longer latencies are than in NCCL's table, by generation: measured on A100, H100 and B200."""
    return 1.0 if generation == HOPPER else 1.3


@dataclass(frozen=True)
class Paths:
    """A communicator's ranks and the links between them, as NCCL's search finds them.

    Attributes
    ----------
    ranks, nodes
        Their numbers; the ranks are spread evenly.
    hardware
        ``"nvlink"`` or ``"pcie"``: how ranks of one node reach each other.
    generation
        `VOLTA` to `BLACKWELL`, of the oldest card.
    intra
        GB/s, one way, from a GPU to the others of its node.
    nic
        GB/s of one network card; `nics` is the number of a node's network cards for these ranks. Both 0 on one node.
    switched
        Whether all pairs of GPUs are linked alike, so that all rings are equal.
    nvls
        Whether the switches add up values (NVLink SHARP).
    amd
        Whether the hosts' processors are AMD's.
    latency_factor
        See `latency_factor`.
    """

    ranks: int
    nodes: int
    hardware: Literal["nvlink", "pcie"]
    generation: int
    intra: float
    nic: float = 0.0
    nics: int = 0
    switched: bool = True
    nvls: bool = False
    amd: bool = False
    latency_factor: float = 1.0

    @property
    def local(self) -> float:
        """The ranks of one node."""
        return self.ranks / self.nodes

    @property
    def scale(self) -> int:
        """The column of NCCL's tables: one node, two nodes, or more."""
        return min(self.nodes, 3) - 1


class Line(NamedTuple):
    """Time as a linear function of the size: latency in microseconds, and the algorithm's bandwidth in GB/s."""

    algorithm: Algorithm
    protocol: Protocol
    latency: float
    bandwidth: float

    def us(self, nbytes: int) -> float:
        """Microseconds for `nbytes` bytes."""
        return self.latency + nbytes / (1e3 * self.bandwidth)


def steps(operation: Operation, ranks: int) -> int:
    """The steps of a ring."""
    if operation in _TWO_PASSES:
        return 2 * (ranks - 1)
    return ranks - 1 if operation in ("all_gather", "reduce_scatter") else ranks


def bus_factor(operation: Operation, ranks: int) -> float:
    """Bus bandwidth divided by the algorithm's: the links' traffic for each byte (PERFORMANCE.md of nccl-tests)."""
    if ranks < 2:
        return 1.0
    if operation in _TWO_PASSES:
        return 2 * (ranks - 1) / ranks
    if operation in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        return (ranks - 1) / ranks
    return 1.0


def channels(total: float, generation: int) -> tuple[int, float]:
    """The number and speed of the channels on a GPU's links: the highest total, then the fewest channels (search.cc).

    >>> channels(240.0, AMPERE), channels(370.8, HOPPER)
    ((12, 20.0), (12, 30.0))
    """
    best, speed = 1, total
    most = 0.0
    for candidate in _SPEEDS_INTRA[max(generation - 1, 0)]:
        count = min(int(total / candidate + 0.01), _MAX_CHANNELS)
        if count * candidate > most:
            best, speed, most = count, float(candidate), count * candidate
    few = generation <= AMPERE or speed >= 50 or best <= 4
    if most and speed >= 25 and few:  # ncclTopoDupChannels
        twice = min(2 * best, _MAX_CHANNELS)
        best, speed = twice, speed * best / twice
    return best, speed


def _fitting(speeds: tuple[tuple[float, ...], ...], generation: int, most: float) -> float:
    """The highest of NCCL's channel speeds that is at most `most`."""
    return next((speed for speed in speeds[max(generation - 1, 0)] if speed <= most + 1e-9), most)


def _network(paths: Paths) -> float:
    """GB/s between nodes, one way: of all network cards, each at the speed that NCCL would give a channel."""
    return paths.nics * _fitting(_SPEEDS_INTER, paths.generation, paths.nic)


def lines(operation: Operation, paths: Paths, nbytes: int) -> list[Line]:
    """NCCL's candidates for a collective of `nbytes` bytes: of the whole result, or of a rank's whole input."""
    if operation in ("all_to_all", "gather", "scatter", "send", "recv"):
        return _direct(operation, paths)
    found: list[Line] = []
    protocols: tuple[Protocol, ...] = ("LL", "LL128", "Simple") if paths.hardware == "nvlink" else ("LL", "Simple")
    for protocol in protocols:
        found.append(_ring(operation, paths, protocol, nbytes))
        if operation in _TWO_PASSES:
            found.append(_tree(paths, protocol, nbytes))
    nvls = _nvls(operation, paths)
    return [*found, nvls] if nvls is not None else found


def _max_ll(paths: Paths) -> float:
    row = paths.generation if paths.nodes == 1 else AMPERE if paths.amd else VOLTA
    return _MAX_LL[row][paths.scale]


def _ring(operation: Operation, paths: Paths, protocol: Protocol, nbytes: int) -> Line:
    bus, count = _ring_bus(paths, protocol, nbytes)
    latency = _BASE["ring"][protocol] + _ring_hops(operation, paths, protocol)
    twice = operation in _TWO_PASSES
    if protocol == "Simple" and paths.nodes > 1 and twice and nbytes / (2 * count * paths.ranks) >= 64:
        latency *= 1.4 if paths.generation >= AMPERE else 1.9  # the plateau of rings
    bandwidth = bus * paths.ranks / steps(operation, paths.ranks)
    return Line("ring", protocol, latency * _longer(paths, protocol, nbytes), bandwidth)


def _ring_bus(paths: Paths, protocol: Protocol, nbytes: int) -> tuple[float, int]:
    """A ring's bus bandwidth, and its channels."""
    count, speed = channels(paths.intra, paths.generation)
    bus = count * speed
    if paths.nodes > 1:
        count = max(paths.nics, 1)
        bus = min(bus, _network(paths))
    if protocol == "LL":
        used = max(nbytes / (RING_LL_BYTES * paths.ranks), 1.0)
        bus = min(_max_ll(paths), bus * 0.5 * min(used / (2 * count), 1.0))
    elif protocol == "LL128":
        bus = min(bus * 0.92, count * _MAX_RING_LL128[paths.generation][paths.scale])
    return bus, count


def _ring_hops(operation: Operation, paths: Paths, protocol: Protocol) -> float:
    """The latency of a ring's hops."""
    # Without getNetOverhead, for posting to the network: rings forced on two nodes do not take it
    # (github.com/NVIDIA/deepops, docs/k8s-cluster/nvidia-network-operator.md).
    number = steps(operation, paths.ranks)
    if operation in ("broadcast", "reduce"):
        where = "network" if paths.nodes > 1 else paths.hardware
        if paths.switched:
            return _HOP[where]["ring"][protocol]
        return number * _HOP[where]["tree" if protocol == "Simple" else "ring"][protocol]
    inter = (2 if operation in _TWO_PASSES else 1) * (paths.nodes - 1)
    hop = _HOP[paths.hardware]["ring"][protocol]
    network = _HOP["network"]["tree" if paths.local == 1 else "ring"][protocol]
    return (number - inter) * hop + inter * network


def _tree(paths: Paths, protocol: Protocol, nbytes: int) -> Line:
    count, speed = channels(paths.intra, paths.generation)
    bus = count * speed
    if paths.nodes > 1:
        count = max(paths.nics, 1)
        # Of two trees, each with half of the bytes, every node is inside one: up once and down twice. Two nodes: once.
        bus = min(bus, _network(paths) * (2 if paths.nodes == 2 else 1))
    bus = min(bus * 0.92, count * _MAX_TREE[paths.generation][paths.scale])
    if protocol == "LL":
        bus = min(bus / 3.8, _max_ll(paths))
    elif protocol == "LL128":
        part = 7 / 9 if paths.nodes == 1 else 120 / 128
        bus = min(bus * part, count * _MAX_TREE_LL128[paths.generation][paths.scale])
    bus *= _corrected(protocol, nbytes)
    hops = (paths.local - 1) * _HOP[paths.hardware]["tree"][protocol]
    hops += (paths.nodes.bit_length() - 1) * _HOP["network"]["tree"][protocol]
    return Line("tree", protocol, (_BASE["tree"][protocol] + 2 * hops) * _longer(paths, protocol, nbytes), bus * 0.5)


def _longer(paths: Paths, protocol: Protocol, nbytes: int) -> float:
    """How much longer latencies are than in NCCL's table, for a size."""
    grows = protocol == "LL" and paths.nodes > 1
    return paths.latency_factor * (1 + grows * NETWORK_GROWTH * log2(max(nbytes / 8, 1)))


def _corrected(protocol: Protocol, nbytes: int) -> float:
    """NCCL's correction of a tree's bandwidth, interpolated between sizes, so that more bytes never take less time."""
    table = _TREE_CORRECTION[protocol]
    size = min(max(log2(max(nbytes, 1) / 64), 0.0), len(table) - 1.0)
    below = min(int(size), len(table) - 2)
    return table[below] + (table[below + 1] - table[below]) * (size - below)


def _nvls(operation: Operation, paths: Paths) -> Line | None:
    """NVLS: the switches add up or spread values; between nodes a tree, for all-reduce only. Barriers are too small."""
    efficiency = _NVLS_EFFICIENCY[paths.generation]
    several = paths.nodes > 1
    possible = operation == "all_reduce" or (operation in ("all_gather", "reduce_scatter") and not several)
    heads = int(paths.local)
    if not (paths.nvls and efficiency and possible) or heads < 3:
        return None
    # Each GPU is the head of one channel, which counts twice for it (ncclTopoSearchTryNvls).
    speed = _fitting(_SPEEDS_INTRA, paths.generation, paths.intra / (heads + 1))
    channel = speed * efficiency * (heads - 1) / heads
    channel *= 2 if operation == "all_reduce" else (heads - 1) / heads
    latency = NVLS_START[paths.generation]
    if several:
        between = _fitting(_SPEEDS_INTER, paths.generation, paths.nic) * paths.nics / heads
        most = _MAX_NVLS_TREE[paths.generation][paths.scale]
        channel = min(channel, most, between * (2 if paths.nodes == 2 else 1))
        latency += 2 * (paths.nodes.bit_length() - 1) * _NVLS_TREE_NETWORK
    bandwidth = heads * channel * paths.ranks / steps(operation, paths.ranks)
    return Line("nvls_tree" if several else "nvls", "Simple", latency, bandwidth)


def _direct(operation: Operation, paths: Paths) -> list[Line]:
    """Sends and receives, for which NCCL has no model: one hop each, all at once; the busiest link decides the time.

    That link is a rank's own, or the network of its node. (A GPU sends to many peers a little at a time, which is
    slower for small messages; this is not modelled.)
    """
    ranks, local = paths.ranks, paths.local
    away = (ranks - local) / ranks
    if operation == "all_to_all":
        inside, outside = (ranks - 1) / ranks, local * away
    elif operation in ("gather", "scatter"):  # everything passes through the root
        inside, outside = (ranks - 1) / ranks, away
    else:
        inside, outside = 1.0, 1.0 if paths.nodes > 1 else 0.0
    found = []
    for protocol, part in (("LL", 0.5), ("Simple", 1.0)):
        network = _network(paths) if operation not in ("send", "recv") else min(_network(paths), paths.nic)
        slowest = inside / paths.intra
        if outside and network:
            slowest = max(slowest, outside / network)
        where = "network" if paths.nodes > 1 else paths.hardware
        latency = (_BASE["ring"][protocol] + _HOP[where]["ring"][protocol]) * paths.latency_factor  # type: ignore[index]
        found.append(Line("p2p", protocol, latency, part / slowest))  # type: ignore[arg-type]
    return found


def fastest(operation: Operation, paths: Paths, nbytes: int) -> Line:
    """NCCL's choice: the fastest candidate."""
    return min(lines(operation, paths, nbytes), key=lambda line: line.us(nbytes))
