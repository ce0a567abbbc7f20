"""The grader's side of a check: judges what was seen in the submission's process, and never runs a line of a student's.

In that process, `observe` runs the check's statements and reports what each expectation saw, one message after the
other. Here, `Examination` reads them: it knows which statements the check has, takes constants from its own copy of the
text, and judges. Messages that are missing, doubled or out of order are no result.
"""

from __future__ import annotations

import ast
import secrets
import threading
from random import Random
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.cell_text.source import DEEPEST, depth
from fakegpu_lab.course.checks import canaries, checking, statements
from fakegpu_lab.course.expect import outcome
from fakegpu_lab.course.expect.attempt import Attempt, placeholder
from fakegpu_lab.course.expect.expectation import JUDGES, RUNS, SIGNATURES
from fakegpu_lab.course.expect.outcome import Outcome, RunningCheck
from fakegpu_lab.course.expect.plain_data.codec import decode
from fakegpu_lab.course.expect.plain_data.conversion import Attempted, seen

if TYPE_CHECKING:
    from fakegpu_lab.course.checks.canaries import Canary
    from fakegpu_lab.course.checks.result import Result

_JUDGING = threading.Lock()
"""The expectations know one running check at a time."""
_MAKERS = frozenset({"tensor", "ones", "zeros", "full", "arange", "eye"})
_CONSTANTS = frozenset({"list", "range", "tuple", "float", "int", "torch"})


class TamperedError(Exception):
    """What was reported is not what a check reports; the message says in what way."""


def _tree(source: str) -> ast.Module | None:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if depth(tree) <= DEEPEST else None


class Tried:
    """An exercise's cell, as the grader knows it: its text, and what was reported when it ended.

    Parameters
    ----------
    exercise
        The exercise's id.
    source
        The cell's Python, with an empty first line in place of the magic.
    told
        The report: file name, label, error, recording.
    """

    def __init__(self, exercise: str, source: str, told: dict[str, Any]) -> None:
        tree = _tree(source)
        unsolved = bool(told.get("unsolved")) or (tree is not None and placeholder(tree) is not None)
        name = str(told.get("name", ""))
        self.attempt = Attempt(exercise, name, tree, error=str(told.get("error", ""))[:300], unsolved=unsolved)
        self.label = str(told.get("label", ""))[:40]
        self.lines = source.splitlines()
        self.trace = decode(told["trace"]) if told.get("trace") else None
        self.places = {
            str(line): (str(label)[:200], str(text)[:500]) for line, (label, text) in told.get("places", {}).items()
        }


class Examination:
    """One check of one submission.

    Parameters
    ----------
    source
        The check's Python, with an empty first line in place of the magic, and with its hidden parts.
    gpus
        Whether the submission's machine has GPUs, so that something can be recorded.
    """

    def __init__(self, source: str, *, gpus: bool) -> None:
        self.parts = statements.parts(source)
        self._own = statements.bound_in(self.parts)
        self._texts = [statements.alone(part.statement, source) for part in self.parts]
        random, style = Random(secrets.token_bytes(16)), canaries.Style(_tree(source))
        self.canaries: dict[int, Canary] = {}
        order: list[statements.Part | None] = list(self.parts)
        for _ in range(2 + len(order) // 4):
            order.insert(random.randrange(len(order) + 1), None)
        makers = {place: canaries.plain for place, part in enumerate(order) if part is None}
        if gpus:  # at the ends, because it takes simulated time
            order = [None, *order, None]
            makers = {0: canaries.recorded, len(order) - 1: canaries.recorded} | {
                at + 1: one for at, one in makers.items()
            }
        self.order = order
        self.canaries = {place: make(random, style) for place, make in makers.items()}

    def job(self) -> dict[str, Any]:
        """What the submission's process needs to know: the texts of all statements, and which are canaries."""
        own = iter(self._texts)
        texts = (
            [next(own), False] if part is not None else [self.canaries[place].text, True]
            for place, part in enumerate(self.order)
        )
        return {"statements": list(texts)}

    def judge(
        self,
        told: list[dict[str, Any]],
        tried: Tried | None,
        *,
        exercise: str,
        title: str,
        points: float | None,
        hints: int,
    ) -> Result:
        """Judge what was reported.

        Raises
        ------
        TamperedError
            It is not what a check reports, or a canary came to something else.
        """
        grouped, stderr = self._grouped(told)
        attempt = tried.attempt if tried is not None else None
        judged: list[tuple[statements.Part, list[Outcome]]] = []
        places: dict[str, tuple[str, str]] = dict(tried.places) if tried is not None else {}
        for at, events in enumerate(grouped):
            for event in events:
                places |= _shown(event.get("places"))
            part = self.order[at]
            if part is None:
                self._look_at(self.canaries[at], events)
            elif attempt is None or not attempt.unsolved:
                judged.append((part, [self._outcome(part, event, tried) for event in events]))
        return checking.result(
            self.parts, judged, attempt, stderr, exercise=exercise, title=title, points=points, hints=hints,
            show=lambda line: _place(line, tried, places),
        )  # fmt: skip

    def _grouped(self, told: list[dict[str, Any]]) -> tuple[list[list[dict[str, Any]]], str]:
        """What was reported, by statement; and what was written to stderr."""
        grouped: list[list[dict[str, Any]]] = []
        for number, event in enumerate(told):
            if not isinstance(event, dict) or event.get("n") != number:
                raise TamperedError("what the check reported is not in order")
            if "changed" in event:
                raise TamperedError(f"{str(event['changed'])[:100]} had been given another meaning while the check ran")
            if "part" in event and event["part"] == len(grouped) < len(self.order):
                grouped.append([])
            elif "end" in event and number == len(told) - 1 and len(grouped) == len(self.order):
                return grouped, str(event.get("stderr", ""))
            elif grouped and ("saw" in event or "crashed" in event):
                grouped[-1].append(event)
            else:
                raise TamperedError("what the check reported does not match its text")
        raise TamperedError("the check stopped reporting before its end")

    def _look_at(self, canary: Canary, events: list[dict[str, Any]]) -> None:
        found = [event for event in events if "saw" in event]
        if not found and events and canary.parameter == "trace":
            return  # the machine is off, or has no memory left
        try:
            named = len(events) == len(found) == 1 and canary.text.startswith(f"expect.{found[0]['saw']}(")
            right = named and canary.right(decode(found[0]["data"][canary.parameter]))
        except (KeyError, ValueError, TypeError):
            right = False
        if not right:
            raise TamperedError(f"`{canary.text}` gave a different result than in an untouched process")

    def _outcome(self, part: statements.Part, event: dict[str, Any], tried: Tried | None) -> Outcome:
        """The outcome of one expectation, or of a statement that failed."""
        if "crashed" in event:
            texts = {name: str(event["crashed"].get(name, "")) for name in ("what", "found", "line", "hint")}
            return Outcome(met=False, what=texts["what"], found=texts["found"], line=texts["line"], hint=texts["hint"])
        name = event["saw"]
        call = _call(part.statement, name, event.get("at"))
        if name not in JUDGES or call is None:
            raise TamperedError("what the check reported does not match its text")
        try:
            data = {key: decode(value) for key, value in event["data"].items()}
            data |= {key: tried.trace if tried else None for key, value in data.items() if isinstance(value, Attempted)}
            _take_constants(call, name, data)
        except (ValueError, AttributeError, TypeError) as error:
            raise TamperedError("what the check reported cannot be read") from error
        running = RunningCheck(
            tried.attempt if tried else None, "", part.statement, self._own, function=name, call=call
        )
        bound = SIGNATURES[name].bind_partial()
        with _JUDGING:
            outcome.begin(running)
            try:
                bound.arguments.update({key: data[key] for key in SIGNATURES[name].parameters})
                JUDGES[name](*bound.args, **bound.kwargs)
            except Exception as error:  # of the check's author, such as limits that contradict each other
                running.outcomes = [Outcome(met=False, what=f"`{ast.unparse(call)}`"[:200], found=str(error)[:240])]
            finally:
                outcome.end(running)
        (made,) = running.outcomes
        return made


def _shown(places: Any) -> dict[str, tuple[str, str]]:
    """Where lines are, for people, as it was reported."""
    if not isinstance(places, dict):
        return {}
    return {
        str(line): (str(one[0])[:200], str(one[1])[:500])
        for line, one in places.items()
        if isinstance(one, list) and len(one) == 2
    }


def _call(statement: ast.stmt, name: Any, at: Any) -> ast.Call | None:
    """The call of an expectation in a statement; at a place, or the only one if the place is not known."""
    calls = [
        node
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name
    ]
    here = [node for node in calls if [node.lineno, node.col_offset] == at]
    return here[0] if here else calls[0] if len(calls) == 1 else None


def _take_constants(call: ast.Call, name: str, data: dict[str, Any]) -> None:
    """Put the constants of the check's own text in the place of what was reported of them."""
    parameters = SIGNATURES[name].parameters
    rest = next((one.name for one in parameters.values() if one.kind is one.VAR_KEYWORD), "")
    positional = [one.name for one in parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
    pairs = list(zip(positional, call.args, strict=False))
    pairs += [(keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg is not None]
    for key, node in pairs:
        if key in RUNS[name] or isinstance(node, ast.Starred):
            continue
        known, value = constant(node)
        if known and key in parameters:
            data[key] = seen(value)
        elif known:
            data[rest][key] = seen(value)


def constant(node: ast.expr) -> tuple[bool, Any]:
    """Whether an expression of a check has a value of its own, and the value: numbers, texts, small tensors of them."""
    try:
        return True, ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        pass
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id not in _CONSTANTS:
            return False, None
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr not in _MAKERS:
            return False, None
        if isinstance(part, ast.keyword) and part.arg == "device":
            return False, None
        if isinstance(part, (ast.Lambda, ast.NamedExpr, ast.comprehension)):
            return False, None
    import torch

    names = {"torch": torch, "__builtins__": {"list": list, "range": range, "tuple": tuple, "float": float, "int": int}}
    try:
        return True, eval(compile(ast.Expression(node), "<check>", "eval"), names)
    except Exception:  # what cannot be computed from the text alone is no constant, whatever is wrong with it
        return False, None


def _place(line: str, tried: Tried | None, places: dict[str, tuple[str, str]]) -> tuple[str, str]:
    """Where a line is, for people: in the exercise's cell, or as the submission's process named it."""
    file, _, number = line.rpartition(":")
    if tried is not None and file and file == tried.attempt.name and number.isdecimal():
        at = int(number)
        text = tried.lines[at - 1].strip() if 0 < at <= len(tried.lines) else ""
        return (f"{tried.label}, line {number}", text)
    return places.get(line, ("", ""))
