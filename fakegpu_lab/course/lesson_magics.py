"""The magics of a lesson's notebook: ``%lesson``, ``%predict``, ``%%exercise``, ``%%check``, ``%hint`` and others.

An exercise is three cells of a notebook: the student's, which nbgrader calls a solution cell (``grade_id``: the
exercise's id)::

    %%exercise forgotten-model
    model = nn.Linear(4, 2)
    ### BEGIN SOLUTION
    model.to("cuda")
    ### END SOLUTION

its check, a locked grade cell (``grade_id``: the id and ``-check``; ``points``: the sum of its parts)::

    %%check forgotten-model
    expect.on_device(model, "cuda:0", hint="A module is moved in place: model.to(...) is enough.")
    expect.transfers(h2d_at_most=2, points=2)
    ### BEGIN HIDDEN TESTS
    expect.equal(model(x.cuda()).shape, (3, 2))
    ### END HIDDEN TESTS

and, if it has hints, a line for the student to uncomment: ``# %hint forgotten-model``.

``%%exercise`` records what the cell does (`fakegpu_lab.record`), so that the check can examine it, and shows a friendly
note while nothing is written yet. ``%%check`` runs each of its statements, even after one failed. **Every top-level
statement that calls** ``expect`` **is a part**, worth 1 point or what ``points=`` says (a number, not an expression);
other statements prepare. Parts between nbgrader's markers for hidden tests are hidden. The cell's value is a
`checks.result.Result`: a card in a notebook, the points as a float for nbgrader, and JSON (`checks.record.MIME`).
"""

from __future__ import annotations

from contextlib import nullcontext
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.getipython import get_ipython
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import Markdown, display

from fakegpu_lab import session, trace
from fakegpu_lab.course.checks import checking
from fakegpu_lab.course.checks.record import CheckRecord
from fakegpu_lab.course.checks.result import Result
from fakegpu_lab.course.expect.attempt import Attempt, placeholder, unwritten
from fakegpu_lab.course.lessons import extras, lesson, pages, progress, sharing
from fakegpu_lab.course.lessons.classroom import Classroom, NotSolvedYet
from fakegpu_lab.course.lessons.prediction import Prediction
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.user_code import cell_code, magic_line, tracebacks

if TYPE_CHECKING:
    from types import TracebackType

    from IPython.core.interactiveshell import InteractiveShell

    from fakegpu_lab.course.lessons.lesson import Exercise

RECORDS = 50_000
"""The most records of each kind in an exercise's recording: some 25 MB when all are full."""


def _not_python(error: SyntaxError) -> str:
    """Why a cell is not Python, and where, in one line."""
    text = (error.text or "").strip()
    where = f" (line {error.lineno}{f': `{text[:80]}`' if text else ''})" if error.lineno else ""
    return f"{type(error).__name__}: {error.msg}{where}"


class _Note:
    """A sentence or two: a quiet box in a notebook, text elsewhere."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        style = "border-left: 4px solid var(--jp-ui-font-color2, #616161); padding: 6px 14px; max-width: 860px"
        return f'<div role="note" style="{style}">{escape(self.text)}</div>'


@magics_class
class CourseMagics(Magics):
    """The magics of a lesson."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self.room = Classroom()

    @magic_arguments()
    @argument("name", help="the lesson's name: 01-device-placement")
    @line_magic
    def lesson(self, line: str) -> None:
        """Say which lesson this notebook is, for its hints and to save your progress.

        %lesson 01-device-placement
        """
        args = magic_line.parse(self.lesson, line)
        try:
            self.room = Classroom(lesson.find(args.name), Path.cwd())
        except FakeGpuError as error:
            raise UsageError(str(error)) from None
        found = self.room.lesson
        assert found is not None
        session.written_for(found.host)
        path = progress.path_for(found.name)
        display(pages.Welcome(found, progress.read(path) if path is not None else progress.Progress()))
        absent = extras.missing(found.needs)
        if absent:
            raise NotSolvedYet(f"This lesson is skipped: {extras.sentence(absent)}")

    @magic_arguments()
    @argument("id", help="the exercise")
    @cell_magic
    def exercise(self, line: str, cell: str) -> Any:
        """Run your solution of an exercise, so that its check can see what it did.

        %%exercise first-move
        y = x.to("cuda")
        """
        __tracebackhide__ = True
        args = magic_line.parse(self.exercise, line)
        skipped = self._skipped(self._exercise(args.id))
        if skipped:
            _show_note(skipped)
            return None
        _new_gpus()
        names: dict[str, Any] = getattr(self.shell, "user_ns")  # noqa: B009 - the shell is never None here
        earlier = self.room.attempts.get(args.id)
        for name in earlier.created if earlier is not None else ():
            names.pop(name, None)  # otherwise a check would find the result of a line that no longer works
        attempt = self.room.attempts[args.id] = Attempt(args.id)
        try:
            parsed = cell_code.parse(self.shell, cell)
        except SyntaxError as error:
            attempt.error = _not_python(error)
            raise
        attempt.name, attempt.tree = parsed.name, parsed.tree
        if placeholder(parsed.tree) is not None:
            self._stop_unsolved(attempt)
        new = {name for name in attempt.assigned() if name not in names}
        simulated = session.enabled() and session.watched() is None
        attempt.trace = trace.Trace(session.machine(), RECORDS) if simulated else None
        try:
            with attempt.trace or nullcontext():
                value = cell_code.run(self.shell, parsed, names)
        except NotImplementedError as error:
            if not str(error):
                self._stop_unsolved(attempt)
            attempt.error = f"NotImplementedError: {error}"
            raise
        except BaseException as error:
            attempt.error = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
            raise
        finally:
            attempt.created = {name for name in new if name in names}
        if unwritten(parsed.tree):
            raise NotSolvedYet(_request(self.room.exercise(args.id).title))
        return value

    def _stop_unsolved(self, attempt: Attempt) -> None:
        attempt.unsolved = True
        has_ellipsis = attempt.tree is not None and placeholder(attempt.tree) is not None
        raise NotSolvedYet(
            _request(self.room.exercise(attempt.exercise).title, "in place of the …" if has_ellipsis else "")
        )

    @magic_arguments()
    @argument("id", help="the exercise")
    @cell_magic
    def check(self, line: str, cell: str) -> Result:
        """Check your solution of an exercise.

        Every statement with ``expect`` in it is a part, and all of them are checked.
        """
        __tracebackhide__ = True
        args = magic_line.parse(self.check, line)
        about = self._exercise(args.id)
        skipped = self._skipped(about)
        if skipped:
            record = CheckRecord(
                exercise=args.id, title=about.title, points=about.points, score=0.0, unsolved=True, note=skipped
            )
            return Result(record)
        parsed = cell_code.parse(self.shell, cell)
        names: dict[str, Any] = getattr(self.shell, "user_ns")  # noqa: B009 - the shell is never None here
        result = checking.run(
            parsed.source, names, args.id, self.room.attempts.get(args.id), file=parsed.name, tree=parsed.tree,
            title=about.title, points=about.points if self.room.lesson else None, hints=len(about.hints),
            earlier=self.room.checks,
        )  # fmt: skip
        self.room.checks.add(parsed.name)
        problem = self.room.checked(result.record)
        if problem:
            print(problem)
        return result

    def _exercise(self, name: str) -> Exercise:
        try:
            return self.room.exercise(name)
        except ValueError as error:
            raise UsageError(
                str(error) if isinstance(error, FakeGpuError) else f"{name!r} is not an exercise."
            ) from None

    def _skipped(self, exercise: Exercise) -> str:
        """Why an exercise cannot be done here; empty if it can."""
        lesson = self.room.lesson
        absent = extras.missing([*(lesson.needs if lesson is not None else ()), *exercise.needs])
        if not absent:
            return ""
        where = "It counts when your notebook is graded on a computer that has it."
        return f"“{exercise.title}” is skipped: {extras.sentence(absent)} {where}"

    @magic_arguments()
    @argument("names", nargs="+", choices=list(extras.NAMES), help="libraries: numba, triton")
    @cell_magic
    def needs(self, line: str, cell: str) -> Any:
        """Run a cell only where a library is installed; elsewhere, say that it is skipped.

        %%needs triton
        """
        __tracebackhide__ = True
        absent = extras.missing(magic_line.parse(self.needs, line).names)
        if absent:
            _show_note(f"This cell is skipped: {extras.sentence(absent)}")
            return None
        parsed = cell_code.parse(self.shell, cell)
        names: dict[str, Any] = getattr(self.shell, "user_ns")  # noqa: B009 - the shell is never None here
        return cell_code.run(self.shell, parsed, names)

    @line_magic
    def hint(self, line: str) -> None:
        """Show the next hint of an exercise: %hint first-move. Each run shows one more."""
        try:
            text = self.room.hint(line.strip())
        except FakeGpuError as error:
            raise UsageError(str(error)) from None
        if getattr(self.shell, "kernel", None) is None:
            print(text)
        else:
            display(Markdown(text))

    @magic_arguments()
    @argument("name", help="a name for the question: any word, once in a lesson")
    @line_magic
    def predict(self, line: str) -> Prediction:
        """Show a place to write down what you expect from the next cell; it is kept with your progress.

        %predict two-devices
        """
        return Prediction(self.room, magic_line.parse(self.predict, line).name)

    @magic_arguments()
    @argument("folder", nargs="?", default="", help="your instructor's folder, or off")
    @line_magic
    def share(self, line: str) -> None:
        """Show your instructor how far you are, without your code: %share FOLDER, later %share off.

        Without a folder, %share says whether anything is shared.
        """
        folder = magic_line.parse(self.share, line).folder
        path = progress.path_for(self.room.lesson.name if self.room.lesson else "")
        if path is None:
            raise UsageError("Progress is not saved here, so there is nothing to share.")
        try:
            if folder == "off":
                print(sharing.stop(path.parent))
            else:
                print(sharing.begin(folder, path.parent) if folder else sharing.state(path.parent))
        except FakeGpuError as error:
            raise UsageError(str(error)) from None

    @magic_arguments()
    @argument("--save", metavar="PATH", help="write it to a separate page: my-progress.html")
    @line_magic
    def progress(self, line: str) -> Any:
        """Show what you have done so far, in all lessons.

        %progress
        %progress --save my-progress.html
        """
        args = magic_line.parse(self.progress, line)
        path = progress.path_for(self.room.lesson.name if self.room.lesson else "")
        summary = pages.Summary(progress.read(path) if path is not None else progress.Progress())
        if args.save:
            try:
                Path(args.save).write_text(summary.document(), encoding="utf-8")
            except OSError as error:
                raise UsageError(f"{args.save} cannot be written: {error.strerror}.") from None
            print(f"Written: {args.save}")
        return summary


def _request(title: str, where: str = "") -> str:
    place = where or "where it says YOUR CODE HERE, in place of the raise line"
    return f"“{title}” is yours to solve: write your code {place}, and run this cell again."


def _show_error(shell: Any, kind: type, error: Exception, traceback: TracebackType, tb_offset: Any = None) -> None:
    """Show the error that ended a cell; for a cell that is not solved yet, show a note instead."""
    if isinstance(error, NotSolvedYet):
        _show_note(str(error))
    else:
        tracebacks.show(shell, error)


def _show_note(text: str) -> None:
    """Show a sentence as a note where the shell displays HTML, else print it."""
    if getattr(get_ipython(), "kernel", None) is None:
        print(text)
    else:
        display(_Note(text))


def _new_gpus() -> None:
    """Start the GPUs again if a kernel of an earlier cell has made one unusable.

    On a real GPU only a new process helps; in a lesson, one exercise must not decide on all that follow.
    """
    if session.enabled() and session.machine().spec.measured:
        raise UsageError(
            "host='measured' differs from one computer to the next, so a check could not judge it: "
            "enable the GPUs without it."
        )
    if session.enabled() and session.machine().failed:
        session.reset()
        print("A kernel in an earlier cell failed, and its GPU could not be used anymore. It was reset, and is empty.")


def load(shell: InteractiveShell) -> None:
    """Register the magics with `shell`."""
    shell.register_magics(CourseMagics(shell))
    shell.set_custom_exc((Exception,), _show_error)


def unload(shell: InteractiveShell) -> None:
    """Remove the magics."""
    for name in ("lesson", "predict", "hint", "progress", "share"):
        shell.magics_manager.magics["line"].pop(name, None)
    for name in ("exercise", "check", "needs"):
        shell.magics_manager.magics["cell"].pop(name, None)
    shell.set_custom_exc((), None)
