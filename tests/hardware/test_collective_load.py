"""What a collective takes from its card, and how much longer kernels beside it take."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from fakegpu_lab.hardware.catalogue.spec import parse_spec
from fakegpu_lab.hardware.machine import Machine
from fakegpu_lab.hardware.network import footprint
from fakegpu_lab.hardware.network.fabric import Cost, Fabric
from fakegpu_lab.hardware.network.nccl import Line
from fakegpu_lab.hardware.time.clock import Host, launch
from fakegpu_lab.hardware.transfers import collectives

if TYPE_CHECKING:
    from fakegpu_lab.hardware.device import Device

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
US, MS = 1_000, 1_000_000


# ------------------------------------------------------------- what it takes


@pytest.mark.parametrize(
    ("machine", "gpus", "nbytes", "blocks"),
    [
        ("rtx-4090:2", 2, GIB, 2),  # two where cards meet over PCI Express (nccl#689)
        ("dgx-1v", 8, GIB, 12),  # NCCL's own logs: V100
        ("dgx-a100", 8, GIB, 24),  # A100
        ("dgx-a100 x2", 16, GIB, 16),  # two for each network card (nccl#689)
        ("dgx-h100", 8, MIB, 24),  # H100: rings
        ("dgx-h100", 8, GIB, 16),  # NVLS
        ("dgx-b200", 8, 4 * GIB, 24),
        ("dgx-b200", 8, 25 * MIB, 32),
        ("dgx-b200 x2", 16, 4 * GIB, 32),
        ("dgx-a100", 8, 4, 1),
        ("rtx-4090:2", 2, 40 * KIB, 2),
        ("rtx-4090:2", 2, 12 * KIB, 1),  # too little for a second one
    ],
)  # fmt: skip
def test_a_collective_has_a_multiprocessor_for_each_of_nccls_channels(
    machine: str, gpus: int, nbytes: int, blocks: int
) -> None:
    assert Fabric(parse_spec(machine)).cost("all_reduce", range(gpus), nbytes).blocks == blocks


@pytest.mark.parametrize(
    ("algorithm", "protocol", "each"),
    [("ring", "LL", 8 * 4 * KIB), ("tree", "LL", 4 * KIB), ("ring", "LL128", 5 * KIB), ("ring", "Simple", 32 * KIB)],
)
def test_a_block_has_enough_to_do(algorithm: Any, protocol: Any, each: int) -> None:
    paths = Fabric(parse_spec("dgx-a100")).paths(tuple(range(8)))
    line = Line(algorithm, protocol, 1.0, 1.0)
    assert [footprint.blocks(line, paths, nbytes) for nbytes in (5 * each, 5 * each - 1, each - 1)] == [5, 4, 1]


def test_hopper_doubles_the_channels_of_few_network_cards() -> None:
    nodes = Fabric(parse_spec("dgx-h100 x2"))
    assert nodes.cost("all_gather", (0, 8), GIB).blocks == 4
    assert nodes.cost("all_gather", (0, 1, 8, 9), GIB).blocks == 8
    assert Fabric(parse_spec("dgx-a100 x2")).cost("all_gather", (0, 8), GIB).blocks == 2


def test_three_bytes_pass_through_memory_for_each_byte_on_the_links() -> None:
    cost = Fabric(parse_spec("dgx-a100")).cost("all_reduce", range(8), GIB)
    assert cost.memory_traffic == 3 * cost.bus_bandwidth
    assert Fabric(parse_spec("a100")).cost("all_reduce", (0,), GIB).memory_traffic == 0


# ------------------------------------------------------- what is left to kernels

CARD = "a100"  # 108 multiprocessors


@pytest.fixture
def device() -> Device:
    made = Machine(parse_spec(CARD)).devices[0]
    made.stream_of(3)
    return made


def called(
    device: Device, ready: int, ns: int, blocks: int = 0, of_memory: float = 0.0, stream: int = 3, now: int = 0
) -> None:
    """A collective that takes so many blocks, and this fraction of the bandwidth that a streaming kernel gets."""
    queue = device.stream_of(stream)
    part = collectives.launch(Host(now=now), device, queue)
    dram = device.roofline.dram_part
    traffic = of_memory / dram * 1e9 / device.roofline.ns_per_byte
    collectives.expect(part, ready, Cost(ns, "ring", "Simple", 1e9, 2e9, blocks, traffic))


def took(device: Device, ns: int, share: float = 1.0, nbytes: int = 0, after: int = 0) -> int:
    """The nanoseconds of a kernel that has the card to itself, but for the collectives."""
    host, stream = Host(now=after - device.default_stream.overhead), device.default_stream
    stream.end = 0
    device.timeline._lanes.clear()
    launch(host, stream, ns, share, 0, nbytes)
    return stream.end - after


def test_a_product_has_the_multiprocessors_that_are_left(device: Device) -> None:
    called(device, 0, 10 * MS, blocks=24, of_memory=0.3)
    assert took(device, MS) == round(Fraction(MS * 108, 108 - 24))
    assert took(device, MS, share=96 / 108) == round(Fraction(MS * 96, 108 - 24))
    assert took(device, MS, share=0.7) == MS  # there is room beside
    assert device.default_stream.busy == took(device, MS) + round(Fraction(MS * 96, 84)) + MS


def test_a_kernel_that_streams_has_the_bandwidth_that_is_left(device: Device) -> None:
    roofline = device.roofline
    nbytes = GIB
    alone = roofline.streaming(nbytes)
    called(device, 0, 100 * MS, blocks=24, of_memory=0.4)
    part = roofline.dram_part  # the rest is the way through the multiprocessors
    expected = alone * (part / (1 - 0.4) + (1 - part) * 108 / 84)
    assert took(device, alone, nbytes=nbytes) == pytest.approx(expected, rel=1e-6)
    called(device, 200 * MS, 100 * MS, blocks=54, of_memory=0.05)
    expected = alone * (part / (1 - 0.05) + (1 - part) * 2)  # less than twice: memory is what it waits for
    assert took(device, alone, nbytes=nbytes, after=200 * MS) == pytest.approx(expected, rel=1e-6)
    third = 3 * alone  # of the bandwidth: that is still there
    assert took(device, third, share=0.7, nbytes=nbytes) == third


def test_a_kernel_whose_bytes_stay_in_l2_does_not_need_the_bandwidth(device: Device) -> None:
    nbytes = 20 * MIB
    alone = device.roofline.streaming(nbytes)
    called(device, 0, 100 * MS, blocks=12, of_memory=0.8)
    assert took(device, alone, nbytes=nbytes) == round(Fraction(alone * 108, 96))


def test_only_the_part_beside_the_collective_takes_longer(device: Device) -> None:
    called(device, 100 * US, 100 * US, blocks=54)
    assert took(device, 100 * US, after=5 * US) == 105 * US  # 95, and then 5 at half the speed
    assert took(device, 200 * US, after=50 * US) == 250 * US  # 50 before, 50 of work beside it, 100 after it
    assert took(device, 100 * US, after=200 * US) == 100 * US


def test_a_kernel_may_meet_several_collectives(device: Device) -> None:
    called(device, 0, 100 * US, blocks=27)
    called(device, 0, 50 * US, blocks=27, stream=4)  # on another stream: at the same time
    called(device, 0, 100 * US, blocks=54)  # on the same stream: afterwards
    assert took(device, 50 * US, after=5 * US) == pytest.approx((45 + (50 - 45 / 2) * 4 / 3) * US, abs=2)
    assert took(device, 40 * US, after=120 * US) == 80 * US


def test_a_group_of_one_takes_nothing(device: Device) -> None:
    called(device, 0, MS)
    assert device.timeline.load is None


def test_collectives_leave_a_tenth_of_the_card(device: Device) -> None:
    called(device, 0, 100 * MS, blocks=108, of_memory=1.5)
    assert took(device, 10 * US) == 100 * US


def test_on_its_own_a_stream_has_the_whole_card() -> None:
    """Where all runs on one stream, nothing is beside a collective."""
    only = Machine(parse_spec(CARD)).devices[0]
    called(only, 0, MS, blocks=54, stream=0)
    assert took(only, 10 * US) == 10 * US
    assert only.timeline.load is None


def pending(device: Device) -> int:
    assert device.timeline.load is not None
    return sum(len(lane.work) for lane in device.timeline.load._lanes.values())


def test_ended_collectives_are_forgotten(device: Device) -> None:
    for index in range(1, 101):
        called(device, index * MS, US, blocks=24)
    assert pending(device) == 100  # a host that runs ahead
    assert took(device, 10 * US, after=100 * MS + 500 * US) == 10 * US
    assert pending(device) == 0
    for index in range(101, 200):
        called(device, index * MS, US, blocks=24, now=index * MS)
    assert pending(device) == 1
