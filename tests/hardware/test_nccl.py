"""The time of collectives: NCCL's formulas one by one, the machine's topology, and two measured tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakegpu_lab.hardware.catalogue.spec import parse_spec
from fakegpu_lab.hardware.network import nccl
from fakegpu_lab.hardware.network.fabric import Fabric
from fakegpu_lab.hardware.network.links import Links
from fakegpu_lab.hardware.network.nccl import AMPERE, BLACKWELL, HOPPER, VOLTA, Line, Paths, lines
from tests.fidelity.measured import all_reduce_table

if TYPE_CHECKING:
    from pathlib import Path as Folder

A100 = Paths(8, 1, "nvlink", AMPERE, 240.0)
H100 = Paths(8, 1, "nvlink", HOPPER, 370.8, nvls=True)
GIB = 1 << 30


def line(operation: nccl.Operation, paths: Paths, algorithm: str, protocol: str, nbytes: int = GIB) -> Line:
    return next(
        found for found in lines(operation, paths, nbytes) if (found.algorithm, found.protocol) == (algorithm, protocol)
    )


def fabric(spec: str) -> Fabric:
    return Fabric(parse_spec(spec))


# ------------------------------------------------------------------------------------ measured


@pytest.mark.parametrize("card", ["a100", "h100"])
def test_all_reduce_on_eight_gpus_is_right_on_average(card: str) -> None:
    """Each size by itself is a row of tests/fidelity."""
    table = all_reduce_table(card.upper())
    errors = [abs(fabric(f"dgx-{card}").cost("all_reduce", range(8), nbytes).ns / 1e3 / us - 1) for nbytes, us in table]
    assert len(errors) == 9
    assert sum(errors) / len(errors) < 0.15


@pytest.mark.parametrize("machine", ["a100:8", "h100:8"])
def test_loose_modules_are_joined_as_on_a_board_of_eight(machine: str) -> None:
    board = "dgx-" + machine.partition(":")[0]
    for nbytes in (8, 1 << 20, GIB):
        assert fabric(machine).cost("all_reduce", range(8), nbytes) == fabric(board).cost(
            "all_reduce", range(8), nbytes
        )


@pytest.mark.parametrize(
    ("machine", "longer"), [("dgx-1v", 1.3), ("dgx-a100", 1.3), ("dgx-h100", 1.0), ("dgx-b200", 1.3)]
)
def test_latencies_are_as_in_nccls_table_on_hopper_alone(machine: str, longer: float) -> None:
    paths = fabric(machine).paths(range(8))
    assert line("all_reduce", paths, "ring", "LL").latency == pytest.approx(longer * (6.6 + 14 * 0.6))


# ------------------------------------------------------------------------------- NCCL's formulas


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_ring_takes_its_steps(ranks: int) -> None:
    paths = replace(A100, ranks=ranks)
    hops = {"LL": 0.6, "LL128": 1.9, "Simple": 3.4}
    base = {"LL": 6.6, "LL128": 14.0, "Simple": 8.4}
    for protocol, hop in hops.items():
        all_reduce = line("all_reduce", paths, "ring", protocol)
        assert all_reduce.latency == pytest.approx(base[protocol] + 2 * (ranks - 1) * hop)
        for operation in ("all_gather", "reduce_scatter"):
            assert line(operation, paths, "ring", protocol).latency == pytest.approx(base[protocol] + (ranks - 1) * hop)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_rings_bandwidth_is_the_bus_over_the_factor_of_the_operation(ranks: int) -> None:
    paths = replace(A100, ranks=ranks)
    factors = {
        "all_reduce": 2 * (ranks - 1) / ranks, "all_gather": (ranks - 1) / ranks, "reduce_scatter": (ranks - 1) / ranks,
        "broadcast": 1.0, "reduce": 1.0,
    }  # fmt: skip
    for operation, factor in factors.items():
        found = line(operation, paths, "ring", "Simple")  # type: ignore[arg-type]
        assert found.bandwidth * factor == pytest.approx(240.0)
        assert nccl.bus_factor(operation, ranks) == pytest.approx(factor)  # type: ignore[arg-type]
        assert line(operation, paths, "ring", "LL128").bandwidth * factor == pytest.approx(240.0 * 0.92)  # type: ignore[arg-type]
        assert line(operation, paths, "ring", "LL").bandwidth * factor == pytest.approx(87.7)  # type: ignore[arg-type]


def test_a_ring_of_ll_leaves_channels_out_for_few_bytes() -> None:
    few = line("all_reduce", A100, "ring", "LL", 8 * 4096 * 2)  # two of 24 channels, each with half data, half flags
    assert few.bandwidth * 2 * 7 / 8 == pytest.approx(240.0 / 2 * 2 / 24)
    one = line("all_reduce", A100, "ring", "LL", 8)
    assert one.bandwidth == pytest.approx(few.bandwidth / 2)
    assert line("all_reduce", A100, "ring", "LL", 8 * 4096 * 24).bandwidth * 2 * 7 / 8 == pytest.approx(87.7)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_tree_on_one_node_is_a_chain_up_and_down(ranks: int) -> None:
    paths = replace(A100, ranks=ranks)
    for protocol, base, hop in (("LL", 6.8, 0.6), ("LL128", 14.0, 1.25), ("Simple", 8.4, 4.0)):
        assert line("all_reduce", paths, "tree", protocol).latency == pytest.approx(base + 2 * (ranks - 1) * hop)
    big = 1 << 34  # beyond the correction's table but for its last entry
    assert line("all_reduce", paths, "tree", "LL", big).bandwidth == pytest.approx(240 * 0.92 / 3.8 / 2)
    assert line("all_reduce", paths, "tree", "LL128", big).bandwidth == pytest.approx(240 * 0.92 * 7 / 9 / 2)
    assert line("all_reduce", paths, "tree", "Simple", big).bandwidth == pytest.approx(240 * 0.92 * 0.9 / 2)
    assert line("all_reduce", paths, "tree", "LL", 64 << 12).bandwidth == pytest.approx(240 * 0.92 / 3.8 / 2 * 0.4)


def test_trees_are_for_all_reduce_alone() -> None:
    for operation in ("all_gather", "reduce_scatter", "broadcast", "reduce"):
        assert {found.algorithm for found in lines(operation, A100, GIB)} == {"ring"}  # type: ignore[arg-type]


def test_switches_that_add() -> None:
    found = line("all_reduce", H100, "nvls", "Simple")
    assert found.latency == 60.0
    assert line("all_reduce", replace(H100, generation=BLACKWELL), "nvls", "Simple").latency == 115.0
    # One head a GPU at 40 GB/s, the highest of NCCL's speeds at which nine times it fit into 370.8.
    assert found.bandwidth == pytest.approx(8 * 40 * 0.85 * 7 / 8 * 2 * 8 / 14)
    assert not any(found.algorithm == "nvls" for found in lines("all_reduce", replace(H100, nvls=False), GIB))
    assert not any(found.algorithm == "nvls" for found in lines("broadcast", H100, GIB))
    assert line("all_gather", H100, "nvls", "Simple").bandwidth == pytest.approx(8 * 40 * 0.85 * 7 / 8 * 7 / 8 * 8 / 7)


def test_two_nodes_a_ring_crosses_the_network_at_all_cards_together() -> None:
    paths = replace(A100, ranks=16, nodes=2, nic=25.0, nics=8)
    ring = line("all_reduce", paths, "ring", "Simple", 1 << 10)
    assert ring.latency == pytest.approx(8.4 + 28 * 3.4 + 2 * 14.0)
    assert ring.bandwidth * 30 / 16 == pytest.approx(8 * 24.0)
    plateau = line("all_reduce", paths, "ring", "Simple", GIB)
    assert plateau.latency == pytest.approx(1.4 * ring.latency)
    ll = line("all_gather", paths, "ring", "LL", 8)
    assert ll.latency == pytest.approx(6.6 + 14 * 0.6 + 1 * 2.7)
    on_amd = line("all_gather", replace(paths, amd=True), "ring", "LL")
    assert on_amd.bandwidth * 15 / 16 == pytest.approx(22.5)
    assert line("all_reduce", paths, "ring", "LL128").bandwidth * 30 / 16 == pytest.approx(min(192 * 0.92, 8 * 20))


def test_between_nodes_a_tree_takes_the_logarithm() -> None:
    for nodes, hops in ((2, 1), (4, 2), (8, 3)):
        paths = replace(A100, ranks=8 * nodes, nodes=nodes, nic=25.0, nics=8)
        assert line("all_reduce", paths, "tree", "LL", 8).latency == pytest.approx(6.8 + 2 * (7 * 0.6 + hops * 5.0))
    two, four = (replace(A100, ranks=8 * n, nodes=n, nic=25.0, nics=8) for n in (2, 4))
    big = 1 << 34
    assert line("all_reduce", two, "tree", "Simple", big).bandwidth == pytest.approx(8 * 23.6 * 0.9 / 2)
    assert line("all_reduce", four, "tree", "Simple", big).bandwidth == pytest.approx(8 * 17.8 * 0.9 / 2)


def test_between_nodes_of_switches_that_add() -> None:
    paths = replace(H100, ranks=16, nodes=2, nic=50.0, nics=8)
    found = line("all_reduce", paths, "nvls_tree", "Simple")
    assert found.latency == pytest.approx(60.0 + 2 * 20.9)
    assert found.bandwidth * 30 / 16 == pytest.approx(8 * 57.7)
    assert not any(found.algorithm.startswith("nvls") for found in lines("all_gather", paths, GIB))


def test_ranks_alone_on_their_nodes_feel_the_whole_latency() -> None:
    paths = Paths(2, 2, "nvlink", AMPERE, 240.0, nic=25.0, nics=1)
    assert line("all_gather", paths, "ring", "LL", 8).latency == pytest.approx(6.6 + 5.0)


def test_between_nodes_the_latency_of_small_messages_grows_with_their_size() -> None:
    two, one = replace(A100, ranks=16, nodes=2, nic=25.0, nics=8), replace(A100, ranks=8)
    for algorithm in ("ring", "tree"):
        small, large = (line("all_reduce", two, algorithm, "LL", nbytes).latency for nbytes in (8, 8 << 10))
        assert large == pytest.approx(1.3 * small)
        small, large = (line("all_reduce", one, algorithm, "LL", nbytes).latency for nbytes in (8, 8 << 10))
        assert large == small


def test_loose_cards_without_nvlink_meet_in_host_memory() -> None:
    nbytes = 1 << 28
    through_host, bridged = fabric("t4:8"), fabric("v100:8")
    took = through_host.cost("all_reduce", range(8), nbytes).ns
    assert 2 * 7 / 8 * nbytes / took < 6.5  # GB/s of a bus of PCIe 3: each byte goes in and out
    assert bridged.cost("all_reduce", range(8), nbytes).ns < took / 1.5


@pytest.mark.parametrize("machine", ["rtx3090:2", "dgx-a100", "cloud-4xt4"])
def test_with_peer_to_peer_disabled_gpus_meet_in_host_memory(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nbytes = 1 << 28
    usual = fabric(machine).cost("all_reduce", range(2), nbytes)
    monkeypatch.setenv("NCCL_P2P_DISABLE", "0")
    assert fabric(machine).cost("all_reduce", range(2), nbytes) == usual
    one = fabric(machine)
    assert one.cost("all_reduce", range(2), nbytes) == usual
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    assert one.cost("all_reduce", range(2), nbytes).ns > usual.ns or machine == "cloud-4xt4", (
        "later, on the same machine"
    )
    paths = fabric(machine).paths(range(2))
    assert paths.hardware == "pcie"
    assert not paths.nvls
    assert paths.intra < 13  # GB/s, of 24 that a slot of PCIe 4 has


def test_pci_express_has_its_own_latencies_and_no_ll128() -> None:
    paths = Paths(4, 1, "pcie", VOLTA, 12.0)
    assert line("all_reduce", paths, "ring", "Simple").latency == pytest.approx(8.4 + 6 * 5.7)
    assert line("all_reduce", paths, "ring", "Simple").bandwidth == pytest.approx(12 * 4 / 6)
    assert line("all_reduce", paths, "ring", "LL").bandwidth == pytest.approx(6 * 4 / 6)
    assert "LL128" not in {found.protocol for found in lines("all_reduce", paths, GIB)}


def test_broadcast_and_reduce_pay_one_hop_where_all_rings_are_alike_else_all() -> None:
    for operation in ("broadcast", "reduce"):
        assert line(operation, A100, "ring", "LL").latency == pytest.approx(7.2)  # type: ignore[arg-type]
        mesh = replace(A100, switched=False)
        assert line(operation, mesh, "ring", "LL").latency == pytest.approx(6.6 + 8 * 0.6)  # type: ignore[arg-type]
        assert line(operation, mesh, "ring", "Simple").latency == pytest.approx(8.4 + 8 * 4.0)  # type: ignore[arg-type]


def test_sends_are_bound_by_the_busiest_link() -> None:
    assert line("send", A100, "p2p", "Simple").bandwidth == pytest.approx(240)
    assert line("all_to_all", A100, "p2p", "Simple").bandwidth == pytest.approx(240 * 8 / 7)
    assert line("gather", A100, "p2p", "Simple").bandwidth == pytest.approx(240 * 8 / 7)
    nodes = replace(A100, ranks=16, nodes=2, nic=25.0, nics=8)  # half of each of eight buffers goes over the network
    assert line("all_to_all", nodes, "p2p", "Simple").bandwidth == pytest.approx(8 * 24 / 4)
    two = replace(A100, ranks=2, nodes=2, nic=25.0, nics=8)
    assert line("send", two, "p2p", "Simple").bandwidth == pytest.approx(25.0)
    assert line("send", A100, "p2p", "LL").latency < line("send", A100, "p2p", "Simple").latency


@pytest.mark.parametrize(
    ("total", "generation", "found"),
    [(240.0, AMPERE, (12, 20.0)), (370.8, HOPPER, (12, 30.0)), (120.0, VOLTA, (6, 20.0)), (12.0, VOLTA, (1, 12.0)),
     (721.8, BLACKWELL, (16, 45.0)), (5.0, VOLTA, (1, 5.0))],
)  # fmt: skip
def test_channels_are_as_fast_as_adds_up_to_most(total: float, generation: int, found: tuple[int, float]) -> None:
    assert nccl.channels(total, generation) == found


@given(
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send"]),
    st.sampled_from(["dgx-a100", "dgx-h100 x2", "dgx-1v", "t4-box", "desktop-2xrtx3090"]),
    st.integers(1, 1 << 33),
    st.integers(0, 1 << 30),
)
def test_more_bytes_never_take_less_time(operation: nccl.Operation, machine: str, nbytes: int, more: int) -> None:
    model = fabric(machine)
    group = range(len(model.spec.gpus) if operation != "send" else 2)
    assert model.cost(operation, group, nbytes).ns <= model.cost(operation, group, nbytes + more).ns


# ------------------------------------------------------------------------------------- topology


def test_a_group_within_a_node_does_not_know_of_the_network() -> None:
    nodes = fabric("dgx-a100 x2")
    assert nodes.cost("all_reduce", range(8), GIB) == fabric("dgx-a100").cost("all_reduce", range(8), GIB)
    across = nodes.paths((0, 1, 8, 9))
    assert (across.nodes, across.nic, across.nics) == (2, 25.0, 2)  # two GPUs of eight have two of eight cards
    assert nodes.paths(tuple(range(16))).nics == 8


def test_pci_express_by_way_of_the_host_is_shared_behind_a_switch() -> None:
    box = fabric("t4-box")  # two switches of two cards, no peer-to-peer
    assert box.paths((0, 2)).intra == pytest.approx(12.0, rel=1e-3)
    assert box.paths((0, 1)).intra == pytest.approx(6.0, rel=1e-3)
    assert box.paths((0, 1, 2, 3)).hardware == "pcie"


def test_of_a_mesh_only_the_links_between_the_groups_cards_count() -> None:
    station = fabric("dgx-station-a100")
    assert [station.paths(tuple(range(n))).intra for n in (2, 3, 4)] == pytest.approx([80, 160, 240])


def test_unlike_cards_meet_over_pci_express() -> None:
    assert fabric("a100:1,h100:1").paths((0, 1)).hardware == "pcie"


def test_a_bridge_joins_two_cards_and_a_board_all() -> None:
    board, bridges = fabric("a100:4"), fabric("a100-pcie-40gb:4")
    assert board.paths((0, 1, 2, 3)).hardware == bridges.paths((0, 1)).hardware == "nvlink"
    assert bridges.paths((2, 3)) == bridges.paths((0, 1))
    assert bridges.paths((1, 2)).hardware == bridges.paths((0, 1, 2, 3)).hardware == "pcie"
    assert fabric("t4,a100-pcie-40gb:2").paths((1, 2)).hardware == "nvlink"  # a pair, wherever it is plugged in
    over_pcie, over_nvlink = (one.cost("all_reduce", range(4), GIB).bus_bandwidth for one in (bridges, board))
    assert 15e9 < over_pcie < 25e9 < 200e9 < over_nvlink < 245e9


def test_a_copy_between_two_pairs_goes_over_pci_express() -> None:
    links = Links(parse_spec("rtx-3090:4"))
    assert links.nvlink(0, 1) == links.nvlink(3, 2) == 112.5e9
    assert links.nvlink(1, 2) == links.nvlink(0, 3) == 0


def test_a_group_of_one_is_a_copy_on_the_device() -> None:
    cost = fabric("a100").cost("all_reduce", (0,), GIB)
    assert (cost.algorithm, cost.bus_bandwidth) == ("copy", 0.0)
    assert cost.ns == pytest.approx(2_000 + GIB / (2039 / 2), rel=1e-3)  # each byte is read and written
    assert cost.bandwidth == pytest.approx(GIB / cost.ns * 1e9)


def test_a_file_of_ones_own_says_how_the_cards_are_joined(tmp_path: Folder) -> None:
    text = (Path(__file__).parents[2] / "profiles/nodes/dgx-a100.yaml").read_text()
    mine = tmp_path / "mine.yaml"
    mine.write_text(text.replace("bandwidth: 600 GB/s", "bandwidth: 300 GB/s\n  latency_factor: 2.0"))
    changed, plain = fabric(str(mine)).paths(tuple(range(8))), fabric("dgx-a100").paths(tuple(range(8)))
    assert changed.intra == pytest.approx(plain.intra / 2)
    assert changed.latency_factor == 2.0
    mine.write_text(text.replace("kind: nvswitch", "kind: pcie").replace("600 GB/s", "32 GB/s"))
    assert fabric(str(mine)).paths((0, 1)).intra == pytest.approx(12.18, rel=1e-2)
