"""CUDA_VISIBLE_DEVICES: which cards a process sees."""

from __future__ import annotations

import pytest

from fakegpu_lab.hardware.catalogue.spec import parse_spec
from fakegpu_lab.hardware.catalogue.visible_devices import visible
from fakegpu_lab.hardware.machine import Machine

UUIDS = ["GPU-aa11", "GPU-aa22", "GPU-bb33", "MIG-cc44"]

CASES = [
    (None, [0, 1, 2, 3]),
    ("", []),
    ("-1", []),
    ("0", [0]),
    ("2,0", [2, 0]),
    (" 1 , 2 ", [1, 2]),
    ("0,-1,1", [0]),
    ("0,9,1", [0]),
    ("9", []),
    ("1,1", []),
    ("0,9,9", []),
    ("1gpu2,2ampere", [1, 2]),
    ("+1", [1]),
    ("none", []),
    ("NoDevFiles", []),
    ("0,,1", [0]),
    ("0,", [0]),
    ("GPU-aa11", [0]),
    ("GPU-b", [2]),
    ("GPU-bb33,GPU-aa1", [2, 0]),
    ("GPU-aa", []),
    ("GPU-bb33,GPU-aa,GPU-aa11", [2]),
    ("GPU-bb33,GPU-zz", [2]),
    ("GPU-b,GPU-bb", []),
    ("GPU-bb33,1", [2]),
    ("0,GPU-bb33", [0]),
    ("MIG-cc", [3]),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_the_variable_is_read_as_cuda_reads_it(text: str | None, expected: list[int]) -> None:
    assert visible(text, UUIDS) == expected


def test_a_machine_numbers_the_cards_that_are_seen() -> None:
    machine = Machine(parse_spec("a100:3"))
    machine.set_visible_devices("2,0")
    assert [(d.slot, d.index, d.allocator.device) for d in machine.devices] == [(2, 0, 0), (0, 1, 1)]
    assert [d.index for d in machine.cards] == [1, -1, 0]
    assert [(d.slot, d.index) for d in machine.snapshot().devices] == [(0, 1), (1, -1), (2, 0)]
    machine.set_visible_devices(f"GPU-{machine.cards[1].uuid}")
    assert [d.slot for d in machine.devices] == [1]
    machine.set_visible_devices(None)
    assert machine.devices == machine.cards


def test_a_slice_of_a_card_has_a_uuid_of_its_kind() -> None:
    machine = Machine(parse_spec("a100-mig-1g.5gb:2"))
    machine.set_visible_devices(f"MIG-{machine.cards[1].uuid}")
    assert [d.slot for d in machine.devices] == [1]
