"""Running a check: every part, whatever happens in the others; points; what is told."""

from __future__ import annotations

import ast
import functools
import linecache
import random
import re
import signal
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fakegpu_lab as lab
from fakegpu_lab import expect
from fakegpu_lab.course.checks import checking, crashed, statements, without_end
from fakegpu_lab.course.checks.record import MIME, CheckRecord
from fakegpu_lab.course.expect import outcome
from fakegpu_lab.course.expect.attempt import Attempt, placeholder

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from fakegpu_lab.course.checks.record import PartRecord
    from fakegpu_lab.course.checks.result import Result


def check(source: str, names: dict[str, Any] | None = None, **more: Any) -> Result:
    return checking.run(textwrap.dedent(source), {} if names is None else names, "first-move", **more)


def part(source: str, names: dict[str, Any] | None = None, **more: Any) -> PartRecord:
    (only,) = check(source, names, **more).record.parts
    return only


def test_all_parts_run_even_after_one_failed_or_crashed() -> None:
    result = check(
        """
        expect.equal(1, 2)
        expect.equal(missing, 2, points=3)
        1 / 0
        expect.equal(2, 2, points=2)
        import sys
        expect.true(sys.exit("enough"), "it goes on")
        expect.equal(4, 4, points=0.5)
        """
    )
    met = [one.met for one in result.record.parts]
    assert met == [False, False, False, True, False, True]
    assert result == 2.5
    assert result.record.points == 1 + 3 + 2 + 1 + 0.5


@given(st.lists(st.tuples(st.sampled_from(["1", "2", "1/0", "nothing"]), st.integers(0, 5)), min_size=1, max_size=6))
def test_the_score_is_the_sum_of_the_parts_that_are_met(parts: list[tuple[str, int]]) -> None:
    source = "\n".join(f"expect.equal({value}, 1, points={points})" for value, points in parts)
    result = check(source)
    assert result == sum(points for value, points in parts if value == "1")
    assert result.record.points == sum(points for _, points in parts)
    assert [one.points for one in result.record.parts] == [points for _, points in parts]
    assert CheckRecord.model_validate_json(result.record.model_dump_json()) == result.record


def test_a_statement_is_a_part_and_is_met_if_all_in_it_is() -> None:
    result = check("for value in (1, 1, 2):\n    expect.equal(value, 1, points=2)")
    (only,) = result.record.parts
    assert (only.met, only.found, result) == (False, "2", 0.0)


def test_what_a_check_draws_is_no_part_and_no_seed_makes_it_known() -> None:
    def drawn() -> int:
        random.seed(0)
        torch.manual_seed(0)
        return expect.draw(1, 1 << 64)

    assert len({drawn() for _ in range(9)}) == 9
    assert {expect.draw(3, 5) for _ in range(300)} == {3, 4, 5}
    result = checking.run("n = expect.draw(3, 5)\nexpect.equal(answer, [0] * n)", {"answer": [0] * 6}, "e")
    assert (result, result.record.points, len(result.record.parts)) == (0.0, 1.0, 1)


def test_a_part_that_looked_at_nothing_is_not_met() -> None:
    only = part("for one in things:\n    expect.equal(one, 1)", {"things": []})
    assert not only.met
    assert only.found == "nothing to compare"
    only = part("fits = first and expect.at_most(3, 4, what='it fits')", {"first": False})
    assert (only.met, only.what, only.found) == (False, "it fits", "it counts once the lines above pass")


def test_names_of_the_check_s_own_are_no_line_of_the_answer() -> None:
    source = "work = 3\nx = [work]\ndef f():\n    rank = 1\n    return rank"
    attempt = Attempt("first-move", name="solution.py", tree=ast.parse(source))
    assert part("expect.equal(x, 1)", {"x": [3]}, attempt=attempt).line == "solution.py:2"
    assert part("expect.equal([2 for rank in range(2)], 1)", attempt=attempt).line == ""
    assert part("expect.equal(f(), 2)", {"f": lambda: 1}, attempt=attempt).line == "", "a def says nothing"
    assert part("work = 2\nexpect.equal(work, 1)", attempt=attempt).line == ""


def test_a_part_of_two_expectations_says_the_last_that_is_met() -> None:
    source = "expect.true(right, 'right') and expect.at_most(2, 4, unit='ms', what='fast')"
    assert (part(source, {"right": True}).what, part(source, {"right": False}).what) == ("fast", "right")
    only = part("expect.at_most(float('inf'), 4)")
    assert (only.met, only.found) == (False, "it was not measured")


def test_a_title_that_asks_is_not_followed_by_a_colon() -> None:
    assert str(checking.run("expect.equal(1, 1)", {}, "one", title="How many?")).startswith("How many? – solved")
    assert str(checking.run("expect.equal(1, 2)", {}, "one", title="One")).startswith("One: not quite yet")


def test_the_authors_hint_is_shown_also_when_the_part_raised() -> None:
    only = part("expect.equal(1 / 0, 1, hint='Divide by something else.')")
    assert not only.met
    assert only.found == "ZeroDivisionError: division by zero"
    assert only.hint == "Divide by something else."
    assert part("expect.equal(1 / 0, 1, hint=str(2))").hint == "", "one that would have to be computed"


def test_the_points_of_a_part_do_not_run_into_its_sentence() -> None:
    card = check("expect.equal(total, 3.0)\nexpect.equal(1, 1, points=2)", {"total": 4.0})._repr_html_()
    text = re.sub(r"<[^>]*>", "", card)
    assert "total should be 3.0 · 0 of 1 point" in text
    assert "1 is 1 · 2 of 2 points" in text


def test_points_must_be_plain_numbers() -> None:
    with pytest.raises(ValueError, match="points=worth must be a plain number"):
        check("expect.equal(1, 1, points=worth)", {"worth": 2})


def test_what_a_check_is_worth_is_read_from_its_text() -> None:
    source = """%%check first-move
model.eval()
expect.true(1, "a", points=2)
### BEGIN HIDDEN TESTS
expect.true(1, "b"); lab.expect.true(1, "c")
### END HIDDEN TESTS
expect.run(print)
expect.true(1, "d")
"""
    found = statements.parts(source)
    assert [one.expects for one in found] == [False, True, True, True, False, True]
    assert [one.points for one in found] == [0, 2, 1, 1, 0, 1]
    assert [one.hidden for one in found] == [False, False, True, True, False, False]


def test_hidden_parts_that_are_not_there_are_announced() -> None:
    assert "1 of 1 point, and 2 by hidden parts when it is graded" in str(check("expect.equal(1, 1)", points=3))
    text = "expect.equal(1, 1)\n### BEGIN HIDDEN TESTS\nexpect.equal(1, 2)\n### END HIDDEN TESTS"
    assert [one.hidden for one in check(text, points=2).record.parts] == [False, True]


def test_nbgrader_reads_the_score_from_the_text_and_programs_all_of_it() -> None:
    result = check("expect.equal(1, 1, points=0.25)\nexpect.equal(1, 2)")
    shown = result._repr_mimebundle_()
    assert float(shown["text/plain"]) == 0.25
    assert shown[MIME]["parts"][1]["found"] == "1"
    assert shown["text/html"].startswith("<div")


def test_what_is_printed_to_stderr_is_on_the_card_and_nowhere_else(capsys: pytest.CaptureFixture[str]) -> None:
    def solution() -> int:
        print("a warning of mine", file=sys.stderr)
        return 1

    result = check("expect.equal(solution(), 1)", {"solution": solution})
    assert capsys.readouterr().err == ""
    assert result == 1.0
    assert "a warning of mine" in str(result)


def test_an_unsolved_cell_is_told_kindly_and_earns_nothing() -> None:
    result = check("expect.equal(y, 1)", {"y": 1}, attempt=Attempt("first-move", unsolved=True))
    assert result == 0.0
    assert result.record.unsolved
    assert "not solved yet" in str(result)
    assert "✗" not in str(result)


def test_a_function_that_is_not_written_yet_is_told_kindly() -> None:
    def solution() -> None:
        raise NotImplementedError

    result = check("expect.equal(solution(), 1)\nexpect.equal(1, 1)", {"solution": solution})
    assert "not written yet" in result.record.parts[0].found
    assert result == 1.0
    untouched = check("expect.equal(solution(), 1)\nexpect.equal(solution(), 2)", {"solution": solution})
    assert untouched.record.unsolved
    assert untouched == 0.0
    lab.enable("a100")
    try:
        later = check("expect.run(solution)\nexpect.transfers(h2d=0)", {"solution": solution})
    finally:
        lab.disable()
    assert later.record.unsolved, "a part about a run that failed fails with it"


def test_a_missing_name_is_told_kindly() -> None:
    only = part("expect.on_device(model, 'cuda:0', hint='not this one')")
    assert only.found == "`model` is not defined"
    assert only.what == "`expect.on_device(model, 'cuda:0')`"
    assert "Run the cells above" in only.hint


def test_the_students_line_is_that_which_made_the_value() -> None:
    source = "\nx = 1\nx = x + 1\nother = x"
    attempt = Attempt("first-move", name="solution.py", tree=ast.parse(source))
    only = part("expect.equal(x, 3)", {"x": 2}, attempt=attempt)
    assert only.line == "solution.py:3"
    assert part("expect.equal(print, 3)", {"x": 2}, attempt=attempt).line == ""


def test_the_students_line_is_that_which_raised() -> None:
    source = "def solution():\n    return 1 / 0\n"
    names: dict[str, Any] = {}
    exec(compile(source, "solution.py", "exec"), names)
    attempt = Attempt("first-move", name="solution.py", tree=ast.parse(source))
    only = part("expect.equal(solution(), 3)", names, attempt=attempt)
    assert only.line == "solution.py:2"
    assert only.found == "ZeroDivisionError: division by zero"


def test_the_student_cannot_put_another_expect_in_its_place() -> None:
    class Expect:
        def equal(self, *anything: Any, **more: Any) -> bool:
            return True

    assert check("expect.equal(1, 2)", {"expect": Expect()}) == 0.0


def test_an_interrupt_is_no_wrong_answer() -> None:
    def solution() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check("expect.equal(solution(), 1)", {"solution": solution})
    assert check("expect.equal(1, 1)") == 1.0


def test_a_hint_below_another_one_counts_once_the_lines_above_pass() -> None:
    source = """
        expect.equal(1, 2)
        expect.equal(1, 1, hint="all is well")
        expect.equal(1, 2, hint="the first to act on")
        expect.equal(1, 2, hint="Write it down.")
        expect.equal(1, 2, hint="First make the line above pass.")
        expect.choice("b", "1b16b1", because={"b": "It is the other."})
        expect.equal(1, 2, hint="If the results are right: pass them on.")
        expect.equal(1, 2, hint="If p = q, nothing is refused.")
    """
    assert [one.hint for one in check(source).record.parts] == [
        "",
        "all is well",
        "the first to act on",
        f"{checking.STILL} Write it down.",
        "First make the line above pass.",
        "It is the other.",
        "If the results are right: pass them on.",
        f"{checking.STILL} If p = q, nothing is refused.",
    ]


def test_an_error_in_a_later_link_of_a_chain_has_the_words_of_that_link() -> None:
    source = """
        expect.equal(1, 1, what="one", hint="of one") and expect.equal(
            [1 // number for number in (1, 0)],
            [1, 0],
            what="the other",
            hint="of the other",
        )
        expect.equal(
            1 // 0, 1, what="the first", hint="of the first"
        ) and expect.equal(1, 1, what="the second", hint="of the second")
    """
    other, first = check(source).record.parts
    assert (other.what, other.met, other.hint) == ("the other", False, "of the other")
    assert (first.what, first.found) == ("the first", "the same error as above")


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timer of processor time")
def test_a_loop_without_an_end_is_an_outcome_and_the_next_lines_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def solution() -> int:
        steps = 0
        while steps >= 0:
            steps += 1
        return steps

    monkeypatch.setattr(without_end, "SECONDS", 0.2)
    monkeypatch.setattr(without_end, "LATER", 0.1)
    source = "expect.equal(solution(), 1, hint='one')\nexpect.equal(2, 2)\nexpect.equal(solution(), 2)"
    endless, after, again = check(source, {"solution": solution}).record.parts
    assert (endless.met, after.met, again.met) == (False, True, False)
    assert endless.found == "no end within 0.2 seconds of processor time"
    assert again.found == "no end within 0.1 seconds of processor time", "what is endless is not waited for twice"
    assert "loop" in endless.hint
    assert endless.hint.endswith("one")
    assert signal.getsignal(signal.SIGVTALRM) is signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timer of processor time")
def test_compiling_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {}
    for name, file in (("compiles", "site-packages/torch/_inductor/a.py"), ("computes", "<cell 3>")):
        text = f"def {name}():\n    for n in range(10**7):\n        pass\n    return n"
        exec(compile(text, file, "exec"), names)
    monkeypatch.setattr(without_end, "SECONDS", 0.1)
    monkeypatch.setattr(without_end, "_AGAIN", 60)
    source = "expect.true(compiles(), 'it is compiled')\nexpect.true(computes(), 'it is computed')"
    compiled, computed = check(source, names).record.parts
    assert (compiled.met, computed.met) == (True, False)
    begun: list[tuple[float, float]] = []
    monkeypatch.setattr(without_end.signal, "setitimer", lambda which, *seconds: begun.append(seconds))
    names["stop"], names["sys"] = functools.partial(without_end._stop, 0.1), sys
    alarm = "def alarm():\n    stop(0, sys._getframe())"
    exec(compile(alarm, "site-packages/torch/_inductor/a.py", "exec"), names)
    names["alarm"]()
    assert begun == [(0.1, 60)], "what comes after compiling has all of its time"
    exec(compile(alarm, "<cell 3>", "exec"), names)
    with pytest.raises(without_end.WithoutEndError):
        names["alarm"]()


def test_a_condition_that_raised_is_told_by_its_sentence() -> None:
    (part,) = check("expect.true(1 / 0 > 3, 'it is more than three', found='less')").record.parts
    assert (part.met, part.what) == (False, "it is more than three")


def test_the_author_can_say_it_in_other_words() -> None:
    said = "what='Ten is ten', success='Well seen.', failure='Count again.', hint='Use your fingers.'"
    good, bad = check(f"expect.equal(10, 10, {said})\nexpect.equal(9, 10, {said})").record.parts
    assert (good.what, good.message) == ("Ten is ten", "Well seen.")
    assert (bad.what, bad.message, bad.hint) == ("Ten is ten", "Count again.", "Use your fingers.")


def test_the_card_says_what_the_text_says_and_is_safe() -> None:
    result = check("expect.equal('<script>`x`', 'y')", title="Careful <b>")
    card = result._repr_html_()
    assert "<script>" not in card
    assert "<b>" not in card
    assert "&lt;script&gt;" in card
    assert "aria-label" in card
    assert 'aria-label="not met"' in card


@pytest.mark.parametrize(
    ("source", "line"),
    [("...", 1), ("x = 1\ny = ...", 2), ("def f():\n    ...", 2), ("def f(): return ...", 1), ("x[..., 0]", None),
     ("f(...)", None)],
)  # fmt: skip
def test_three_dots_are_a_place_for_a_solution_where_a_value_should_be(source: str, line: int | None) -> None:
    assert placeholder(ast.parse(source)) == line


def test_a_part_that_is_met_says_what_was_found_if_its_sentence_does_not() -> None:
    text = str(check("expect.true(True, 'fine', found='no')\nexpect.equal(2, 2)\nexpect.at_most(2.5, 3, unit='ms')"))
    assert text.count("found:") == 1
    assert "✓ it is at most 3 ms\n      found: 2.5 ms" in text.replace("`2.5`", "it")


def test_what_comes_true_without_the_student_earns_nothing() -> None:
    source = "def solution():\n    raise NotImplementedError()\n"
    names: dict[str, Any] = {}
    exec(compile(source, "solution.py", "exec"), names)
    attempt = Attempt("first-move", name="solution.py", tree=ast.parse(source))
    result = check("expect.equal(1, 1)\nmade = solution()\nexpect.equal(made, 1)", names, attempt=attempt)
    assert result == 0.0
    assert result.record.unsolved


def test_what_could_not_be_made_is_not_what_another_check_left() -> None:
    names = {"results": [1, 2], "held": {"peak": 3}}
    check_cell = "results, held = broken()\nexpect.equal(results[0], 1)\ntop = held['peak']\nexpect.equal(top, 3)"
    result = check(f"{check_cell}\nresults = [4]\nexpect.equal(results, [4])", names)
    assert result == 1.0
    first, *rest, last = result.record.parts
    assert [part.found for part in rest] == ["what it needs could not be computed: see above"] * 2
    assert (first.what, last.met) == (f"`{ast.unparse(ast.parse('results, held = broken()'))}`", True)


def test_a_run_that_failed_is_told_once_as_a_call_that_the_student_can_repeat() -> None:
    def broken(size: int) -> Any:
        raise ValueError(f"not {size}")

    source = (
        "made = expect.run(broken, 4, hint='Return the mean.')\nexpect.equal(made, 1)\nexpect.transfers(h2d=0)\n"
        "again = broken(4)\nexpect.equal(again, 1)"
    )
    lab.enable("a100")
    try:
        first, *others = check(source, {"broken": broken}).record.parts
    finally:
        lab.disable()
    assert (first.what, first.found) == ("`broken(4)` runs without an error", "ValueError: not 4")
    assert first.hint == "Return the mean."
    assert [part.found for part in others] == ["what it needs could not be computed: see above"] * 3


def test_of_an_error_that_is_other_ranks_tracebacks_the_card_has_the_reason() -> None:
    def load() -> None:
        raise RuntimeError("ranks:[1]\nTraceback (most recent call last): (RANK 1)\n  File x\nKeyError: 'optimizer'\n")

    assert part("expect.equal(load(), 1)", {"load": load}).found == "RuntimeError: KeyError: 'optimizer'"


def test_ranks_that_call_different_operations_are_told_in_words() -> None:
    source = """
    def program():
        dist.init_process_group("nccl")
        torch.cuda.set_device(dist.get_rank())
        if dist.get_rank() == 1:
            dist.barrier()
        dist.all_reduce(torch.ones(4, device="cuda"))
    """
    names: dict[str, Any] = {"dist": torch.distributed, "torch": torch}
    linecache.cache["<cell>"] = (len(source), None, source.splitlines(keepends=True), "<cell>")
    exec(compile(textwrap.dedent(source), "<cell>", "exec"), names)
    lab.enable("a100:2")
    try:
        only = part("expect.run(lab.run_ranks, program, 2)", names | {"lab": lab})
    finally:
        lab.disable()
    assert "operation 1 of the default group" in only.found
    assert "all_reduce of [4] float32" in only.found
    assert "CollectiveFingerPrint" not in only.found
    assert "must call the same operations in the same order" in only.hint


def test_a_value_from_an_earlier_run_does_not_stand_for_one_that_could_not_be_made() -> None:
    names: dict[str, Any] = {"answer": lambda: (3, 4), "batch": "the student's"}
    source = "first, second = answer()\nexpect.equal(second, 4)\n[batch for batch in answer()]"
    assert check(source, names) == 1.0

    def broken() -> None:
        raise ValueError("no longer")

    names["answer"] = broken
    result = check(source, names)
    assert result == 0.0
    assert result.record.parts[1].found == "what it needs could not be computed: see above"
    assert names["batch"] == "the student's"


def test_what_follows_from_an_error_is_not_told_as_another() -> None:
    attempt = Attempt("first-move", tree=ast.parse("x = 1 / 0"), error="ZeroDivisionError: division by zero")
    result = check("half = x / 2\nexpect.equal(half, 1)\nexpect.equal(x, 2)\ndel half", attempt=attempt)
    first, second, third = result.record.parts
    assert first.found == "`x` is not defined"
    assert second.found == "what it needs could not be computed: see above"
    assert "fix that first" in third.hint
    assert "ZeroDivisionError" in result.record.note


def _solution(source: str) -> tuple[dict[str, Any], Attempt]:
    names: dict[str, Any] = {}
    exec(compile(source, "solution.py", "exec"), names)
    return names, Attempt("first-move", name="solution.py", tree=ast.parse(source))


def test_one_error_is_told_once() -> None:
    names, attempt = _solution("def solution():\n    return int('x')\n")
    source = "one = solution()\nexpect.equal(solution(), 1, hint='Divide by n.')\nexpect.equal(one, 1)"
    result = check(source, names, attempt=attempt)
    first, second, third = result.record.parts
    assert (first.what, first.found[:10]) == ("`one = solution()`", "ValueError")
    assert (second.found, second.hint) == ("the same error as above", "")
    assert third.found == "what it needs could not be computed: see above"


def test_of_a_block_that_only_prepares_the_card_shows_the_call_that_raised() -> None:
    names, attempt = _solution("def solution():\n    return int('x')\n")
    result = check("for _ in range(2):\n    solution()\nexpect.equal(1, 1)", names, attempt=attempt)
    assert result.record.parts[0].what == "`solution()`"


def test_the_students_line_is_in_the_exercise_and_not_in_a_cell_that_calls_or_is_called(
    ipython: InteractiveShell,
) -> None:
    source = "def called(function):\n    return function()\ndef helper(x):\n    return 1 / x"
    ipython.run_cell(source, store_history=True)
    names, attempt = _solution("def solution():\n    return helper(0)\n")
    names |= ipython.user_ns
    assert part("expect.equal(solution(), 3)", names, attempt=attempt).line == "solution.py:2"
    assert part("expect.equal(helper(0), 3)", names, attempt=attempt).line.endswith("line 4"), "an earlier solution"
    only = part("expect.equal(called(lambda: print().sum()), 3)", names, attempt=attempt)
    assert only.line == "", "the check's own expression raised"
    assert only.hint == "A value is None here: is a `return` missing in your code?"
    ipython.user_ns.pop("helper"), ipython.user_ns.pop("called")


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("first, second = solution(1)", "`solution` should return 2 values, separated by commas."),
        ("first, *second, third, fourth, last = expect.run(solution, 1, hint='Both.')", "Both."),
        ("first, second = expect.run(solution, 1)", "`solution` should return 2 values, separated by commas."),
        ("first, second = 1, *solution(1), *solution(1)", ""),
    ],
)
@pytest.mark.usefixtures("machine")
def test_a_result_that_cannot_be_taken_apart_says_how_many_are_needed(line: str, hint: str) -> None:
    assert check(line, {"solution": lambda x: (x, x, x)}).record.parts[-1].hint == hint


def test_a_comprehension_s_own_variable_does_not_follow_from_a_statement_that_failed() -> None:
    source = "one = 1 / 0\nexpect.equal([one for one in (1, 2)], [1, 2])\nexpect.equal(one, 1)"
    _, listed, follows = check(source).record.parts
    assert (listed.met, follows.met, follows.found) == (True, False, checking.FOLLOWS)


def test_a_gpu_that_has_failed_is_told_once() -> None:
    def solution() -> None:
        raise torch.AcceleratorError("CUDA error: device-side assert triggered")

    def read() -> None:
        raise torch.AcceleratorError("CUDA error: device-side assert triggered, once more")

    source = "solution()\nexpect.equal(read(), 1, what='the model has not changed', hint='It has.')"
    one, other = check(source, {"solution": solution, "read": read}).record.parts
    assert one.found.startswith("AcceleratorError")
    assert (other.found, other.hint) == (crashed.AGAIN, "")


def test_a_gradient_that_is_none_is_no_missing_return() -> None:
    one, other = check(
        "expect.equal(solution(), 1)\nexpect.equal(x.grad, 1)", {"solution": print, "x": torch.ones(1)}
    ).record.parts
    assert (outcome.NOTHING in one.hint, other.hint) == (True, "")


def test_what_an_earlier_check_defined_is_no_line_of_the_student(ipython: InteractiveShell) -> None:
    ipython.run_cell("def watched(function):\n    function()\n    raise RuntimeError('late')", store_history=True)
    names, attempt = _solution("def solution():\n    return 1\n")
    names |= ipython.user_ns
    file = names["watched"].__code__.co_filename
    assert part("expect.equal(watched(solution), 1)", names, attempt=attempt).line.endswith("line 3")
    only = part("expect.equal(watched(solution), 1)", names, attempt=attempt, earlier={file})
    assert only.line == ""
    ipython.user_ns.pop("watched")


def test_a_warning_on_the_card_names_the_cell(ipython: InteractiveShell) -> None:
    ipython.run_cell("def warned():\n    return 1", store_history=True)
    names = {"file": ipython.user_ns["warned"].__code__.co_filename}
    warned = "import sys, warnings\nsys.stderr.write(warnings.formatwarning('slow', UserWarning, file, 3))"
    result = check(f"{warned}\nexpect.equal(1, 1)", names)
    assert re.search(r"your code wrote to stderr: In\[\d+\], line 3: UserWarning: slow", result.record.note)
    ipython.user_ns.pop("warned")


def test_a_name_that_the_students_code_lacks_needs_no_hint_about_results() -> None:
    names, attempt = _solution("def solution():\n    return relu(0)\n")
    only = part("expect.equal(solution(), 3, hint='Divide by n.')", names, attempt=attempt)
    assert only.found == "NameError: name 'relu' is not defined"
    assert only.hint.startswith("Is `relu` spelled correctly?")
    assert "Divide" not in only.hint


def test_the_error_of_a_rank_is_shown_with_the_reason_that_its_first_line_announces() -> None:
    def program() -> None:
        torch.nn.Linear(2, 2).load_state_dict({"weight": torch.zeros(2, 2)})

    lab.enable("a100:2")
    only = part("expect.run(lambda: lab.run_ranks(program, 2))", {"lab": lab, "program": program})
    lab.disable()
    assert only.found.startswith("RuntimeError: Error(s) in loading state_dict for Linear: Missing key(s)"), only.found
    assert "the other ranks were stopped" in only.found


def test_of_a_hang_the_card_has_where_each_rank_waits_and_the_whole_cause() -> None:
    def program() -> None:
        import torch.distributed as dist

        dist.init_process_group("nccl")
        torch.cuda.set_device(dist.get_rank())
        dist.all_reduce(torch.ones(72, device="cuda"))
        if dist.get_rank() == 0:
            dist.barrier()

    lab.enable("a100:2")
    again = "expect.equal(lab.run_ranks(program, 2), 1, hint='Divide by n.')"
    runs = f"expect.run(lambda: lab.run_ranks(program, 2))\n{again}"
    only, second = check(runs, {"lab": lab, "program": program}).record.parts
    lab.disable()
    assert (second.found, second.hint) == ("the same error as above", "")
    assert not only.met
    assert "rank 0 waits in barrier" in only.found
    assert "rank 1 has ended" in only.found
    assert only.hint.startswith("Likely cause: rank 1 has ended without")
    assert not only.hint.endswith("…")


def test_a_function_that_a_check_defines_and_compiles_has_one_graph() -> None:
    lab.enable("a100")
    result = check("""
        import torch
        import fakegpu_lab as lab
        def fused(x):
            return torch.sin(x * 2 + 1).relu()
        x = torch.ones(4, device="cuda")
        with lab.record() as trace:
            y = torch.compile(fused, backend="eager", fullgraph=True)(x)
        expect.equal(y, fused(x))
    """)
    torch._dynamo.reset()
    assert "solved" in str(result), str(result)
