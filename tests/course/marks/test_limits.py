"""Each expectation at its limit and just beyond, with its defaults: what a mark turns on."""

from __future__ import annotations

import ast
import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fakegpu_lab import expect
from fakegpu_lab.course.checks import checking
from fakegpu_lab.course.expect.attempt import Attempt, placeholder, unwritten
from fakegpu_lab.course.expect.expectation import JUDGES
from fakegpu_lab.course.expect.outcome import RunningCheck, Unmet, begin, end, report
from fakegpu_lab.course.expect.plain_data.conversion import Opaque, SeenGroup, SeenTensor, SeenType
from fakegpu_lab.course.expect.values import digest
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.hardware.time.happens_before import Race
from fakegpu_lab.hardware.time.records import Allocation
from tests.course.conftest import told
from tests.course.test_judges import copy, kernel, met, recording


def part(source: str, names: dict[str, Any] | None = None, attempt: Attempt | None = None) -> Any:
    (only,) = checking.run(source, names or {}, "a", attempt).record.parts
    return only


def earned(source: str, **names: Any) -> float:
    return float(checking.run(source, names, "a"))


@given(st.floats(-1000, 1000), st.floats(-100, 100), st.floats(-100, 100))
def test_a_score_is_between_none_and_all_and_met_at_full(found: float, full: float, none: float) -> None:
    if full == none:
        return
    outcome = part("expect.score(found, full=full, none=none, points=1)", {"found": found, "full": full, "none": none})
    share = (none - found) / (none - full)
    assert outcome.earned == pytest.approx(min(max(share, 0.0), 1.0), abs=1e-6)
    assert outcome.met is (share >= 1.0)


def test_a_score_at_its_ends() -> None:
    for found, share, is_met in (
        (3, 1.0, True),
        (2.99, 1.0, True),
        (3.01, 0.998889, False),
        (12, 0.0, False),
        (13, 0.0, False),
    ):
        outcome = part("expect.score(found, full=3, none=12)", {"found": found})
        assert (outcome.earned, outcome.met) == (share, is_met)
    with pytest.raises(FakeGpuError, match="the two must differ"):
        expect.score(1, full=2, none=2)
    assert part("expect.score(None, full=3, none=12)").found == "nothing to measure"


@pytest.mark.parametrize(
    ("credit", "is_met", "points"),
    [(None, True, 2), (None, False, 0), (0.25, False, 0.5), (7, True, 2), (-1, False, 0)],
)
def test_a_part_earns_its_credit_between_nothing_and_all(credit: float | None, is_met: bool, points: float) -> None:
    check = RunningCheck(None, "<check>")
    begin(check)
    try:
        assert report({}, met=is_met, what="it", credit=credit) is is_met
    finally:
        end(check)
    (outcome,) = check.outcomes
    assert outcome.credit * 2 == points


def test_outside_a_check_what_is_not_met_is_an_error() -> None:
    assert report({}, met=True, what="it")
    with pytest.raises(Unmet):
        report({}, met=False, what="it")


def test_of_several_outcomes_of_a_part_the_worst_counts() -> None:
    source = "for value in values: expect.score(value, full=1, none=0, points=4)"
    assert earned(source, values=[1, 0.5, 1]) == 2.0
    assert earned(source, values=[1, 1]) == 4.0
    assert earned("expect.values([1.0], [1.0, 2.0], points=2); expect.equal(1, 1)") == 2.0
    only = part("for value in (1, 3, 4): expect.equal(value, 1)")
    assert (only.met, only.found) == (False, "3"), "the first that is not met is described"


def test_points_are_rounded_to_a_millionth() -> None:
    assert earned("expect.values([1.0], [1.0, 2.0, 3.0])") == 0.333333
    assert earned("\n".join(["expect.values([1.0], [1.0, 2.0, 3.0])"] * 2)) == 0.666666


def tensor(data: Any, /, **changes: Any) -> SeenTensor:
    data = torch.as_tensor(data)
    about: dict[str, Any] = {"shape": tuple(data.shape), "dtype": str(data.dtype), "device": "cpu", "values": data}
    return SeenTensor(**about | changes)


@pytest.mark.parametrize(
    ("found", "expected", "right"),
    [
        (1.0001, 1.0, True), (1.00011, 1.0, False), (1e-6, 0.0, True), (1.01e-6, 0.0, False), (100.009, 100, True),
        (100.011, 100, False), ("1", 1.0, False), (True, 1.0, False), (1 + 0j, 1.0, False), (1, 1.0, True),
        ([1.0, 2.0], (1.0, 2.0001), True), ([1.0, 2.0], [1.0, 2.0, 3.0], False), ({"a": 1.0}, {"a": 1.00009}, True),
        ({"a": 1.0}, {"b": 1.0}, False), (1.0, [1.0], False), ([1.0], 1.0, False), ("a", "a", True), ("a", "b", False),
        (None, None, True), (None, 0, False), (None, False, False), (b"a", b"a", True), (b"a", "a", False),
        (torch.tensor([1.0001]), torch.tensor([1.0]), True), (torch.tensor([1.00012]), torch.tensor([1.0]), False),
        (torch.tensor([9e-7]), torch.tensor([0.0]), True), (torch.tensor([1.1e-6]), torch.tensor([0.0]), False),
        (torch.tensor([1]), torch.tensor([1.0]), True), (torch.tensor([1.0]), [1.0], True),
        (1.0, torch.tensor(1.0), False),
        (torch.ones(2), torch.ones(3), False), (torch.ones(1, 2), torch.ones(2), False),
        (torch.tensor([1 + 1j]), torch.tensor([1 + 1j]), True), (torch.tensor([1 + 1j]), torch.tensor([1.0]), False),
        (torch.tensor([1.0]), torch.tensor([1 + 1j]), False),
    ],
)  # fmt: skip
def test_close(found: Any, expected: Any, right: bool) -> None:
    assert earned("expect.close(found, expected)", found=found, expected=expected) == float(right)


@pytest.mark.parametrize(
    ("found", "expected", "right"),
    [
        (1, 1, True), (1, 1.0, True), (1.0, 1, True), (1 + 0j, 1, True), (True, 1, False), (1, True, False),
        (True, True, True),
        (1 + 1e-15, 1.0, False), ([1, [2]], [1, (2,)], True), ({1, 2}, {2, 1}, True), ({1}, [1], False),
        (torch.tensor([1.0]), torch.tensor([1.0]), True), (torch.tensor([1.0]), torch.tensor([1.0 + 1e-6]), False),
        (torch.tensor([1]), torch.tensor([1.0]), False), (torch.tensor([1]), [1], True),
        (torch.tensor([2]), [1], False),
        (torch.ones(9), torch.zeros(9), False), ("1", 1, False), (torch.float32, torch.float32, True),
        (torch.float32, torch.float64, False), (object, object, True), (float("nan"), float("nan"), False),
    ],
)  # fmt: skip
def test_equal(found: Any, expected: Any, right: bool) -> None:
    assert earned("expect.equal(found, expected)", found=found, expected=expected) == float(right)


def test_objects_of_the_notebook_s_own_equal_nothing() -> None:
    own = Opaque(SeenType(("__main__.A*", "builtins.object")), "A")
    library = Opaque(SeenType(("torch.dtype", "builtins.object")), "torch.float32")
    assert not met("equal", found=own, expected=own)
    assert met("equal", found=library, expected=library)
    assert not met("true", condition=own, sentence="s")


def test_values_share_points_within_their_tolerance() -> None:
    assert earned("expect.values([1.0001, 1.00011, 0.0], [1.0, 1.0, 1e-6], points=3)") == 2.0
    assert earned("expect.values([1.0, 2.0, 3.0], [1.0, 2.0], points=2)") == 2.0
    assert part("expect.values([1.0, 2.0, 3.0], [1.0, 2.0])").met
    assert not part("expect.values([1.0], [1.0, 2.0])").met
    assert not part("expect.values([], [])").earned


def test_numbers_that_are_at_most() -> None:
    for found, right in ((3, True), (3.0, True), (3.001, False), (-5, True), (True, True), ("3", False), (None, False)):
        assert earned("expect.at_most(found, 3)", found=found) == float(right)
    assert met("at_most", found=tensor(3.0), limit=3)
    assert met("at_most", found=tensor([3.0]), limit=3)
    assert not met("at_most", found=tensor([3.0, 1.0]), limit=3)
    assert not met("at_most", found=tensor(3.0, values=None), limit=3)


def test_conditions_that_are_true() -> None:
    assert met("true", condition=tensor(True), sentence="s")
    assert met("true", condition=tensor([2.0]), sentence="s")
    assert not met("true", condition=tensor([0.0]), sentence="s")
    assert not met("true", condition=tensor([True, True]), sentence="s")
    assert not met("true", condition=tensor(True, values=None), sentence="s")


def test_choices() -> None:
    right = digest("b")
    for answer, is_right in (
        ("b", True),
        (" B\n", True),
        ("a", False),
        ("", False),
        (..., False),
        (2, False),
        (right, False),
    ):
        assert met("choice", answer=answer, right=right) is is_right
    assert met("choice", answer="b", right="B")
    assert met("choice", answer=2, right="2")
    assert not met("choice", answer="b", right=right, salt="other")
    assert len(right) == 6
    assert digest("b") != digest("b", "streams") != digest("a", "streams")


def test_shapes_dtypes_and_types() -> None:
    assert met("shape", tensor=tensor([1.0, 2.0]), expected=[2])
    assert not met("shape", tensor=tensor([1.0, 2.0]), expected=(2, 1))
    assert not met("shape", tensor=(2,), expected=(2,))
    halves, wholes = tensor(torch.ones(1).half()), tensor([1])
    half = Opaque(SeenType(("torch.dtype",)), "torch.float16")
    assert met("dtype", thing=halves, expected=half)
    assert not met("dtype", thing=wholes, expected=half)
    assert met("dtype", thing=SeenGroup("module", "M", (("w", halves), ("steps", wholes))), expected=half), (
        "only floats"
    )
    assert not met("dtype", thing=SeenGroup("module", "M", (("w", halves), ("b", tensor([1.0])))), expected=half)
    assert not met("dtype", thing=SeenGroup("module", "M", ()), expected=half)
    assert not met("dtype", thing=3, expected=half)
    assert earned("expect.instance(3, int)") == 1.0
    assert earned("expect.instance(True, int)") == 1.0
    assert earned("expect.instance(3.0, int)") == 0.0


def test_runs_have_these_defaults() -> None:
    one = recording(kernels=[kernel(0, 10)], transfers=[copy(5, 15)], elapsed=1.0)
    assert met("overlaps", first="h2d", second="kernels", trace=one), "half of the shorter"
    less = recording(kernels=[kernel(0, 10)], transfers=[copy(6, 15)])
    assert not met("overlaps", first="h2d", second="kernels", trace=less)
    assert met("faster_than", baseline=1.0, trace=one)
    assert not met("faster_than", baseline=0.999, trace=one)
    assert met("kernels", trace=one, at_least=1, at_most=1)
    assert met("kernels", trace=one)
    assert met("peak_memory", below=1, trace=recording(peaks={0: 0, 1: 5}))
    assert met("transfers", trace=one, h2d=1, pinned=True)
    assert met("transfers", trace=one)
    assert met("collectives", trace=one)
    assert not met("no_races", trace=recording(races=[race()]))
    assert met("takes", at_most=1.0, trace=one)
    everywhere = recording(kernels=[kernel(0, 10, device=1)], transfers=[copy(0, 10)])
    assert not met("overlaps", first="h2d", second="kernels", trace=everywhere), "on the first device"
    assert not met("overlaps", first="h2d", second="host", at_least=0.0, trace=one)


def race() -> Race:
    return Race("read after write", *("" if one.type == "str" else 0 for one in dataclasses.fields(Race)[1:]))


def test_the_line_that_held_most_at_the_peak() -> None:
    def block(line: str, start: int, end: int, held: int, freed: bool = True, device: int = 0, size: int = 10) -> Any:
        known = {"line": line, "start_ns": start, "end_ns": end, "held": held, "freed": freed, "device": device,
                 "block_bytes": size, "nbytes": size, "name": "a", "stream": 0}  # fmt: skip
        fields = {one.name: one for one in dataclasses.fields(Allocation)}
        need = {
            name: "" for name, one in fields.items()
            if one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
        }  # fmt: skip
        return Allocation(**need | {name: value for name, value in known.items() if name in fields})

    blocks = [
        block("a:1", 0, 2, 10),
        block("a:2", 1, 9, 20, size=15),
        block("a:3", 4, 9, 25, size=5),
        block("a:4", 5, 6, 9, device=1),
    ]
    trace = recording(peaks={0: 25}, allocations=blocks)
    said = part_of("peak_memory", below=1, trace=trace)
    assert said.line == "a:2"
    assert "15 B by one line" in said.found
    assert part_of("peak_memory", below=1, trace=recording(peaks={0: 25})).line == ""
    kept = [block("a:1", 0, 2, 10, freed=False, size=20), block("a:2", 3, 9, 25, size=5)]
    assert part_of("peak_memory", below=1, trace=recording(peaks={0: 25}, allocations=kept)).line == "a:1", "still held"


def part_of(name: str, **data: Any) -> Any:
    check = RunningCheck(None, "<check>")
    begin(check)
    try:
        JUDGES[name](**data)
    finally:
        end(check)
    return check.outcomes[0]


def test_ranks_are_equal_to_each_other_and_to_one_device() -> None:
    same, other = {"w": tensor([1.0])}, {"w": tensor([1.0 + 1e-6])}
    assert met("same_on_every_rank", per_rank=[same, same])
    assert met("same_on_every_rank", per_rank=[same])
    assert not met("same_on_every_rank", per_rank=[same, same, other])
    assert not met("same_on_every_rank", per_rank=[same, {}])
    assert not met("same_on_every_rank", per_rank=[same, {"w": tensor([1.0]), "b": tensor([1.0])}])
    assert not met("same_on_every_rank", per_rank=[{}, {}])
    assert not met("same_on_every_rank", per_rank=[{"w": tensor([1.0], values=None)}] * 2)
    for found, right in ((1.0001, True), (1.00012, False), (0.9999, True)):
        assert met("equals_single_device", found={"w": tensor([found])}, expected={"w": tensor([1.0])}) is right
    for found, right in ((1e-5, True), (1.1e-5, False)):
        assert met("equals_single_device", found=tensor([found]), expected=tensor([0.0])) is right
    assert met("equals_single_device", found={"module.w": tensor([1.0])}, expected={"w": tensor([1.0])})
    assert met("equals_single_device", found={"w": tensor([1.0])}, expected={"module.w": tensor([1.0])})
    for found, expected in (
        ({}, {}), ({"w": tensor([1.0])}, {"v": tensor([1.0])}), ({"w": tensor([1.0])}, {}),
        ({"w": tensor([1.0, 1.0])}, {"w": tensor([1.0])}), ({"w": tensor([1.0], values=None)}, {"w": tensor([1.0])}),
        ({"w": tensor([1.0])}, {"w": tensor([1.0], values=None)}),
    ):  # fmt: skip
        assert not met("equals_single_device", found=found, expected=expected)


def test_devices() -> None:
    here, there = tensor([1.0], device="cuda:0"), tensor([1.0], device="cuda:1")
    assert JUDGES["same_device"](here, [here])
    for things in ((here, there), (here, 3), (3, 3)):
        with pytest.raises(Unmet):
            JUDGES["same_device"](*things)
    array = tensor([1.0], is_tensor=False)
    assert not met("on_device", thing=array, device="cpu"), "an array of numpy's is nowhere"
    assert not met("on_device", thing=here, device="cuda:1")
    assert met("on_device", thing=there, device="cuda")
    assert not met("grad_on_device", module=[tensor([1.0], requires_grad=True)], device="cpu")


def test_errors() -> None:
    def fails() -> None:
        raise FileNotFoundError("no such file")

    names: dict[str, Any] = {"fails": fails, "works": lambda: None}
    assert earned("expect.raises(fails, OSError)", **names) == 1.0
    assert earned("expect.raises(fails, OSError, 'such')", **names) == 1.0
    assert earned("expect.raises(fails, OSError, 'other')", **names) == 0.0
    assert earned("expect.raises(fails, KeyError)", **names) == 0.0
    assert earned("expect.raises(works, Exception)", **names) == 0.0
    assert earned("expect.raises_oom(fails)", **names) == 0.0
    long = "x" * 300
    names["fails"] = lambda: (_ for _ in ()).throw(ValueError(f"{long}\nsecond line"))
    assert part("expect.raises(fails, KeyError)", names).found == f"ValueError: {long[:200]}"
    with pytest.raises(KeyboardInterrupt):
        expect.raises(lambda: (_ for _ in ()).throw(KeyboardInterrupt()), KeyboardInterrupt)


def attempt(source: str, **about: Any) -> Attempt:
    return Attempt("a", name="cell.py", tree=ast.parse(source), **about)


def test_calls_in_the_exercise_s_cell() -> None:
    tried = attempt("import torch\ntorch.cuda.synchronize()\nf(\n    1)\nfor x in y:\n    x.item()\n    (a or b)()")
    for name, count in (("synchronize", 1), ("cuda.synchronize", 1), ("torch.cuda.synchronize", 1), ("f", 1),
                        ("item", 1), ("sync", 0), ("chronize", 0), ("torch", 0), ("x.item", 1)):  # fmt: skip
        assert part(f"expect.calls('{name}')", attempt=tried).met is (count >= 1), name
        assert part(f"expect.does_not_call('{name}')", attempt=tried).met is (count == 0), name
    assert not part("expect.calls('item', at_least=2)", attempt=tried).met
    assert part("expect.calls('item', at_least=2)", attempt=attempt("a.item()\nb.item()")).met
    assert part("expect.does_not_call('item')", attempt=tried).line == "cell.py:6"
    assert part("expect.does_not_call('absent')", attempt=tried).line == ""
    assert "has not run" in part("expect.calls('item')").found
    assert tried.calls() == [("torch.cuda.synchronize", 2), ("f", 3), ("x.item", 6), ("", 7)]
    assert Attempt("a").calls() == []


def test_the_line_that_made_a_name() -> None:
    tried = attempt(
        "import torch as t, os.path\nx = 1\nx: int = 2\nfor y in z: pass\nwith a as b: pass\ndef f(): pass\n"
        "class C: pass\nmodel.to(1)\nx.y.z()\nx = x\n(n := 1)\nf()\nasync def g(): pass"
    )
    for name, line in (("t", 1), ("os", 1), ("path", 0), ("torch", 0), ("x", 10), ("y", 4), ("b", 5), ("f", 0),
                       ("C", 0),
                       ("model", 8), ("n", 11), ("z", 0), ("g", 0)):  # fmt: skip
        assert tried.made(name) == (f"cell.py:{line}" if line else ""), name
    assert {"t", "os", "x", "n"} <= tried.assigned()
    assert "model" not in tried.assigned()
    assert Attempt("a").made("x") == ""
    assert Attempt("a").assigned() == set()


@pytest.mark.parametrize(
    ("source", "left"),
    [("raise NotImplementedError", True), ("raise NotImplementedError()", True),
     ("raise NotImplementedError('later')", False),
     ("def f():\n    raise NotImplementedError()", True), ("raise ValueError()", False), ("raise", False),
     ("NotImplementedError()", False), ("raise other.NotImplementedError()", False)],
)  # fmt: skip
def test_what_is_not_written_yet(source: str, left: bool) -> None:
    assert unwritten(ast.parse(source)) is left


def test_a_place_for_a_solution() -> None:
    for source, line in (("x: int = ...", 1), ("return_ = 1\ndef f():\n    return ...", 3), ("x = None", None),
                         ("'...'", None), ("x = f(...)", None), ("x += ...", None)):  # fmt: skip
        assert placeholder(ast.parse(source)) == line


def test_a_part_without_points_prepares() -> None:
    result = checking.run("x = 1\nexpect.equal(x, 1)\ny = 2", {}, "a")
    assert len(result.record.parts) == 1
    assert (float(result), result.record.points) == (1.0, 1.0)
    result = checking.run("1 / 0\nexpect.equal(1, 1)", {}, "a")
    assert [(one.met, one.points) for one in result.record.parts] == [(False, 0.0), (True, 1.0)]


def test_points_of_hidden_parts_that_are_not_there() -> None:
    for points, more in ((None, 0.0), (1, 0.0), (3, 2.0), (0.5, 0.0)):
        assert checking.run("expect.equal(1, 1)", {}, "a", points=points).record.more_points == more


def test_an_unsolved_exercise_is_told_from_a_wrong_one() -> None:
    def unsolved() -> None:
        raise NotImplementedError

    written, left = attempt("def solution(): return 1"), attempt("def solution(): raise NotImplementedError()")
    both = "expect.equal(solution(), 1)\nexpect.equal(1, 1)"
    for tried, is_unsolved, points in ((written, False, 1.0), (left, True, 0.0), (None, False, 1.0)):
        result = checking.run(both, {"solution": unsolved}, "a", tried)
        assert (result.record.unsolved, float(result)) == (is_unsolved, points)
    assert not checking.run("expect.equal(1, 1)", {}, "a", left).record.unsolved, "nothing raised"
    assert not checking.run("x = 1", {}, "a", left).record.unsolved, "no part"


def test_notes_on_the_card() -> None:
    assert checking.run("expect.equal(1, 1)", {}, "a").record.note == ""
    assert checking.run("expect.equal(1, 1)", {}, "a", attempt("x", error="E: no")).record.note.endswith("error: E: no")
    printed = checking.run("import sys\nprint('  ', file=sys.stderr)\nexpect.equal(1, 1)", {}, "a")
    assert printed.record.note == ""


def test_trace_that_an_expectation_looks_at() -> None:
    with pytest.raises(FakeGpuError, match="There is no recording"):
        expect.kernels(at_least=1)
    ended = attempt("x", error="E: no")
    assert "stopped with an error" in part("expect.kernels(at_least=1)", attempt=ended).found


def test_outside_a_check_an_expectation_has_no_line() -> None:
    assert "\n  line" not in told(lambda: expect.equal(1, 2))
