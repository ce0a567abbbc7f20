"""Looking through all of Python's objects: what is found, and that no other thread can tell."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

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


def test_a_finder_finds_what_is_alive_at_the_moment() -> None:
    finder = live_objects.Finder(Base)
    old = [Base(), Child()]
    gc.collect()  # which moves them to the oldest generation
    for _ in range(3):
        new = [Base(), Grandchild()]
        assert {id(one) for one in finder()} == {id(one) for one in old + new}
        gc.collect(0)
        assert {id(one) for one in finder()} == {id(one) for one in old + new}
        gc.collect(1)
        assert {id(one) for one in finder()} == {id(one) for one in old + new}
        old.pop(0)
        old += new
        del new
        assert {id(one) for one in finder()} == {id(one) for one in old}
        old[-1].__class__ = Child


def test_a_finder_goes_through_all_objects_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = 0

    def get_objects(*generation: int) -> list[Any]:
        nonlocal looked_at
        found = collector_objects(*generation)
        looked_at += len(found)
        return found

    old: list[list[int]] = [[] for _ in range(10_000)]
    collector_objects = gc.get_objects
    monkeypatch.setattr(gc, "get_objects", get_objects)
    gc.disable()
    try:
        gc.collect()
        finder = live_objects.Finder(Base)
        made = [Base()]
        assert finder() == made
        everything, looked_at = looked_at, 0
        made.append(Child())
        assert {id(one) for one in finder()} == {id(one) for one in made}
        assert 0 < looked_at < everything / 10
        gc.collect()
        finder()
        assert looked_at > len(old)
    finally:
        gc.enable()


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
    finder = live_objects.Finder(Base)
    try:
        for _ in range(10):
            live_objects.live([Base])
            finder()
            gc.collect(1)
            finder()
    finally:
        done.set()
        beside.join()
        sys.setswitchinterval(interval)
    assert wrong == []
