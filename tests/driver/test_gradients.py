"""Tensors are looked at from a thread only while no other thread may change them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import fakegpu_lab as lab
from fakegpu_lab.driver.autograd import gradient_lock
from fakegpu_lab.driver.memory_report import categories

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.hardware.machine import Machine


def elsewhere(function: Callable[[], Any]) -> Any:
    """What `function` returns in another thread."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join(20)
    return found[0]


def trained() -> nn.Module:
    net = nn.Linear(64, 64).cuda()
    net(torch.ones(2, 64, device="cuda")).sum().backward()
    return net


def test_gradients_are_read_unless_another_thread_runs_backward(machine: Machine) -> None:
    def look() -> bool:
        with gradient_lock.held() as may_look:
            return may_look

    during: list[bool] = []
    leaf = torch.ones(3, device="cuda", requires_grad=True)
    middle = leaf * 2
    middle.register_hook(lambda grad: during.extend((look(), elsewhere(look))))
    middle.sum().backward()
    assert during == [True, False]
    assert elsewhere(look)


def test_after_a_backward_that_failed_they_are_read_again(machine: Machine) -> None:
    leaf = torch.ones(3, device="cuda", requires_grad=True)
    middle = leaf * 2
    middle.register_hook(lambda grad: grad[7])
    with pytest.raises(IndexError):
        middle.sum().backward()

    def look() -> bool:
        with gradient_lock.held() as may_look:
            return may_look

    assert elsewhere(look)


def test_a_snapshot_of_another_thread_leaves_its_tensors_alone(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = trained()
    assert net is not None
    before = lab.snapshot(categories=True).devices[0].memory
    assert before.categories is not None
    assert before.categories.gradients > 0

    def never() -> Any:
        raise AssertionError

    monkeypatch.setattr(categories, "_FINDER", never)
    memory = elsewhere(lambda: lab.snapshot(categories=True)).devices[0].memory
    assert memory.categories == before.categories
    more = torch.ones(1 << 20, device="cuda")
    memory = elsewhere(lambda: lab.snapshot(categories=True)).devices[0].memory
    assert memory.categories.total == memory.allocated
    assert memory.categories.other - before.categories.other == more.nbytes
    assert memory.categories.parameters == before.categories.parameters > 0


def test_ranks_take_turns_and_may_look(machine: Machine) -> None:
    def program() -> bool:
        net = trained()
        found = lab.snapshot(categories=True).devices[0].memory.categories
        return found is not None and found.gradients > 0 and net is not None

    assert lab.run_ranks(program, 2) == [True, True]


def test_less_than_nothing_is_not_said(machine: Machine) -> None:
    """Another thread has freed memory since its tensors said what it is."""
    net = trained()
    claims = categories.claims(machine, categories.live())
    assert claims.sums(machine.devices[0]).other == 0
    del net
    assert claims.sums(machine.devices[0]).other == 0
