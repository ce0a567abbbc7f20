"""One rank runs at a time, in the same order every time."""

from __future__ import annotations

import numpy as np
import pytest

from fakegpu_lab.ranks.scheduling.scheduler import RankStopped, Scheduler, Waiting, current_rank


def test_the_turn_passes_only_where_a_rank_waits_and_always_in_the_same_order() -> None:
    def run() -> list[str]:
        seen: list[str] = []
        met: list[int] = []

        def program() -> None:
            me = current_rank()
            assert me is not None
            for step in range(3):
                seen.append(f"{me.number}.{step}a")
                seen.append(f"{me.number}.{step}b")
                met.append(me.number)
                count = 3 * (step + 1)
                me.wait(Waiting(lambda count=count: len(met) >= count))  # type: ignore[misc]

        Scheduler(3).run([program] * 3)
        return seen

    first = run()
    assert first[:6] == ["0.0a", "0.0b", "1.0a", "1.0b", "2.0a", "2.0b"]
    assert all(run() == first for _ in range(20))


def test_results_come_by_rank() -> None:
    assert Scheduler(4).run([lambda number=number: number * number for number in range(4)]) == [0, 1, 4, 9]


def test_an_exception_in_one_rank_stops_all_and_is_the_one_that_is_raised() -> None:
    stopped: list[int] = []

    def program() -> None:
        me = current_rank()
        assert me is not None
        if me.number == 1:
            raise ValueError("rank 1 has had enough")
        try:
            me.wait(Waiting(lambda: False))
        except RankStopped:
            stopped.append(me.number)
            raise

    with pytest.raises(ValueError, match="rank 1 has had enough") as caught:
        Scheduler(3).run([program] * 3)
    assert stopped == [0]  # rank 2 had not begun
    assert caught.traceback[-1].name == "program"


def test_ranks_that_can_never_go_on_are_known_at_once() -> None:
    def program() -> None:
        me = current_rank()
        assert me is not None
        me.wait(Waiting(lambda: me.number == 1))

    with pytest.raises(RuntimeError, match="No rank can continue"):
        Scheduler(2).run([program] * 2)


def test_a_thread_that_is_no_rank_has_none() -> None:
    assert current_rank() is None


def test_numpys_generator_is_each_ranks_own_even_in_the_middle_of_a_pair_of_normal_numbers() -> None:
    from fakegpu_lab.ranks.scheduling.process_state import ProcessState

    alone = {seed: np.random.RandomState(seed) for seed in (1, 2, 3)}
    expected = {seed: [generator.randn(), generator.rand(), *generator.randn(4)] for seed, generator in alone.items()}

    def program(seed: int) -> list[float]:
        me = current_rank()
        assert me is not None
        np.random.seed(seed)  # noqa: NPY002 - the global generator is what this is about
        drawn = []
        for draw in (np.random.randn, np.random.rand, *[np.random.randn] * 4):
            drawn.append(draw())
            me.give_way(Waiting(lambda: False))
            me.give_way(Waiting(lambda: False))
        return drawn

    ranks = Scheduler(3, lambda number: ProcessState({}))
    assert ranks.run([lambda seed=seed: program(seed) for seed in (1, 2, 3)]) == list(expected.values())  # type: ignore[misc]
