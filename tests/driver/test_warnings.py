"""Warnings name the user's line, once for each line, as they do on a real GPU."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

import pytest
import torch

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fakegpu_lab.hardware.machine import Machine


@pytest.fixture
def shown() -> Iterator[list[warnings.WarningMessage]]:
    """What a program would print with Python's usual filters."""
    globals().pop("__warningregistry__", None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        yield caught


def here() -> int:
    """The line of the caller."""
    return sys._getframe(1).f_lineno


def lines(shown: list[warnings.WarningMessage]) -> list[int]:
    assert all(one.filename == __file__ for one in shown), [(one.filename, one.lineno) for one in shown]
    return [one.lineno for one in shown]


def test_a_warning_of_a_kernel_names_the_users_line(machine: Machine, shown: list[warnings.WarningMessage]) -> None:
    x = torch.ones(4, 4, device="cuda")
    x.std(dim=0, correction=5)
    assert [str(one.message)[:26] for one in shown] == ["std(): degrees of freedom "]
    assert lines(shown) == [here() - 2]


def test_each_line_of_the_user_warns_once(machine: Machine, shown: list[warnings.WarningMessage]) -> None:
    x = torch.ones(4, 4, device="cuda")
    for _ in range(3):
        x.std(dim=0, correction=5)
        x.std(dim=0, correction=5)
    assert lines(shown) == [here() - 2, here() - 1]


def test_a_filter_of_the_user_turns_it_into_an_error(machine: Machine) -> None:
    x = torch.ones(4, 4, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.filterwarnings("error", module=__name__)
        with pytest.raises(UserWarning, match="degrees of freedom"):
            x.std(dim=0, correction=5)
        warnings.filterwarnings("ignore", module=__name__)
        x.std(dim=0, correction=5)


def test_a_warning_in_backward_names_its_line(machine: Machine, shown: list[warnings.WarningMessage]) -> None:
    class Warns(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return grad.std(dim=0, correction=5).expand_as(grad)

    x = torch.ones(4, 4, device="cuda", requires_grad=True)
    Warns.apply(x).sum().backward()  # type: ignore[no-untyped-call]
    assert lines(shown) == [here() - 4]


def test_disable_gives_warnings_back() -> None:
    before = vars(warnings)["_showwarnmsg"]
    lab.enable("t4")
    lab.disable()
    assert vars(warnings)["_showwarnmsg"] is before
