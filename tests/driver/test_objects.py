"""Looking through all of Python's objects: what is found, and that no other thread can tell."""

from __future__ import annotations

import gc
import sys
import threading

import pytest

from fakegpu_lab.driver.base import live_objects


class Base:
    pass


class Child(Base):
    pass


class Grandchild(Child):
    pass


def test_subclasses_at_any_depth() -> None:
    assert live_objects.subclasses(Base) == {Base, Child, Grandchild}
    assert type in live_objects.subclasses(object)


def test_the_objects_of_these_types_and_no_others() -> None:
    made = [Base(), Child(), Grandchild(), Child()]
    assert {id(one) for one in live_objects.live([Child])} == {id(made[1]), id(made[3])}
    assert len(live_objects.live(live_objects.subclasses(Base))) == 4
    assert live_objects.live([]) == []


def test_nothing_else_is_held_afterwards() -> None:
    bystanders = [(number, []) for number in range(500)]
    before = [sys.getrefcount(one) for one in bystanders]
    gc.collect()
    found = live_objects.live([Base])
    assert [sys.getrefcount(one) for one in bystanders] == before
    assert found == []
    assert gc.isenabled()


@pytest.mark.parametrize("collects", [True, False])
def test_the_garbage_collector_is_left_as_it_was(collects: bool) -> None:
    try:
        (gc.enable if collects else gc.disable)()
        live_objects.live([Base])
        assert gc.isenabled() is collects
    finally:
        gc.enable()


def test_another_thread_may_make_tuples_meanwhile() -> None:
    """Holding the list of all objects while Python code runs ends about every second tuple there in a SystemError."""
    wrong: list[BaseException] = []
    done = threading.Event()

    def makes() -> None:
        while not done.is_set():
            try:
                tuple(number for number in (1, 2))
            except SystemError as error:  # noqa: PERF203
                wrong.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    beside = threading.Thread(target=makes)
    beside.start()
    try:
        for _ in range(10):
            live_objects.live([Base])
    finally:
        done.set()
        beside.join()
        sys.setswitchinterval(interval)
    assert wrong == []
