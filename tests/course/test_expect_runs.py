"""What can be expected of a run: copies, kernels, memory, waits, races, time, several ranks."""

from __future__ import annotations

import ast
import functools
from typing import Any

import pytest
import torch
import torch.distributed as dist

import fakegpu_lab as lab
from fakegpu_lab import expect
from fakegpu_lab.course import pictures
from fakegpu_lab.course.checks import checking
from fakegpu_lab.course.expect.attempt import Attempt
from fakegpu_lab.hardware.errors import FakeGpuError
from tests.course.conftest import told

pytestmark = pytest.mark.usefixtures("gpus")


def sends(count: int) -> list[torch.Tensor]:
    return [torch.ones(256, 256).to("cuda") for _ in range(count)]


def test_a_recording_of_a_check_has_nothing_of_what_was_in_the_queue() -> None:
    text = """
big = torch.ones(1024, 1024, device="cuda")
with lab.record() as empty: torch.cuda.synchronize()
for _ in range(50): big @ big
with lab.record() as baseline: torch.cuda.synchronize()
expect.at_most(baseline.elapsed, 2 * empty.elapsed + 1e-5)
"""
    assert checking.run(text, {"torch": torch, "lab": lab}, "first").record.score == 1


def test_work_that_an_answer_leaves_for_later_is_in_no_recording() -> None:
    def later() -> Any:
        yield from sends(3)

    assert len(expect.run(later)) == 3  # read while it is recorded
    told(lambda: expect.transfers(h2d_at_most=2, trace=later))
    text = "with lab.record() as trace: found = later()\nexpect.equal(len([*found]), 3)"
    record = checking.run(text, {"later": later, "lab": lab}, "first").record
    assert record.score == 0
    assert record.parts[0].found == "`found` is a generator, which does its work later"


def test_transfers_are_counted_by_direction_and_bytes() -> None:
    with lab.record() as trace:
        (x,) = sends(1)
        x.to("cuda:1").cpu()
    assert expect.transfers(h2d=1, d2h=1, p2p=1, trace=trace)
    assert expect.transfers(h2d_at_most=1, d2h_at_least=1, h2d_bytes_at_most="256KiB", pinned=False, trace=trace)
    said = told(lambda: expect.transfers(h2d_at_most=2, trace=lambda: sends(3)))
    assert "at most 2 from host to device" in said
    assert "3 copies (768 KiB) host to device" in said
    assert "return [torch.ones(256, 256).to" in said
    told(lambda: expect.transfers(h2d_bytes_at_most="255KiB", trace=trace))
    told(lambda: expect.transfers(p2p=0, trace=trace))
    assert "2 copies pageable" in told(lambda: expect.transfers(pinned=True, trace=trace))


def test_kernels_are_counted_by_name_and_device() -> None:
    with lab.record() as trace:
        torch.ones(4, device="cuda:1").mul(2).mul(3)
    assert expect.kernels(named="mul", at_least=2, at_most=2, device=1, trace=trace)
    assert expect.kernels(at_most=0, device=0, trace=trace)
    assert "2 such kernels" in told(lambda: expect.kernels(named="mul", at_most=1, trace=trace))
    told(lambda: expect.kernels(named="mul", at_least=3, trace=trace))
    said = told(lambda: expect.kernels(named="mm", at_least=1, trace=trace))
    assert said.endswith("0 such kernels, of 3: aten::mul, aten::fill_")


def test_the_peak_names_the_line_that_held_most() -> None:
    with lab.record() as trace:
        kept = torch.empty(2**20, dtype=torch.uint8, device="cuda")
        big = torch.empty(2**28, dtype=torch.uint8, device="cuda")
        del big
    assert expect.peak_memory(below="258MiB", above="256MiB", trace=trace)
    said = told(lambda: expect.peak_memory(below="100MiB", trace=trace))
    assert "256 MiB by one line" in said
    assert "big = torch.empty(2**28" in said
    assert expect.allocated(below="2MiB", above="1023KiB")
    told(lambda: expect.allocated(below="1MiB"))
    del kept


def test_waits_are_found_with_their_line() -> None:
    x = torch.ones(1000, device="cuda")

    def loop() -> None:
        for _ in range(3):
            (x * 2).sum().item()

    said = told(lambda: expect.no_sync_in(loop))
    assert "3 waits" in said
    assert "(x * 2).sum().item()" in said
    assert expect.no_sync_in(loop, at_most=3)
    assert expect.no_sync_in(lambda: [x * 2 for _ in range(3)])


def test_races_overlaps_and_time() -> None:
    pages = [torch.ones(1024, 1024).pin_memory() for _ in range(4)]
    weight = torch.ones(1024, 1024, device="cuda")
    copies, compute = torch.cuda.Stream(), torch.cuda.current_stream()

    def overlapped(ordered: bool = True) -> None:
        for page in pages:
            with torch.cuda.stream(copies):
                x = page.to("cuda", non_blocking=True)
            if ordered:
                compute.wait_stream(copies)
            x.record_stream(compute)
            x @ weight

    def in_turns() -> None:
        for page in pages:
            page.to("cuda") @ weight

    assert expect.overlaps("h2d", "kernels", at_least=0.5, trace=overlapped)
    assert "no overlap" in told(lambda: expect.overlaps("h2d", "kernels", trace=in_turns))
    assert "no copies to the host" in told(lambda: expect.overlaps("d2h", "kernels", trace=in_turns))
    assert expect.no_races(overlapped)
    assert "race" in told(lambda: expect.no_races(lambda: overlapped(ordered=False)))
    assert expect.faster_than(in_turns, by=1.1, trace=overlapped)
    assert expect.faster_than("1 s", by=100, trace=overlapped)
    told(lambda: expect.faster_than(overlapped, by=1.0, trace=in_turns))
    assert expect.takes(at_most="10 ms", trace=overlapped)
    told(lambda: expect.takes(at_most="1 µs", trace=overlapped))
    with pytest.raises(FakeGpuError, match="is not a time"):
        expect.takes(at_most="soon", trace=overlapped)


def test_a_score_is_in_proportion() -> None:
    source = "expect.score(figure, full=2, none=10, unit='ms', points=4)"
    for figure, points in ((1, 4.0), (2, 4.0), (4, 3.0), (9, 0.5), (10, 0.0), (99, 0.0)):
        assert checking.run(source, {"figure": figure}, "challenge") == points
    more_is_better = "expect.score(figure, full=10, none=2, points=4)"
    assert checking.run(more_is_better, {"figure": 6}, "challenge") == 2.0


def test_a_score_that_is_missed_by_little_shows_by_how_much() -> None:
    source = "expect.score(figure, full=170, none=240, unit='ms', points=5)"
    for figure, found in ((170.0, "170 ms"), (169.7, "170 ms"), (170.3, "170.3 ms"), (170.00004, "170.00004 ms")):
        (part,) = checking.run(source, {"figure": figure}, "challenge").record.parts
        assert part.found == found


def test_a_score_without_a_figure_invents_none() -> None:
    source = "expect.score(figure, full=2, none=10, unit='ms', points=4, missing='the answer is wrong')"
    result = checking.run(source, {"figure": None}, "challenge")
    (part,) = result.record.parts
    assert result == 0.0
    assert part.found == "the answer is wrong"


def test_a_check_looks_at_what_it_ran_last() -> None:
    twice = "got = expect.run(sends, 2)\nexpect.transfers(h2d=2)\nexpect.equal(len(got), 2)\n"
    source = f"{twice}expect.run(sends, 1)\nexpect.transfers(h2d=1)"
    assert checking.run(source, {"sends": sends}, "a") == 3.0
    (only,) = checking.run("expect.transfers(h2d=1)", {}, "a").record.parts
    assert "run the exercise's cell again" in only.found


def join() -> int:
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank())
    return dist.get_rank()


def test_what_an_answer_runs_is_not_what_the_check_ran() -> None:
    """An answer that called `expect.run(list)` was measured by that: the host waited not at all."""

    def answer() -> float:
        found = float(torch.ones(2, device="cuda").sum().item())
        expect.run(list)
        return found

    text = "expect.run(answer)\nanswer()\nexpect.no_sync_in()"
    record = checking.run(text, {"answer": answer, "expect": expect}, "first").record
    assert [part.met for part in record.parts] == [False], record


def test_ranks() -> None:
    def summed() -> dict[str, torch.Tensor]:
        x = torch.full((3,), float(join()), device="cuda")
        dist.all_reduce(x)
        return {"x": x}

    def each_its_own() -> torch.Tensor:
        return torch.full((3,), float(join()), device="cuda")

    with lab.record() as trace:
        states = lab.run_ranks(summed, 2)
    assert expect.collectives(all_reduce=1, at_most=1, trace=trace)
    assert expect.collectives(all_reduce=1, rank=1, trace=trace)
    assert "1 × all_reduce" in told(lambda: expect.collectives(all_reduce=2, trace=trace))
    told(lambda: expect.collectives(broadcast=1, trace=trace))
    assert expect.same_on_every_rank(states)
    assert "rank 1" in told(lambda: expect.same_on_every_rank(lab.run_ranks(each_its_own, 2)))
    assert "no tensors" in told(lambda: expect.same_on_every_rank([]))
    assert expect.equals_single_device(states[0], {"x": torch.ones(3)})
    assert expect.equals_single_device({"module.x": torch.ones(3)}, {"x": torch.ones(3)})
    met = "states = [x, x]\nexpect.same_on_every_rank(states)\nexpect.equals_single_device(states[0], states[1])"
    for one in checking.run(met, {"x": torch.ones(2)}, "ranks").record.parts:
        assert one.met
        assert one.found == "no differences"
    assert "x differs by up to 1" in told(lambda: expect.equals_single_device(states[0], {"x": torch.full((3,), 2.0)}))
    assert "only one of the two has y" in told(lambda: expect.equals_single_device({}, {"y": torch.ones(1)}))


def test_a_journey_shows_every_copy_and_says_when_there_is_none() -> None:
    with lab.record() as trace:
        sends(1)[0].to("cuda:1").cpu()
    figure = pictures.journey(trace)
    last = figure.frames[-1]
    assert "copy 3 of 3: 256 KiB from cuda:1 to the host" in last.data[1].text[0]
    assert (last.data[0].x[0], last.data[0].y[0]) == (0.5, 0.0)
    with lab.record() as empty:
        pass
    with pytest.raises(FakeGpuError, match="Nothing was copied"):
        pictures.journey(empty)


def failing_runs() -> dict[str, str]:
    return {
        "the machine is broken": "got = expect.run(sends, 1)\n",
        "its function is not defined": "got = expect.run(missing, 1)\n",
        "its argument fails": "got = expect.run(sends, 1 // 0)\n",
    }


@pytest.mark.parametrize("how", failing_runs())
def test_parts_about_a_run_that_did_not_happen_are_not_met(how: str) -> None:
    """They looked at the recording of the exercise's cell instead."""
    with lab.record() as trace:
        sends(1)
    attempt = Attempt("a", name="cell.py", tree=ast.parse("x = 1"), trace=trace)
    source = f"{failing_runs()[how]}expect.transfers(h2d=1)\nexpect.kernels(at_most=9)"
    assert checking.run("expect.transfers(h2d=1)", {}, "a", attempt) == 1.0
    if how == "the machine is broken":
        with pytest.raises(RuntimeError, match="device-side assert"):
            torch.ones(2, device="cuda")[torch.tensor([5], device="cuda")].cpu()
    result = checking.run(source, {"sends": sends}, "a", attempt)
    assert [part.met for part in result.record.parts] == [False, False, False][-len(result.record.parts) :]
    assert result == 0.0


def test_a_run_outside_a_check_is_a_call() -> None:
    assert expect.run(lambda first, *, second: first + second, 1, second=2) == 3
    with pytest.raises(ZeroDivisionError):
        expect.run(lambda: 1 // 0)


def test_parts_are_about_the_run_before_them_even_if_its_value_was_of_no_use() -> None:
    source = "got = expect.run(sends, 2)[7]\nexpect.transfers(h2d=2)"
    assert checking.run(source, {"sends": sends}, "a") == 1.0


def test_what_is_no_recording_stands_for_none(gpus: None) -> None:
    class Mine(lab.Trace):
        pass

    with lab.record() as trace:
        torch.ones(2, device="cuda")
    assert expect.kernels(at_least=1, trace=trace)
    for made in ([], 0, "", Mine(lab.machine())):
        with pytest.raises(TypeError, match=f"needs a recording.*this is a {type(made).__name__}"):
            expect.kernels(at_most=9, trace=made)


def decoy() -> None:
    torch.cuda.synchronize()


def test_calls_of_a_function_are_those_that_it_can_make() -> None:
    def timed(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*arguments: Any) -> Any:
            return function(*arguments)

        return wrapper

    @functools.wraps(decoy)
    def disguised() -> None:
        pass

    def dead() -> None:
        if False:
            torch.cuda.synchronize()

    assert expect.calls("synchronize", function=decoy)
    assert expect.calls("synchronize", function=timed(decoy))
    for function in (disguised, dead):
        with pytest.raises(expect.Unmet, match="no such call"):
            expect.calls("synchronize", function=function)
    with pytest.raises(FakeGpuError, match="has not run"):
        expect.calls("synchronize")
    with pytest.raises(expect.Unmet, match="it calls it"):
        expect.does_not_call("synchronize", function=dead)
