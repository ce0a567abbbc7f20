"""Grades one submission: a function of a lesson and files, so that it can run in a thread or on Dask."""

from __future__ import annotations

import io
import logging
import re
import sys
import threading
import time
import tokenize
from importlib.util import find_spec
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.cell_text.source import bound_names, magics_of
from fakegpu_lab.course.checks.checking import REPAIR
from fakegpu_lab.course.expect.outcome import stated
from fakegpu_lab.course.flags.beside import Beside
from fakegpu_lab.course.flags.files import COMPILED
from fakegpu_lab.course.flags.measured_memory import PHRASES
from fakegpu_lab.course.flags.policy import UNREADABLE
from fakegpu_lab.course.grade import repair
from fakegpu_lab.course.grade.examiner import Examiner
from fakegpu_lab.course.grade.outcome import FOUND, CellOutcome, CheckOutcome, Outcome
from fakegpu_lab.course.grade.sandbox import confine
from fakegpu_lab.course.grade.sandbox.process import EndedError, Sandbox
from fakegpu_lab.course.grade.submissions import Submission
from fakegpu_lab.formatting.printable import encodable
from fakegpu_lab.formatting.units import several

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from fakegpu_lab.course.flags.policy import Policy
    from fakegpu_lab.course.grade.graded_lesson import GradedLesson
    from fakegpu_lab.course.grade.sandbox.limits import Limits

Altered = set[tuple[str, int, str]]
"""What is flagged unless the lesson's own solutions do so, too: the cell or check, the number of the check's statement,
and what is said of it: that a value changed in place, or that work was for show."""
_ALTERED: dict[str, tuple[Altered, set[str]]] = {}
_ALTERING = threading.Lock()
"""By a lesson's digest, what its own solutions change in place. One thread finds out, and the others wait."""
_LOG = logging.getLogger(__name__)
TRIES = 2
"""How often to try to start a submission's process: if it does not start, that is the computer's fault."""


def grade(
    submission: Submission, lesson: GradedLesson, limits: Limits, hide: list[str], until: str | None = None
) -> Outcome:
    """Grade one submission, or the part up to the cell `until`. This returns whatever the submission does."""
    confine.undumpable()
    began = time.monotonic()
    outcome = nothing_yet(submission, lesson)
    outcome.notes += submission.notes
    try:
        if submission.problem:
            raise repair.UnreadableError("unreadable", submission.problem)
        repaired = repair.repair(lesson, repair.read(submission.notebook))
    except repair.UnreadableError as error:
        outcome.status, outcome.reason = error.status, str(error)  # type: ignore[assignment]
    else:
        outcome.notes += repaired.notes
        outcome.notes += _other_files(submission, lesson)
        names = [cell.id for cell in repaired.cells]
        if until in names:
            del repaired.cells[names.index(until) + 1 :]
        _leave_to_person(outcome, lesson, repaired)
        for attempt in range(1, TRIES + 1):
            try:
                altered = _run(outcome, lesson, repaired, submission, limits, hide)
                _flag_altered(outcome, altered, lesson, limits, hide)
                break
            except (OSError, RuntimeError) as error:
                if attempt == TRIES:
                    outcome.status, outcome.reason = "error", f"the grader failed: {error}"
    outcome.seconds = round(time.monotonic() - began, 2)
    return outcome


def nothing_yet(submission: Submission, lesson: GradedLesson) -> Outcome:
    """The outcome before anything has run: 0 points in every check."""
    return Outcome(
        student=submission.student,
        lesson=lesson.name,
        digest=submission.digest,
        edition=lesson.digest,
        notes=[f"graded by the version released on {lesson.version}, which it came from"] if lesson.version else [],
        timestamp=submission.timestamp,
        checks=[
            CheckOutcome(
                grade_id=cell.grade_id,
                title=lesson.about(cell.grade_id.removesuffix("-check")).title,
                points=0.0,
                max_points=cell.points,
            )
            for cell in lesson.checks
        ],
    )


def _leave_to_person(outcome: Outcome, lesson: GradedLesson, repaired: repair.Repaired) -> None:
    """Leave written answers to a person; an answer that is missing earns 0, as in nbgrader."""
    written = {cell.id: cell.source for cell in repaired.cells if cell.answer} | repaired.texts
    for cell, check in zip(lesson.checks, outcome.checks, strict=True):
        if cell.manual:
            check.answer = cell.grade_id in written and written[cell.grade_id].strip() != cell.visible.strip()
            check.points = None if check.answer else 0.0


def _flag_altered(outcome: Outcome, altered: Altered, lesson: GradedLesson, limits: Limits, hide: list[str]) -> None:
    """Flag what an answer changed in place, and the lesson's own solutions do not, where it earned points."""
    earned = {check.grade_id for check in outcome.checks if check.points}
    altered = {one for one in altered if one[0] in earned or not one[1]}
    if altered:
        own, unsolved = _altered_by_solutions(lesson, limits, hide)
        altered = {one for one in altered - own if one[0] not in unsolved}
    found = {f"{cell}: {what}" for cell, _, what in altered}
    outcome.flags = sorted({*outcome.flags, *found})


def _altered_by_solutions(lesson: GradedLesson, limits: Limits, hide: list[str]) -> tuple[Altered, set[str]]:
    """What the lesson's own solutions change in place, and the checks that they did not pass: these say nothing.

    The solutions are run once for each version of the lesson.
    """
    with _ALTERING:
        if lesson.digest not in _ALTERED:
            _LOG.info("Running the solutions of %s once, for comparison", lesson.name)
            solved = Submission(student="", notebook=lesson.solved)
            repaired, outcome = repair.repair(lesson, repair.read(solved.notebook)), nothing_yet(solved, lesson)
            altered = _run(outcome, lesson, repaired, solved, limits, hide)
            _ALTERED[lesson.digest] = altered, {one.grade_id for one in outcome.checks if not one.passed}
        return _ALTERED[lesson.digest]


def _run(
    outcome: Outcome,
    lesson: GradedLesson,
    repaired: repair.Repaired,
    submission: Submission,
    limits: Limits,
    hide: list[str],
) -> Altered:
    outcome.cells = [CellOutcome(id=cell.id, kind=cell.kind, source=cell.visible, ran=False) for cell in repaired.cells]
    checks = {check.grade_id: check for check in outcome.checks}
    brought = {path: text for path, text in submission.files.items() if "__pycache__" not in PurePosixPath(path).parts}
    policy, flags = _read(lesson, repaired, submission, brought)
    failures, refused = set[str](), set[str]()
    files = {**brought, **lesson.files}
    about: dict[str, Any] = {"given": list(lesson.files), "read": sorted(lesson.read), "allow": lesson.allow}
    about["texts"] = sorted(policy.texts)
    sandbox = Sandbox(files, limits, hide, name=lesson.name, **about)
    answered: bool | None = None
    altered: Altered = set()
    examiner = Examiner(lesson)
    try:
        with sandbox:
            outcome.confined = sandbox.in_force
            for cell, shown in zip(repaired.cells, outcome.cells, strict=True):
                if cell.answer:
                    answered = not cell.untouched
                if cell.id in checks and cell.kind == "check":
                    checks[cell.id].answer, answered = answered, None
                message = sandbox.run(examiner.job(cell))
                examiner.remember(cell, message)
                shown.ran, shown.outputs = True, message["outputs"]
                if cell.kind == "student":
                    outcome.notes += _missing_modules(cell.id, message["outputs"])
                if cell.answer and not outcome.reason:
                    outcome.reason = _no_python(cell.id, message["outputs"])
                if cell.kind in ("given", "locked") and (failed := _failed(message["outputs"])):
                    failures |= {cell.id} if cell.source.strip() not in lesson.raising else set()
                    if cell.kind == "locked":
                        outcome.notes.append(f"the lesson's own cell {cell.id} failed: {failed}")
                if message.get("unreadable"):
                    refused.add(f"{cell.id}: {UNREADABLE}")
                flags |= {f"{cell.id}: {what}" for what in _tampered(message, cell.kind)}
                if cell.kind == "check":
                    problem = examiner.judge(message)
                    score(checks[cell.id], cell.source, message, flags, problem)
                altered |= set(_seen_by_check(cell.id, message, checks.get(cell.id)))
                if message["interrupted"]:
                    outcome.status = "timeout"
                    stopped = f"{repair.called(cell.id)} was stopped after {limits.cell_seconds:g} s"
                    outcome.reason = f"{stopped}; the rest was run"
                    if cell.kind == "check":
                        checks[cell.id].wrong = ["it did not finish"]
    except EndedError as end:
        outcome.status, outcome.reason = end.status, f"{end.reason}, in {repair.called(cell.id)}"  # type: ignore[assignment]
    if failures:
        flags |= _read(lesson, repaired, submission, brought, frozenset(failures))[1]
    flags -= refused
    outcome.peak_bytes = sandbox.peak_bytes
    outcome.processor_seconds = round(sandbox.spent.processor, 2)
    outcome.asleep_seconds = round(sandbox.spent.asleep, 2)
    flags |= sandbox.flags
    outcome.flags = sorted(flags)
    return altered


def _read(
    lesson: GradedLesson,
    repaired: repair.Repaired,
    submission: Submission,
    brought: dict[str, bytes],
    failed: frozenset[str] = frozenset(),
) -> tuple[Policy, set[str]]:
    """The policy that has read a submission, and what it finds in files and cells; `failed` as for `_suspicious`."""
    policy = lesson.policy([path.removesuffix(".py") for path in submission.files if path.endswith(".py")])
    modules = {path.removesuffix(".py") for path in lesson.files if path.endswith(".py")}
    found = _suspicious_files(
        policy, {path: text for path, text in brought.items() if path not in lesson.files}, modules
    )
    found |= set(lesson.made_with.flags(repaired.cells))
    found |= _beside(policy, repaired, brought)
    return policy, found | _suspicious(policy, repaired, lesson.read_by, failed)


def _beside(policy: Policy, repaired: repair.Repaired, brought: dict[str, bytes]) -> set[str]:
    """What answers' functions use of libraries that no exercise needs, with the places."""
    texts = [(path, _decoded(text)[0], False, True) for path, text in brought.items() if path.endswith(".py")]
    texts += [(one.id, one.source, one.answer, False) for one in repaired.cells if one.kind == "student"]
    return {f"{place}: {what}" for place, what in Beside(policy.used, policy.given).flags(texts)}


def _suspicious(
    policy: Policy,
    repaired: repair.Repaired,
    read_by: Callable[[str], frozenset[str]],
    failed: frozenset[str] = frozenset(),
) -> set[str]:
    """What the policy finds in a submission's own cells, with their places.

    Parameters
    ----------
    read_by
        Says what a check reads.
    failed
        The lesson's own cells that ended with an error: the names that they bind keep what the student gave them.
    """
    policy.look_ahead(cell.source for cell in repaired.cells if cell.kind == "student")
    later, vain = set[str](), list[set[str]]()
    for cell in reversed(repaired.cells):  # to change a name is in vain if it is made again before a check reads it
        vain.append(set(later))
        later |= bound_names(cell.source) if cell.kind != "student" and cell.id not in failed else set()
        later -= read_by(cell.source) if cell.kind == "check" else set()
    return {
        f"{cell.id}: {found}"
        for cell, made_again in zip(repaired.cells, reversed(vain), strict=True)
        if cell.kind == "student"
        for found in (*policy.flags(cell.source, made_again), *_second(cell, repaired))
    }


def _other_files(submission: Submission, lesson: GradedLesson) -> list[str]:
    """A sentence about what came with the notebook and is not the lesson's."""
    own = sorted(path for path in submission.files if "__pycache__" not in path and path not in lesson.files)
    own = [str(encodable(path)) for path in own]
    more = f" and {several(len(own) - _NAMED, 'other file')}" if len(own) > _NAMED else ""
    return [f"it came with {', '.join(own[:_NAMED])}{more}"] if own else []


_NAMED = 3
"""Of the files that came with a notebook, how many a note names."""


def _second(cell: repair.Cell, repaired: repair.Repaired) -> Iterator[str]:
    """Another answer to an exercise, in another cell: unless its own follows, the check looks at what that cell did."""
    text = cell.source.strip()
    exercise = repair.exercise_of(text)
    if exercise in ("", cell.id) or text in {one.source.strip() for one in repaired.cells if one.id == exercise}:
        return
    for later in repaired.cells[repaired.cells.index(cell) + 1 :]:
        if later.id == exercise and repair.exercise_of(later.source) == exercise:
            return
        if later.kind == "check" and ("check", exercise) in magics_of(later.source):
            break
    yield f"answers {exercise} in another cell"


def _suspicious_files(policy: Policy, files: dict[str, bytes], lessons: Collection[str] = ()) -> set[str]:
    """What is suspicious in files that were handed in: what the policy finds, and what hides a module.

    One of the lesson's is hidden by a folder of the same name.
    """
    found = {f"{path}: brings compiled code" for path in files if path.lower().endswith(COMPILED)}
    modules = {path: _decoded(text) for path, text in files.items() if path.endswith(".py")}
    for path, (source, _) in [*modules.items()] * 2:  # twice: one may import another
        policy.bring(path.removesuffix(".py").replace("/", "."), source)
    for path, (source, encoding) in modules.items():
        found |= {f"{path}: {what}" for what in _flags_of_file(policy, source, encoding)}
        name = PurePosixPath(path).parts[0].removesuffix(".py")
        if name in sys.stdlib_module_names or name in lessons or find_spec(name) is not None:
            found.add(f"{path}: takes the place of the module {name}")
    return found


def _flags_of_file(policy: Policy, source: str, encoding: str) -> list[str]:
    """What the policy finds in a module, whose encoding is empty if it cannot be decoded."""
    if not encoding:
        return ["cannot be decoded"]
    found = [] if encoding in ("utf-8", "utf-8-sig") else [f"is written in {encoding}"]
    return found + policy.flags(source, module=True)


def _decoded(text: bytes) -> tuple[str, str]:
    """A module's text as Python reads it, by its byte order mark or its coding cookie, and its encoding; else empty."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(text).readline)
        return text.decode(encoding), encoding
    except (SyntaxError, UnicodeDecodeError, LookupError):
        return "", ""


def _seen_by_check(cell: str, message: dict[str, Any], check: CheckOutcome | None) -> Iterator[tuple[str, int, str]]:
    """What the submission's process says of values that changed in place, work for show, and measured memory.

    Copies for show in an answer that fails are an honest mistake: ``x.to("cuda")``, whose result is thrown away. So is
    other work in an answer with at most half of the points: gradients that are cleared before anything uses them.
    """
    solved = check is not None and check.passed
    mostly = check is not None and (check.points or 0) > check.max_points / 2
    for number, name in message.get("altered", []):
        yield cell, int(number), f"changed {str(name)[:60]} in place, which the check uses"
    for number, kind in message.get("for_show", []):
        if solved or (mostly and kind == "work"):
            yield cell, int(number), f"statement {int(number)} of the check counts work whose results nothing uses"
    for number, what in message.get("memory", []):
        yield cell, int(number), PHRASES[what].format(int(number))


def _tampered(message: dict[str, Any], kind: str) -> list[str]:
    changed = [f"{what} had been replaced" for what in message.get("restored", [])]
    changed += message.get("left", [])
    changed += [f"the name {name} had been given another meaning" for name in message.get("rebound", [])]
    if message.get("threads") and kind == "check":
        changed.append("a thread of the notebook's own was running")
    return changed


def score(check: CheckOutcome, source: str, message: dict[str, Any], flags: set[str], problem: str = "") -> None:
    """Give points by nbgrader's rule (nbgrader/utils.py: determine_grade), except for its oddities.

    An error, or anything on stderr, earns 0; a number is the points; any other value, or none, earns all points if the
    check was run to its end. nbgrader gives all points for a negative number and for NaN, and fails for one above the
    maximum: here these earn 0 and a flag, and so does a check without a result. To stderr, an answer may log what it
    likes where ``%%check`` judges its parts.
    """
    check.ran, check.record = True, message.get("record")
    check.title = (check.record or {}).get("title") or check.title
    errors = [out for out in message["outputs"] if out["output_type"] == "error"]
    stderr = [out for out in message["outputs"] if out.get("name") == "stderr"]
    earned = message.get("score")
    parts = source.lstrip().startswith("%%check")
    failed = errors or (stderr and not parts)
    if message["interrupted"] or (failed and (message.get("ended") or not parts)):
        check.points = 0.0
    elif problem or not message.get("ended") or (check.record is None and parts):
        check.points = 0.0
        check.wrong = ["it had no result"]
        flags.add(f"{check.grade_id}: {problem or 'the check gave no result'}")
        return
    elif message.get("has_value") and earned is not None:
        possible = 0 <= earned <= check.max_points + 1e-9
        check.points = min(earned, check.max_points) if possible else 0.0
        if not possible:
            flags.add(f"{check.grade_id}: the check gave {earned:g} of {check.max_points:g} points")
    else:
        check.points = check.max_points
    if not check.passed:
        check.wrong = _what_was_wrong(check, errors, stderr)


_WHERE = re.compile(r" \((?:[^()]*, )?line (\d+)\)$")
"""How Python ends a sentence about a text that is not Python: with a file, which nobody knows, and the line."""


def _no_python(name: str, outputs: list[dict[str, Any]]) -> str:
    """A sentence about an answer that is no Python; else empty."""
    for output in outputs:
        if output["output_type"] == "error" and output["ename"] in ("SyntaxError", "IndentationError", "TabError"):
            told = str(output["evalue"])
            where = f"line {found[1]}: " if (found := _WHERE.search(told)) else ""
            return f"{name} is not valid Python ({where}{_WHERE.sub('', told)})"[:300]
    return ""


def _missing_modules(name: str, outputs: list[dict[str, Any]]) -> list[str]:
    """Sentences about libraries that a cell needs, and that are not installed where this runs."""
    errors = [one for one in outputs if one["output_type"] == "error" and one["ename"] == "ModuleNotFoundError"]
    return [f"{name} needs what is not installed here: {one['evalue']}"[:300] for one in errors]


def _failed(outputs: list[dict[str, Any]]) -> str:
    """The error of a cell, or of a magic in it, which IPython prints; empty if there is none."""
    for output in outputs:
        if output["output_type"] == "error":
            return f"{output['ename']}: {output['evalue']}"[:300]
        if output.get("name") == "stderr" and output["text"].startswith("UsageError"):
            return str(output["text"]).strip()[:300]
    return ""


_FOLLOWS = "what it needs could not be computed: see above"
_ENDED = "The cell above ended with an error: "


def _what_was_wrong(check: CheckOutcome, errors: list[dict[str, Any]], stderr: list[dict[str, Any]]) -> list[str]:
    """What was not met; of what follows from one cause, the cause alone."""
    record = check.record or {}
    note = str(record.get("note", ""))
    if note.startswith(_ENDED) and not check.points:
        error = note.removeprefix(_ENDED).partition(" While it was checked")[0].removesuffix(f". {REPAIR}")
        return [f"its cell ended with an error: {error}"]
    parts = [part for part in record.get("parts", []) if not part["met"] and part["found"] != _FOLLOWS]
    wrong = [FOUND.join(filter(None, (stated(part["what"], False), part["found"]))) for part in parts]
    wrong += [f"{out['ename']}: {out['evalue']}".rstrip(": ")[:300] for out in errors]
    if not wrong and stderr:
        wrong = ["it wrote to stderr: " + str(stderr[0]["text"]).strip()[:200]]
    if not wrong and (check.record or {}).get("unsolved"):
        wrong = ["nothing was written"]
    return wrong or ["not all points"]
