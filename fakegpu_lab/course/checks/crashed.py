"""What a card says of a statement of a check that raised, in place of an outcome."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from fakegpu_lab.course.checks.statements import has_expectation, has_run, is_expectation, is_run
from fakegpu_lab.course.checks.without_end import WithoutEndError
from fakegpu_lab.course.expect import outcome
from fakegpu_lab.course.expect.outcome import Outcome, RunningCheck
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.user_code.frames import CELL, kind, position, steps

if TYPE_CHECKING:
    from types import TracebackType

FOLLOWS = "what it needs could not be computed: see above"
AGAIN = "the same error as above"
UNWRITTEN = "this is not written yet (NotImplementedError)"


def crashed(error: BaseException, statement: ast.stmt, check: RunningCheck) -> Outcome:
    """The outcome of a statement that raised an error."""
    step = next((step for step in steps(error.__traceback__) if step.tb_frame.f_code.co_filename == check.file), None)
    link = _link(statement, step)
    what = describe(link if link is not statement else _raising(statement, step))
    line = _student_line(error.__traceback__, check)
    if isinstance(error, NotImplementedError) and not str(error):
        return Outcome(met=False, what=what, found=UNWRITTEN, line=line)
    if error is check.run_error and not has_run(statement):  # the run's own part says it all
        return Outcome(met=False, what=what, found=FOLLOWS)
    if isinstance(error, WithoutEndError):
        loop = "Does a loop of yours never end? Print what its condition compares."
        said = _said(link, "hint")
        return Outcome(met=False, what=what, found=str(error), line=line, hint=f"{loop} {said}".strip())
    name = getattr(error, "name", None) or str(error)
    if isinstance(error, NameError) and name in check.not_made:
        return Outcome(met=False, what=what, found=FOLLOWS)
    if isinstance(error, NameError) and not line:
        hint = "Run the cells above from the top; if it is still missing, give your result this name."
        if check.attempt is not None and check.attempt.error:
            hint = "The cell above ended with an error before it was defined: fix that first."
        return Outcome(met=False, what=what, found=f"`{name}` is not defined", hint=hint)
    if isinstance(error, FakeGpuError) and not line:
        return Outcome(met=False, what=what, found=short(str(error)))
    again = AGAIN if has_expectation(statement) else FOLLOWS
    if _HANG in str(error) or _MISMATCH in str(error):
        ranks = (_hang if _HANG in str(error) else _mismatch)(str(error), what, line)
        if _seen(ranks.found, line, check):
            return Outcome(met=False, what=what, found=again, line=line)
        return ranks
    if not line and type(error).__name__ == _FAILED and any(one.found.startswith(_FAILED) for one in check.crashed):
        return Outcome(met=False, what=what, found=again)  # the GPU has failed before: nothing here is wrong by itself
    found = f"{type(error).__name__}: {short(_reason(error), 400)}" if str(error) else type(error).__name__
    notes: list[str] = getattr(error, "__notes__", [])
    if notes:  # what the simulation knows beyond CUDA's words, such as the thread and the index
        first = _first_line(_reason(error)).rstrip(".")
        more = notes[0].partition("\n")[0] if _STOPPED in notes[0] else notes[0]  # else where each rank was comes first
        found = f"{type(error).__name__}: {short(first)}. {short(more, 400)}"
    if _seen(found, line, check):
        return Outcome(met=False, what=what, found=again, line=line)  # the hint here is about a wrong result
    if isinstance(error, NameError):  # what the author says is about results
        hint = (
            f"Is `{name}` spelled correctly? What comes from a library must be imported, or follow its module's name."
        )
        return Outcome(met=False, what=what, found=found, line=line, hint=hint)
    said, raised = _said(link, "hint"), ""
    if line:
        own = check.attempt is not None and line.startswith(f"{check.attempt.name}:")
        who = "Your code raised this error when it was called" if own else "This error came up when your code was used"
        raised = f"{who}: call it yourself in a new cell, and read all of the message."
    elif "NoneType" in str(error):
        raised = outcome.NOTHING
    elif "unpack" in str(error) and not said:
        said = _several(_raising(statement, step))
    return Outcome(met=False, what=what, found=found, line=line, hint=" ".join(text for text in (said, raised) if text))


def _seen(found: str, line: str, check: RunningCheck) -> bool:
    """Whether an earlier statement of the check raised the same."""
    return any((_of_any_rank(one.found), one.line) == (_of_any_rank(found), line) for one in check.crashed)


def _of_any_rank(found: str) -> str:
    """A text about an error without the rank that raised it, which is another one each time."""
    return re.sub(r" Rank \d+ raised this; .*", "", found)


def _reason(error: BaseException) -> str:
    """An error's text. Of Triton's compiler's: the kernel's line, and the reason, which may be that of an inner error.

    Triton's own text shows the whole kernel first (triton/compiler/errors.py, ``CompilationError``). An error whose
    text is the tracebacks of ranks (torch/distributed/checkpoint/api.py, ``CheckpointException``) ends with the reason.
    """
    if _TRACEBACK in str(error):
        return str(error).rstrip().rpartition("\n")[2].strip()
    node, source = getattr(error, "node", None), getattr(error, "src", None)
    if not (isinstance(node, ast.AST) and isinstance(source, str) and hasattr(error, "error_message")):
        return str(error)
    number = getattr(node, "lineno", 0)
    lines = source.split("\n")
    where = f"line {number} of the kernel, `{lines[number - 1].strip()}`" if 0 < number <= len(lines) else "the kernel"
    inner: BaseException | None = error
    reason = ""
    while inner is not None and not reason:
        reason = inner.error_message or "" if hasattr(inner, "error_message") else str(inner)
        inner = inner.__cause__
    return f"{where}: {reason}" if reason else where


def _first_line(text: str) -> str:
    """A text's first line, with the next if it only announces that (torch/nn/modules/module.py, `load_state_dict`)."""
    first, _, rest = text.partition("\n")
    return f"{first} {rest.strip().partition(chr(10))[0]}" if first.endswith(":") else first


_TRACEBACK = "Traceback (most recent call last)"

_FAILED = "AcceleratorError"
"""What torch raises, from a kernel that failed on, in everything that waits for the GPU."""

_HANG, _CAUSE = "No rank can continue", "Likely cause: "
"""What `ranks.diagnosis.hang_messages` writes of a hang, after NCCL's own words."""


def _hang(text: str, what: str, line: str) -> Outcome:
    """A hang: where each rank waits, and the likely cause in full."""
    ranks = "; ".join(row.strip() for row in text.splitlines() if row.startswith("  rank "))
    _, found, cause = text.partition(_CAUSE)
    return Outcome(
        met=False,
        what=what,
        found=f"the ranks wait for each other forever: {short(ranks, 600)}",
        line=line,
        hint=short(f"{found}{cause}", 1000),
    )


_MISMATCH = "Detected mismatch between collectives on ranks"
"""How `ranks.collectives.mismatches` begins: torch's words. After an empty line come the two calls, then advice."""

_STOPPED = "the other ranks were stopped."


def _mismatch(text: str, what: str, line: str) -> Outcome:
    """Ranks that call different operations: which rank called what, and what to look for."""
    calls, _, advice = text.partition("\n\n")[2].partition("\n")
    return Outcome(met=False, what=what, found=short(calls, 600), line=line, hint=short(advice, 600))


def describe(statement: ast.AST) -> str:
    """What a part that did not finish expects: in the author's words (``what=``), or as its source."""
    what = _said(statement, "what")
    if what:
        return what
    for node in ast.walk(statement):
        if is_run(node) and node.args:
            call = ast.Call(node.args[0], node.args[1:], [named for named in node.keywords if named.arg != "hint"])
            return f"`{short(ast.unparse(call), 100)}` runs without an error"
        if is_expectation(node):
            call = ast.Call(
                node.func, node.args, [k for k in node.keywords if k.arg not in outcome.Said.__annotations__]
            )
            return f"`{short(ast.unparse(call), 100)}`"
    return f"`{short(ast.unparse(statement), 100)}`"


def _raising(statement: ast.stmt, step: TracebackType | None) -> ast.stmt:
    """The innermost statement that was running: of a part that expects nothing, a reader needs only the call."""
    if step is None or has_expectation(statement):
        return statement
    at = step.tb_lineno
    inside = [n for n in ast.walk(statement) if isinstance(n, ast.stmt) and n.lineno <= at <= (n.end_lineno or at)]
    return inside[-1] if inside else statement


def _several(statement: ast.AST) -> str:
    """How many values a function should return, of a statement that takes them apart: ``a, b = function(x)``."""
    if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call)):
        return ""
    (target, *_), call = statement.targets, statement.value
    function = call.args[0] if is_run(call) and call.args else call.func
    if not (isinstance(target, ast.Tuple) and isinstance(function, ast.Name)):
        return ""
    return f"`{function.id}` should return {len(target.elts)} values, separated by commas."


def _link(statement: ast.stmt, step: TracebackType | None) -> ast.AST:
    """Of expectations joined by `and`, that which was being computed; else the statement itself.

    Before Python 3.11, which knows no columns, it is the first that reaches into the line.
    """
    if step is None:
        return statement
    line, column = position(step.tb_frame.f_code, step.tb_lasti) or (None, None)
    place = line or step.tb_lineno, column or 0
    links = [link for node in ast.walk(statement) if isinstance(node, ast.BoolOp) for link in node.values]
    around = [
        link
        for link in links
        if (link.lineno, link.col_offset) <= place < (link.end_lineno or 0, link.end_col_offset or 0)
    ]
    return next((link for link in reversed(around) if has_expectation(link)), statement)


def _said(statement: ast.AST, about: str) -> str:
    """What the author says in a keyword of a part's first expectation or run; "…" stands for what must be computed."""
    for node in ast.walk(statement):
        if is_expectation(node) or (about == "hint" and is_run(node)):
            for keyword in node.keywords:
                if keyword.arg == about:
                    return _text(keyword.value)
            if about == "what" and ast.unparse(node.func) == "expect.true" and len(node.args) == 2:
                return _text(node.args[1])  # its second argument is `what`
            return ""
    return ""


def _text(value: ast.expr) -> str:
    """A text as far as it stands there; empty if nothing of it does."""
    if isinstance(value, ast.JoinedStr):
        text = "".join(_text(part) if isinstance(part, ast.Constant) else "…" for part in value.values)
        return text if text.strip("… ") else ""
    return str(value.value) if isinstance(value, ast.Constant) else ""


def _student_line(traceback: TracebackType | None, check: RunningCheck) -> str:
    """The student's line in a traceback: the innermost one in the exercise's cell, or else in another cell.

    If that other cell only called back what a check itself computes, it is none: the error is about the result.
    """
    line = own = ""
    for step in steps(traceback):
        file = step.tb_frame.f_code.co_filename
        if file == check.file or file in check.earlier:
            line = ""
        elif _is_attempt(file, check):
            own = f"{file}:{step.tb_lineno}"
        elif kind(file) == CELL:
            line = f"{file}:{step.tb_lineno}"
    return own or line


def _is_attempt(file: str, check: RunningCheck) -> bool:
    return check.attempt is not None and file == check.attempt.name


def short(text: str, most: int = 240) -> str:
    """A text on one line, shortened to `most` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"
