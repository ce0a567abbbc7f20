"""How long copies take over a machine's links, by hand, from the figures in its profiles."""

from __future__ import annotations

import pytest

from fakegpu_lab.hardware.catalogue.spec import parse_spec
from fakegpu_lab.hardware.network.links import Links

GB = 10**9
PCIE_3, PCIE_4, PCIE_5 = 15.76, 31.52, 63.04
"""GB/s one way of sixteen lanes on the wire, rounded as in the profiles."""

DIRECT, THROUGH_HOST = 2_500, 10_000


def links(spec: str) -> Links:
    return Links(parse_spec(spec))


def rate(spec: str, source: int, target: int) -> float:
    """GB/s of a copy between two cards."""
    return links(spec).peer(source, target)[0] / GB


@pytest.mark.parametrize(
    ("machine", "pinned", "to_device", "to_host"),
    [
        ("v100", PCIE_3 * 0.82, 10.0, 10.8),  # pageable memory is slower than the link
        ("a100", PCIE_4 * 0.82, 10.0, 10.8),
        ("h100", PCIE_5 * 0.88, 10.0, 10.8),
        ("desktop-2xrtx3090", PCIE_4 / 2 * 0.82, 10.0, 10.8),  # eight lanes in the slot
    ],
)
def test_host_copies(machine: str, pinned: float, to_device: float, to_host: float) -> None:
    one = links(machine)
    for nbytes in (0, 4 * GB):
        for towards in (True, False):
            ns = one.host_ns(0, nbytes, to_device=towards, pinned=True)
            assert ns == pytest.approx(1_500 + nbytes / pinned, rel=2e-3)
        assert one.host_ns(0, nbytes, to_device=True, pinned=False) == pytest.approx(1_500 + nbytes / to_device)
        assert one.host_ns(0, nbytes, to_device=False, pinned=False) == pytest.approx(1_500 + nbytes / to_host)


@pytest.mark.parametrize(
    ("machine", "source", "target", "expected", "latency"),
    [
        # NVLink: 0.87 of the bandwidth one way, which is half of what both directions have together.
        ("a100:2", 0, 1, 300 * 0.87, DIRECT),
        ("dgx-a100", 7, 0, 300 * 0.87, DIRECT),
        ("dgx-h100", 0, 7, 450 * 0.87, DIRECT),
        ("dgx-station-a100", 0, 3, 300 / 3 * 0.87, DIRECT),  # a mesh: each of the three others has a third of the links
        ("dgx-1v", 2, 5, 150 / 7 * 0.87, DIRECT),
        ("desktop-2xrtx3090", 0, 1, 56.25 * 0.87, DIRECT),
        # Across nodes: the network card, or the slot where that is slower.
        ("dgx-a100 x2", 7, 8, 25, THROUGH_HOST),
        ("dgx-a100 x2", 8, 15, 300 * 0.87, DIRECT),
        ("dgx-a100 x2", 15, 0, 25, THROUGH_HOST),
        ("dgx-b200 x2", 0, 8, 50, THROUGH_HOST),
        ("dgx-1v x2", 0, 8, 12.5, THROUGH_HOST),
        ("dgx-station-a100 x2", 0, 4, PCIE_4 * 0.82, THROUGH_HOST),  # no network card is known: the slot's rate
        # Without NVLink: PCI Express, directly or by way of the host's memory.
        ("cloud-4xt4", 0, 3, PCIE_3 * 0.82, THROUGH_HOST),
        ("t4:2", 0, 1, PCIE_3 * 0.82, THROUGH_HOST),
        ("a100-pcie-40gb:4", 1, 2, PCIE_4 * 0.82, DIRECT),  # two bridges: the cards between them are peers
        ("a100:1,v100:1", 0, 1, PCIE_3 * 0.82, THROUGH_HOST),  # unlike cards, at the slower one's rate
        ("v100:1,a100:1", 0, 1, PCIE_3 * 0.82, THROUGH_HOST),
    ],
)
def test_copies_between_cards(machine: str, source: int, target: int, expected: float, latency: int) -> None:
    one = links(machine)
    found, first_byte = one.peer(source, target)
    assert (found / GB, first_byte) == (pytest.approx(expected, rel=2e-3), latency)
    assert one.peer(target, source) == (found, first_byte)
    assert one.peer_ns(source, target, 0) == latency
    assert one.peer_ns(source, target, 3 * GB) == pytest.approx(latency + 3 * GB / found * 1e9, rel=1e-6)
    assert one.direct(source, target) == (latency == DIRECT)


def test_a_card_reaches_itself_without_the_host() -> None:
    assert links("t4:2").direct(1, 1)


@pytest.mark.parametrize(
    ("machine", "pair", "expected"),
    [
        ("a100:2", (0, 1), 600),
        ("dgx-a100 x2", (8, 9), 600),
        ("dgx-a100 x2", (0, 8), 0),
        ("dgx-station-a100", (1, 2), 200),
        ("cloud-4xt4", (0, 1), 0),
        ("desktop-2xrtx4090", (0, 1), 0),
        ("a100:1,v100:1", (0, 1), 0),
        ("t4,a100", (0, 1), 0),
        ("a100,t4", (0, 1), 0),
    ],
)
def test_what_nvlink_has_between_two_cards(machine: str, pair: tuple[int, int], expected: float) -> None:
    assert links(machine).nvlink(*pair) / GB == pytest.approx(expected)
