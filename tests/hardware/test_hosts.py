"""Hosts: their profiles, which one a machine has, and what they make of an op's time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fakegpu_lab.hardware.catalogue.lookup import catalogue, gpu, host, node, usual_host
from fakegpu_lab.hardware.catalogue.spec import parse_spec
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.hardware.machine import Machine
from fakegpu_lab.hardware.time import host_costs

if TYPE_CHECKING:
    from pathlib import Path

HOSTS = {one: host(one) for one in catalogue("hosts")}


def test_each_card_has_one_usual_host() -> None:
    pairs = [
        (segment, architecture)
        for one in HOSTS.values()
        for usual in one.usual_for
        for segment in usual.segments
        for architecture in usual.architectures
    ]
    assert len(pairs) == len(set(pairs)), "two hosts are usual for the same cards"
    needed = {(card.segment, card.architecture) for card in map(gpu, catalogue())}
    assert needed <= set(pairs)


def test_a_hosts_factor_follows_from_its_processors_rating_unless_series_say_something_else() -> None:
    rated = {name: one.factor * one.single_thread for name, one in HOSTS.items() if one.single_thread}
    assert len(rated) >= 6
    for name in ("desktop-2021", "desktop-2023"):  # no series
        assert rated[name] == pytest.approx(host_costs.RATED, rel=0.02)
    assert all(0.6 < product / host_costs.RATED < 1.4 for product in rated.values()), rated


def test_each_node_names_its_host() -> None:
    for name in catalogue("nodes"):
        assert node(name).host.profile in HOSTS, name


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ("a100", "dgx-a100"),
        ("t4:2", "cloud-t4"),
        ("rtx4090", "desktop-2023"),
        ("dgx-1v", "dgx-1"),
        ("h100", "dgx-h100"),
    ],
)
def test_a_machine_has_the_usual_host_or_the_one_that_was_asked_for(spec: str, wanted: str) -> None:
    assert parse_spec(spec).host.id == wanted
    assert parse_spec(spec, host="desktop-2018").host.id == "desktop-2018"
    assert parse_spec(spec, host="measured").host.id == wanted
    assert parse_spec(spec, host="measured").measured


def test_a_fast_host_takes_less_time_than_an_old_one() -> None:
    old, new = Machine(parse_spec("v100")), Machine(parse_spec("v100", host="desktop-2023"))
    assert new.host.ns(10_000) < 0.5 * old.host.ns(10_000)
    assert new.devices[0].default_stream.overhead < old.devices[0].default_stream.overhead


def test_a_host_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: Mine\ncpu: Mine\nstatus: measured\nfactor: 2\nlaunch_us: 7.5\nsource: [measured]\n", "utf-8")
    machine = Machine(parse_spec("a100", host=str(path)))
    assert (machine.host.ns(1_000), machine.devices[0].default_stream.overhead) == (2_000, 7_500)


def test_what_is_no_host_is_refused_in_a_sentence() -> None:
    with pytest.raises(FakeGpuError, match="No host is called 'dgx-a10': the nearest"):
        parse_spec("a100", host="dgx-a10")
    with pytest.raises(FakeGpuError, match=r"No host is called 'a100-40gb'"):
        parse_spec("a100", host="a100-40gb")
    assert usual_host("datacenter", "unheard of").id == "dgx-a100"
