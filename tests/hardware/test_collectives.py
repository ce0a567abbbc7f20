"""Collectives in simulated time: who waits for whom, what is counted, what is recorded."""

from __future__ import annotations

from fakegpu_lab.hardware.catalogue.spec import parse_spec
from fakegpu_lab.hardware.machine import Machine
from fakegpu_lab.hardware.network.fabric import Cost
from fakegpu_lab.hardware.time.clock import Host, launch
from fakegpu_lab.hardware.time.recorder import Recorder
from fakegpu_lab.hardware.transfers import collectives

US = 1_000
COST = Cost(100 * US, "ring", "Simple", 1e9, 2e9)


def machine(spec: str = "a100:2") -> tuple[Machine, list[Host]]:
    made = Machine(parse_spec(spec))
    return made, [Host(name=f"rank {device.index}") for device in made.devices]


def everybody(made: Machine, hosts: list[Host], stream: int = 3) -> tuple[int, int]:
    parts = [
        collectives.launch(host, device, device.stream_of(stream), device.index)
        for host, device in zip(hosts, made.devices, strict=True)
    ]
    return collectives.run("nccl:all_reduce", parts, COST, 4096, group="0", number=7)


def test_all_wait_for_the_slowest_and_end_together() -> None:
    made, hosts = machine()
    hosts[1].work(50 * US)
    joined, end = everybody(made, hosts)
    assert (joined, end) == (55 * US, 155 * US)
    assert [device.end for device in made.devices] == [155 * US, 155 * US]
    assert [device.busy for device in made.devices] == [150 * US, 100 * US]  # a kernel that waits is a kernel that runs
    assert [device.ledger.collective_wait_ns for device in made.devices] == [50 * US, 0]
    assert [device.ledger.collective_count for device in made.devices] == [1, 1]
    assert [device.ledger.collective_bytes for device in made.devices] == [4096, 4096]
    assert [device.ledger.kernels for device in made.devices] == [0, 0]
    assert [host.now for host in hosts] == [5 * US, 55 * US]  # launched, not waited for


def test_a_stream_runs_one_collective_after_the_other() -> None:
    made, hosts = machine()
    everybody(made, hosts)
    assert everybody(made, hosts) == (105 * US, 205 * US)


def test_kernels_of_other_streams_run_beside_it_and_busy_time_is_counted_once() -> None:
    made, hosts = machine()
    device = made.devices[0]
    device.stream_of(3)
    launch(hosts[0], device.default_stream, 20 * US)
    assert everybody(made, hosts) == (10 * US, 110 * US)
    launch(hosts[0], device.default_stream, 30 * US)
    assert device.default_stream.end == (5 + 20 + 30) * US  # no room was taken from it
    assert device.busy == (110 - 5) * US


def test_what_is_recorded() -> None:
    made, hosts = machine()
    recorders = [Recorder(lambda host: 0, {0: ("op", (), None, 0, "net.0", "", ())}) for _ in range(2)]
    recorders[1].outer = recorders[0]
    for device in made.devices:
        device.record_to(recorders[1])
    hosts[1].work(50 * US)
    everybody(made, hosts)
    launch(hosts[0], made.devices[0].default_stream, US)
    for recorder in recorders:
        first, second = recorder.collectives
        assert (first.operation, first.group, first.number, first.ranks) == ("all_reduce", "0", 7, (0, 1))
        assert (first.rank, second.rank, second.device, second.thread) == (0, 1, 1, "rank 1")
        assert (first.start_ns, first.joined_ns, first.end_ns) == (5 * US, 55 * US, 155 * US)
        assert second.start_ns == second.joined_ns == first.joined_ns
        assert (first.waited, second.waited) == (50e-6, 0.0)
        assert (first.algorithm, first.protocol, first.bus_bandwidth, first.nbytes) == ("ring", "Simple", 2e9, 4096)
        assert first.module == "net.0"
        assert [kernel.correlation for kernel in recorder.kernels] == [3]
        assert recorder.totals[1, "nccl:all_reduce"].nbytes == 4096
        assert recorder.last_ns == 155 * US


def test_beyond_the_limit_only_totals_are_kept() -> None:
    made, hosts = machine()
    recorder = Recorder(lambda host: 0, {0: ("op", (), None, 0, "", "", ())}, limit=3)
    for device in made.devices:
        device.record_to(recorder)
    everybody(made, hosts)
    everybody(made, hosts)
    assert (len(recorder.collectives), recorder.dropped["collectives"]) == (3, 1)
    assert recorder.totals[1, "nccl:all_reduce"].count == 2
