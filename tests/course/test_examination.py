"""The grader's side of a check: what was seen in one process is judged in another, and nothing else counts."""

from __future__ import annotations

import ast
import copy
import json
import secrets
import sys
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab.course.checks import canaries
from fakegpu_lab.course.checks.examination import Examination, TamperedError, Tried, constant
from fakegpu_lab.course.checks.observe import tried
from fakegpu_lab.course.expect.attempt import Attempt
from fakegpu_lab.course.expect.plain_data.conversion import SeenTrace
from tests.course.graded_lesson import observed

if TYPE_CHECKING:
    from fakegpu_lab.course.checks.result import Result


class Check:
    """A check that is observed here, as in a submission's process, and can be judged after changes."""

    def __init__(self, source: str, names: dict[str, Any], attempt: Attempt | None = None) -> None:
        self.examination = Examination("\n" + source, gpus=lab.session.enabled())
        self.told: list[dict[str, Any]] = []
        self.tried = Tried("first", "\ny = x", json.loads(json.dumps(tried(attempt)))) if attempt is not None else None
        job = json.loads(json.dumps(self.examination.job()))
        observed(job, names, attempt, self._tell, "<check first>")

    def _tell(self, message: dict[str, Any]) -> None:
        self.told.append(json.loads(json.dumps(message)))

    def judged(self, told: list[dict[str, Any]] | None = None, points: float | None = None) -> Result:
        """What the grader makes of it."""
        told = self.told if told is None else told
        return self.examination.judge(told, self.tried, exercise="first", title="First", points=points, hints=2)

    def events(self, name: str) -> list[dict[str, Any]]:
        """What an expectation of the check itself reported."""
        at = -1
        found = []
        for event in self.told:
            at = event.get("part", at)
            if event.get("saw") == name and at not in self.examination.canaries:
                found.append(event)
        return found


SOURCE = (
    "total = add(1, 2)\nexpect.equal(total, 3, points=2)\nexpect.true(total > 4, 'it is more')\nexpect.close(half, 0.5)"
)
NAMES = {"add": lambda a, b: a + b, "half": 0.5}


def test_the_grader_judges_as_the_notebook_does() -> None:
    result = Check(SOURCE, dict(NAMES)).judged(points=5)
    assert float(result) == 3.0
    assert [part.met for part in result.record.parts] == [True, False, True]
    assert [part.earned for part in result.record.parts] == [2.0, 0.0, 1.0]
    assert (result.record.points, result.record.more_points, result.record.hints) == (4.0, 1.0, 2)
    assert result.record.parts[0].what == "`total` is 3"
    assert result.record.parts[1].what == "it is more"


def test_the_grader_says_of_an_error_what_the_notebook_says() -> None:
    result = Check(SOURCE, {"half": 0.5}).judged(points=5)
    assert [part.found for part in result.record.parts[:3]] == [
        "`add` is not defined",
        "what it needs could not be computed: see above",
        "what it needs could not be computed: see above",
    ]


@pytest.mark.parametrize("value", [2, "3", None, [3], 3.5, True, ..., torch.tensor(4)])
def test_a_wrong_value_is_wrong(value: Any) -> None:
    result = Check("expect.equal(value, 3)", {"value": value}).judged()
    assert float(result) == 0.0
    assert not result.record.passed


def changed(told: list[dict[str, Any]], how: str) -> list[dict[str, Any]]:
    told = copy.deepcopy(told)
    if how == "one is missing":
        del told[3]
    elif how == "one is doubled":
        told.insert(3, told[3])
    elif how == "two are exchanged":
        told[2], told[3] = told[3], told[2]
    elif how == "the end is missing":
        del told[-1]
    elif how == "something follows the end":
        told.append({"n": len(told), "part": 0})
    elif how == "nothing":
        told = []
    elif how == "only the end":
        told = [{"n": 0, "end": True}]
    elif how == "another expectation":
        told[next(i for i, one in enumerate(told) if one.get("saw"))]["saw"] = "choice"
    elif how == "no expectation":
        told[next(i for i, one in enumerate(told) if one.get("saw"))]["saw"] = "print"
    elif how == "a statement too many":
        end = told.pop()
        told += [{"n": len(told), "part": 99}, {**end, "n": len(told) + 1}]
    elif how == "no data":
        told = ["told"] * len(told)  # type: ignore[list-item]
    return told


HOW = [
    "one is missing",
    "one is doubled",
    "two are exchanged",
    "the end is missing",
    "something follows the end",
    "nothing",
    "only the end",
    "another expectation",
    "no expectation",
    "a statement too many",
    "no data",
]


@pytest.mark.parametrize("how", HOW)
def test_a_report_that_was_changed_is_no_result(how: str) -> None:
    check = Check("expect.equal(value, 3)\nexpect.equal(value, 3)", {"value": 3})
    assert float(check.judged()) == 2.0
    with pytest.raises(TamperedError):
        check.judged(changed(check.told, how))


def test_a_statement_that_reports_twice_must_be_met_twice() -> None:
    check = Check("expect.equal(value, 3)", {"value": 3})
    (event,) = check.events("equal")
    wrong = copy.deepcopy(event)
    wrong["data"]["found"] = 4
    at = check.told.index(event)
    told = [*check.told[: at + 1], wrong, *check.told[at + 1 :]]
    for number, one in enumerate(told):
        one["n"] = number
    assert float(check.judged(told)) == 0.0


def test_constants_are_taken_from_the_graders_text() -> None:
    """A process that reports other limits, or another expected value, gains nothing."""
    source = "expect.equal(value, torch.tensor([1, 2], dtype=torch.int64))\n"
    source += "expect.at_most(seven, limit=3)\nexpect.shape(value, (5, 5))"
    check = Check(source, {"value": torch.tensor([8, 9]), "seven": 7, "torch": torch})
    (equal,), (most,), (shape,) = (check.events(name) for name in ("equal", "at_most", "shape"))
    equal["data"]["expected"] = equal["data"]["found"]
    most["data"]["limit"] = 100
    shape["data"]["expected"] = ["tuple", [2]]
    assert float(check.judged()) == 0.0


def test_what_an_author_says_is_the_graders_too() -> None:
    check = Check("expect.equal(value, 3, what='It is three', hint='Count.', failure='No.')", {"value": 4})
    check.events("equal")[0]["data"]["said"] = ["dict", [["what", "hidden value: 49"]]]
    (part,) = check.judged().record.parts
    assert (part.what, part.hint, part.message) == ("It is three", "Count.", "No.")


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("-2.5", -2.5), ("(1024 * 512 + 512) * 4", 2099200), ("[list(range(3))] * 2", [[0, 1, 2]] * 2),
     ("'cuda:0'", "cuda:0"), ("torch.float32", torch.float32), ("{'a': (1, 2)}", {"a": (1, 2)})],
)  # fmt: skip
def test_constants_of_a_check(text: str, value: Any) -> None:
    assert constant(ast.parse(text, mode="eval").body) == (True, value)


@pytest.mark.parametrize(
    "text",
    [
        "value",
        "answer(3)",
        "torch.rand(3)",
        "torch.ones(2, device='cuda')",
        "lambda: 3",
        "[x for x in (1, 2)]",
        "int(x)",
        "torch.ones(2).to('cuda')",
        "(x := 3)",
    ],
)
def test_what_depends_on_the_process_is_no_constant(text: str) -> None:
    assert constant(ast.parse(text, mode="eval").body) == (False, None)


def test_a_statement_that_failed_earns_nothing_whatever_it_says() -> None:
    def fails() -> int:
        raise ValueError("no")

    check = Check("expect.equal(fails(), 3)\nexpect.equal(3, 3)", {"fails": fails})
    result = check.judged()
    assert [part.met for part in result.record.parts] == [False, True]
    assert result.record.parts[0].found == "ValueError: no"
    crash = next(event for event in check.told if "crashed" in event)
    crash["crashed"] = {"what": "fine", "met": True, "credit": 1.0}
    assert float(check.judged()) == 1.0


def test_a_part_that_reports_nothing_earns_nothing() -> None:
    check = Check("for one in losses: expect.true(one < 3, 'small')", {"losses": []})
    (part,) = check.judged().record.parts
    assert (part.met, part.found) == (False, "nothing to compare")


@pytest.mark.usefixtures("gpus")
def test_recordings_travel() -> None:
    source = (
        "y = expect.run(lambda: (x * 2).to('cuda').mul(3))\nexpect.on_device(y, 'cuda:0')\n"
        "expect.transfers(h2d=1, d2h=0)\nexpect.kernels(named='mul', at_least=1, at_most=1)\n"
        "expect.peak_memory(below='1MiB')\nexpect.takes(at_most='1 s')\n"
        "expect.allocated(below='1GiB', device=0)\nexpect.faster_than('1 s', by=2)\n"
        "expect.kernels(named='relu', at_least=1)\nexpect.transfers(h2d_at_most=0)"
    )
    result = Check(source, {"x": torch.ones(4)}).judged()
    assert [part.met for part in result.record.parts] == [True] * 7 + [False] * 2


@pytest.mark.usefixtures("gpus")
def test_the_recording_of_the_exercise_is_that_which_was_reported_when_it_ended() -> None:
    with lab.record() as trace:
        torch.ones(4).to("cuda")
    attempt = Attempt("first", name="cell.py", tree=ast.parse("\ny = x"), trace=trace)
    check = Check("expect.transfers(h2d=1)\nexpect.kernels(at_most=0)\nexpect.calls('relu')", {}, attempt)
    assert [part.met for part in check.judged().record.parts] == [True, True, False]
    (event,) = check.events("transfers")
    assert event["data"]["trace"] == ["attempt"], "it is not sent again"
    assert check.tried is not None
    assert isinstance(check.tried.trace, SeenTrace)
    check.tried.trace.transfers.clear()
    assert [part.met for part in check.judged().record.parts] == [False, True, False]
    check.tried = None
    assert float(check.judged()) == 0.0


def test_an_unsolved_exercise_earns_nothing() -> None:
    attempt = Attempt("first", name="cell.py", tree=ast.parse("\ny = ..."), unsolved=True)
    result = Check("expect.equal(3, 3)", {}, attempt).judged()
    assert (float(result), result.record.unsolved) == (0.0, True)
    told = {**tried(Attempt("first", name="cell.py")), "unsolved": False}
    assert Tried("first", "\ny = ...", told).attempt.unsolved, "the grader reads the cell itself"
    assert not Tried("first", "\ny = 3", told).attempt.unsolved


def test_canaries_are_as_they_must_be_here_and_among_them_are_false_ones() -> None:
    random = Random(1)
    made = [canaries.plain(random, canaries.Style()) for _ in range(200)]
    for one in made:
        check = Check(one.text, {"torch": torch})
        (event,) = [event for event in check.told if event.get("saw") and one.parameter in event["data"]][:1] or [None]
        assert event is not None
    assert any(one.text.startswith("expect.true") and one.right(False) for one in made)
    assert any(one.text.startswith("expect.true") and one.right(True) for one in made)
    assert not any(one.right(None) for one in made)
    assert len({one.text for one in made}) > 190, "chosen at random"


def test_canaries_look_like_the_statements_of_the_check() -> None:
    tree = ast.parse(
        "expect.equal(x, [1, 2], what='the sum')\nexpect.close(y, -0.25)\nexpect.true(z)\nexpect.equal(a, b)"
    )
    style, random = canaries.Style(tree), Random(2)
    assert (style.constants, style.said) == (["[1, 2]", "-0.25"], [", what='the sum'"])
    texts = [canaries.plain(random, style).text for _ in range(100)]
    assert any(text.endswith("[1, 2], what='the sum')") for text in texts)
    assert any(text.endswith(", -0.25)") for text in texts)
    assert any("expect.equal(torch.tensor" in text and "sum()" not in text for text in texts), "bare tensors"
    runs = {canaries.recorded(random, style).text.split("]", 1)[1] for _ in range(30)}
    assert len({op for run in runs for op in run.split(".")}) > 6, "kernels of many names"


def test_a_canary_that_comes_to_something_else_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("equal", True), ("allclose", True)):
        monkeypatch.setattr(torch, name, lambda *a, value=value, **k: value)
    found = 0
    for seed in range(30):
        monkeypatch.setattr(secrets, "token_bytes", lambda count, seed=seed: bytes([seed]) * count)
        check = Check("expect.equal(1, 1)", {})
        try:
            check.judged()
        except TamperedError as error:
            found += "gave a different result" in str(error)
    assert found > 3
    assert canaries.same([1, {"a": 2.0}], [1, {"a": 2.0}])
    for wrong in ([1, {"a": 2}], [True, {"a": 2.0}], [1], [1, {"b": 2.0}], None):
        assert not canaries.same(wrong, [1, {"a": 2.0}])


@pytest.mark.usefixtures("gpus")
def test_a_recording_that_is_forged_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(8):
        check = Check("expect.equal(1, 1)", {})
        assert not [event for event in check.told if "crashed" in event], "each of its functions can be called so"
        assert float(check.judged()) == 1.0
    at_ends = [number for number, one in check.examination.canaries.items() if one.parameter == "trace"]
    assert sorted(at_ends) == [0, len(check.examination.order) - 1]
    monkeypatch.setattr(lab.trace.Trace, "kernels", property(lambda self: []))
    with pytest.raises(TamperedError, match="gave a different result"):
        Check("expect.equal(1, 1)", {}).judged()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 knows the line only")
def test_each_of_two_expectations_in_a_line_has_its_own_limit() -> None:
    source = "for one in (1, 2): expect.at_most(one, 1) if one < 2 else expect.at_most(one, 2)"
    assert float(Check(source, {}).judged()) == 1.0
    source = "for one in (1, 2): expect.at_most(one, 2) if one < 2 else expect.at_most(one, 1)"
    assert float(Check(source, {}).judged()) == 0.0


def test_a_canary_runs_although_the_check_lacks_a_value_of_the_same_name() -> None:
    """Its comprehensions have names, too: a wrong answer was flagged where the check's own `one` was not made."""
    told: list[dict[str, Any]] = []
    canary = "expect.true(all(one > 27 for one in [27, 66]), 'none')"
    texts = [["one = missing", False], [canary, True], ["expect.equal(one, 1)", False]]
    observed({"statements": texts}, {}, None, told.append)
    seen = [message for message in told if "saw" in message]
    assert [(one["saw"], one["data"]["condition"]) for one in seen] == [("true", False)]
    assert ["crashed" in message for message in told].count(True) == 2
