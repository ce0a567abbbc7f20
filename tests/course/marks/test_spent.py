"""A limit of time counts what a submission uses and sleeps, and not what a busy computer lets it wait."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from fakegpu_lab.course.grade.sandbox import measures
from fakegpu_lab.course.grade.sandbox.measures import LONGEST_LOOK, Spent


class Process:
    """One of which the test says what it does."""

    def __init__(self, status: str = psutil.STATUS_SLEEPING) -> None:
        self.used, self.asked = 0.0, status

    def status(self) -> str:
        return self.asked

    def cpu_times(self) -> Any:
        return SimpleNamespace(user=self.used, system=0.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(measures.time, "monotonic", lambda: now.seconds)
    return now


def passed(clock: SimpleNamespace, spent: Spent, tree: list[Any], seconds: float, share: float) -> None:
    """Time passes by the clock, in which the first process gets a share of a processor."""
    for _ in range(round(seconds * 10)):
        clock.seconds += 0.1
        tree[0].used += 0.1 * share
        spent.look(tree)


def test_a_process_that_wants_a_processor_and_gets_none_spends_nothing(clock: SimpleNamespace) -> None:
    spent, process = Spent(), Process(psutil.STATUS_RUNNING)
    passed(clock, spent, [process], 100, share=0.05)
    assert (spent.processor, spent.asleep) == (pytest.approx(5), 0)


def test_a_process_that_sleeps_spends_the_time(clock: SimpleNamespace) -> None:
    spent, process = Spent(), Process()
    passed(clock, spent, [process], 100, share=0)
    assert (spent.processor, spent.asleep) == (0, pytest.approx(100))


def test_a_process_whose_child_works_is_not_asleep(clock: SimpleNamespace) -> None:
    spent = Spent()
    passed(clock, spent, [Process(), Process(psutil.STATUS_RUNNING)], 10, share=0)
    assert spent.asleep == 0
    passed(clock, spent, [Process(), Process(psutil.STATUS_DISK_SLEEP)], 10, share=0)
    assert spent.asleep == 0, "a busy disk is not its fault, either"


def test_a_process_whose_other_threads_work_is_not_asleep(clock: SimpleNamespace) -> None:
    spent = Spent()
    passed(clock, spent, [Process()], 10, share=1.0)
    assert (spent.processor, spent.asleep) == (pytest.approx(10), 0)


def test_a_grader_that_had_to_wait_itself_charges_nobody(clock: SimpleNamespace) -> None:
    spent, process = Spent(), Process()
    clock.seconds += 60
    spent.look([process])
    assert spent.asleep == LONGEST_LOOK


def test_what_a_process_used_is_not_forgotten_when_it_is_gone(clock: SimpleNamespace) -> None:
    spent, child = Spent(), Process()
    child.used = 3.0
    spent.look([Process(), child])
    spent.look([Process()])
    assert spent.processor == 3.0
