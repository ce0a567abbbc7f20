"""NCCL's tables, entry by entry, as they show in the bandwidths of trees, rings and channels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakegpu_lab.hardware.network import nccl
from fakegpu_lab.hardware.network.nccl import AMPERE, BLACKWELL, HOPPER, VOLTA, Paths
from tests.hardware.test_nccl import A100, fabric, line

# NCCL's tables, from ncclTuningConstants and the speeds of src/graph/search.cc: by generation, for one node, two, more.
MOST_OF_A_TREE = {
    VOLTA: (26.5, 18.5, 10.0), AMPERE: (24.0, 23.6, 17.8), HOPPER: (38.7, 41.4, 36.0), BLACKWELL: (70.0, 42.8, 24.0),
}  # fmt: skip
MOST_OF_A_TREE_LL128 = {
    VOLTA: (20.0,) * 3, AMPERE: (20.0,) * 3, HOPPER: (36.7, 36.7, 29.0), BLACKWELL: (55.6, 31.67, 20.0),
}  # fmt: skip
MOST_OF_A_RING_LL128 = {VOLTA: 20.0, AMPERE: 20.0, HOPPER: 36.7, BLACKWELL: 40.0}
MOST_OF_LL = {VOLTA: 39.0, AMPERE: 87.7, HOPPER: 141.0, BLACKWELL: 282.0}
SPEEDS = {
    AMPERE: (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
    HOPPER: (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3),
    BLACKWELL: (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18),
}
SPEEDS_BETWEEN_NODES = {
    AMPERE: (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12),
    HOPPER: (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
    BLACKWELL: (96, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
}
CORRECTION = {
    "LL": "1 1 1 1 .9 .8 .7 .7 .7 .7 .6 .5 .4 .4 .5 .6 .7 .8 .9 1 1 1 1",
    "LL128": "1 1 1 1 1 .9 .8 .8 .8 .7 .6 .6 .6 .6 .6 .6 .8 .9 .9 .9 .9 1 1",
    "Simple": ".9 .9 .9 .9 .9 .9 .9 .8 .7 .6 .6 .5 .5 .5 .5 .6 .7 .8 .7 .7 .8 .9 .9",
}
PLENTY = 1e4
"""GB/s, so that the tables alone are the limit."""


@pytest.mark.parametrize("generation", list(MOST_OF_A_TREE))
@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
def test_no_channel_of_a_tree_is_faster_than_nccl_says(generation: int, nodes: int) -> None:
    paths = Paths(8 * nodes, nodes, "nvlink", generation, PLENTY, nic=PLENTY, nics=4 if nodes > 1 else 0)
    count, big, column = 4 if nodes > 1 else 16, 1 << 34, min(nodes, 3) - 1
    bus = count * MOST_OF_A_TREE[generation][column]
    assert line("all_reduce", paths, "tree", "Simple", big).bandwidth == pytest.approx(bus * 0.9 / 2)
    part = 7 / 9 if nodes == 1 else 120 / 128
    ll128 = min(bus * part, count * MOST_OF_A_TREE_LL128[generation][column])
    assert line("all_reduce", paths, "tree", "LL128", big).bandwidth == pytest.approx(ll128 / 2)


@pytest.mark.parametrize("generation", list(MOST_OF_LL))
def test_no_ring_of_small_packets_is_faster_than_nccl_says(generation: int) -> None:
    paths = Paths(8, 1, "nvlink", generation, PLENTY)
    to_bus = 2 * 7 / 8
    ring = {protocol: line("all_reduce", paths, "ring", protocol).bandwidth * to_bus for protocol in ("LL", "LL128")}
    assert ring == pytest.approx({"LL": MOST_OF_LL[generation], "LL128": 16 * MOST_OF_A_RING_LL128[generation]})
    for nodes, on_intel, on_amd in ((2, 39.0, 22.5), (4, 20.4, 19.0)):
        between = replace(paths, ranks=8 * nodes, nodes=nodes, nic=PLENTY, nics=8)
        factor = nccl.bus_factor("all_reduce", 8 * nodes)
        for amd, most in ((False, on_intel), (True, on_amd)):
            found = line("all_reduce", replace(between, amd=amd), "ring", "LL").bandwidth * factor
            assert found == pytest.approx(most)


@pytest.mark.parametrize("protocol", list(CORRECTION))
def test_trees_lose_bandwidth_at_medium_sizes(protocol: str) -> None:
    """From 64 bytes on, by powers of two; between them, in a straight line."""
    factors = [float(factor) for factor in CORRECTION[protocol].split()]
    whole = line("all_reduce", A100, "tree", protocol, 1 << 40).bandwidth / factors[-1]
    found = [line("all_reduce", A100, "tree", protocol, 64 << power).bandwidth / whole for power in range(23)]
    assert found == pytest.approx(factors)
    assert line("all_reduce", A100, "tree", protocol, 8).bandwidth / whole == pytest.approx(factors[0])
    between = line("all_reduce", A100, "tree", protocol, round((64 << 12) * 2**0.5)).bandwidth / whole
    assert between == pytest.approx((factors[12] + factors[13]) / 2, rel=1e-4)


@pytest.mark.parametrize("generation", list(SPEEDS))
def test_channels_and_networks_have_nccls_speeds(generation: int) -> None:
    for speed in SPEEDS[generation]:  # one channel of all there is, halved into two if it is fast
        assert nccl.channels(speed + 0.005, generation) == ((2, speed / 2) if speed >= 25 else (1, speed))
    for speed in SPEEDS_BETWEEN_NODES[generation]:
        paths = Paths(2, 2, "nvlink", generation, PLENTY, nic=speed * 1.001, nics=1)
        assert line("send", paths, "p2p", "Simple").bandwidth == pytest.approx(speed)


def test_of_equal_sums_the_fewest_channels() -> None:
    assert nccl.channels(60.0, AMPERE) == (4, 15.0)  # 2 × 30, then doubled, and not 3 × 20
    assert nccl.channels(36.0, VOLTA) == (2, 18.0)
    assert nccl.channels(1000.0, VOLTA) == (16, 40.0)
    assert nccl.channels(150.0, HOPPER) == (6, 25.0)  # 3 × 50, doubled: fast ones are, on Hopper, too
    assert nccl.channels(330.0, HOPPER) == (11, 30.0)  # of 30 GB/s only up to four


@pytest.mark.parametrize(
    ("machine", "generation"),
    [("p100:2", VOLTA), ("t4:2", VOLTA), ("a100:2", AMPERE), ("l4:2", AMPERE), ("h100:2", HOPPER),
     ("b200:2", BLACKWELL), ("rtx5090:2", BLACKWELL), ("h100,v100", VOLTA)],
)  # fmt: skip
def test_the_oldest_card_decides_the_generation(machine: str, generation: int) -> None:
    assert fabric(machine).paths((0, 1)).generation == generation


@pytest.mark.parametrize(
    ("hardware", "operation", "protocol", "base", "hop"),
    [
        ("nvlink", "ring", "LL", 6.6, 0.6), ("nvlink", "ring", "LL128", 14.0, 1.9),
        ("nvlink", "ring", "Simple", 8.4, 3.4), ("nvlink", "tree", "LL", 6.8, 0.6),
        ("nvlink", "tree", "LL128", 14.0, 1.25), ("nvlink", "tree", "Simple", 8.4, 4.0),
        ("pcie", "ring", "LL", 6.6, 1.0), ("pcie", "ring", "Simple", 8.4, 5.7),
        ("pcie", "tree", "LL", 6.8, 1.0), ("pcie", "tree", "Simple", 8.4, 4.0),
    ],
)  # fmt: skip
def test_a_hop_takes_what_nccl_says(hardware: str, operation: str, protocol: str, base: float, hop: float) -> None:
    """hwLatencies: six hops of four ranks on one node, and what they take on four nodes of one rank each."""
    four = Paths(4, 1, hardware, AMPERE, 24.0)  # type: ignore[arg-type]
    assert line("all_reduce", four, operation, protocol, 8).latency == pytest.approx(base + 6 * hop)
    slow = replace(four, latency_factor=1.3)
    assert line("all_reduce", slow, operation, protocol, 8).latency == pytest.approx(1.3 * (base + 6 * hop))
    apart = replace(four, nodes=4, nic=12.0, nics=1)
    network = {"LL": 5.0, "LL128": 8.5, "Simple": 14.0}[protocol]
    hops = 6 if operation == "ring" else 4
    found = line("all_reduce", apart, operation, protocol, 8).latency
    assert found == pytest.approx(base + hops * network)


def test_on_pci_express_nobody_packs_120_of_128_bytes() -> None:
    assert {found.protocol for found in nccl.lines("all_reduce", Paths(4, 1, "pcie", AMPERE, 24.0), 8)} == {
        "LL", "Simple",
    }  # fmt: skip


def test_a_broadcast_waits_for_its_chunks_where_rings_differ() -> None:
    mesh = Paths(4, 1, "nvlink", VOLTA, 24.0, switched=False)
    for protocol, base, hop in (("LL", 6.6, 0.6), ("LL128", 14.0, 1.9), ("Simple", 8.4, 4.0)):
        assert line("broadcast", mesh, "ring", protocol).latency == pytest.approx(base + 4 * hop)
        even = replace(mesh, switched=True)
        assert line("broadcast", even, "ring", protocol).latency == pytest.approx(
            base + {"LL": 0.6, "LL128": 1.9, "Simple": 3.4}[protocol]
        )
        network = {"LL": 2.7, "LL128": 4.0, "Simple": 14.0}[protocol]
        between = replace(even, ranks=8, nodes=2, nic=12.0, nics=1)
        assert line("broadcast", between, "ring", protocol, 8).latency == pytest.approx(base + network)


def test_switches_add_for_three_ranks_or_more_and_trees_of_them_grow_with_nodes() -> None:
    for generation, start, efficiency in ((HOPPER, 60.0, 0.85), (BLACKWELL, 115.0, 0.74)):
        for ranks in (2, 3, 8):
            paths = Paths(ranks, 1, "nvlink", generation, PLENTY, nvls=True)
            nvls = [found for found in nccl.lines("all_reduce", paths, 1 << 30) if found.algorithm == "nvls"]
            assert len(nvls) == (ranks > 2)
            for found in nvls:
                speed = SPEEDS[generation][0] * efficiency * (ranks - 1) / ranks * 2
                assert found.bandwidth == pytest.approx(ranks * speed * ranks / (2 * (ranks - 1)))
                assert found.latency == start
        for nodes, column in ((2, 0), (4, 1), (8, 1)):
            paths = Paths(8 * nodes, nodes, "nvlink", generation, PLENTY, nic=PLENTY, nics=8, nvls=True)
            tree = line("all_reduce", paths, "nvls_tree", "Simple")
            assert tree.latency == pytest.approx(start + 2 * {2: 1, 4: 2, 8: 3}[nodes] * 20.9)
            most = {HOPPER: (57.7, 45.5), BLACKWELL: (96.0, 80.0)}[generation][column]
            assert tree.bandwidth * nccl.bus_factor("all_reduce", 8 * nodes) == pytest.approx(8 * most)
        paths = Paths(8, 1, "nvlink", AMPERE, PLENTY, nvls=True)
        assert not any("nvls" in found.algorithm for found in nccl.lines("all_reduce", paths, 1 << 30))
