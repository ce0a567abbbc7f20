"""Grades a class: with workers on this computer or on a Dask cluster. The grades are the same."""

from __future__ import annotations

import contextlib
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.grade.one_submission import grade, nothing_yet
from fakegpu_lab.course.grade.sandbox import process
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fakegpu_lab.course.grade.graded_lesson import GradedLesson
    from fakegpu_lab.course.grade.outcome import Journal, Outcome
    from fakegpu_lab.course.grade.sandbox.limits import Limits
    from fakegpu_lab.course.grade.submissions import Submission

DASK_TRIES = 2
"""How often Dask repeats a submission whose worker was lost."""


def run(
    submissions: list[Submission],
    lessons: list[GradedLesson],
    limits: Limits,
    hide: list[str],
    journal: Journal,
    *,
    jobs: int = 1,
    scheduler: str | None = None,
    only: str | None = None,
    done: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Grade all submissions; the outcomes are in their order.

    Parameters
    ----------
    lessons
        For each submission, the version of the lesson to grade it by.
    journal
        Each outcome is written to it at once; a submission whose outcome it has is not graded again.
    jobs
        How many submissions are graded at once.
    scheduler
        The address of a Dask scheduler whose workers are to grade. They need the same version of fakegpu_lab.
    only
        The check to grade again; every other check keeps what it earned in the run before. Submissions that the run
        before did not have are graded whole.
    done
        Called with each outcome, in the order in which they arrive.
    """
    outcomes: dict[int, Outcome] = {}
    before: dict[int, Outcome] = {}
    todo: list[int] = []
    for i, (submission, lesson) in enumerate(zip(submissions, lessons, strict=True)):
        known = journal.known(submission, lesson)
        if known is None:
            todo.append(i)
            old = journal.before(submission) if only else None
            if old and [check.grade_id for check in old.checks] == [cell.grade_id for cell in lesson.checks]:
                before[i] = old
        else:
            outcomes[i] = known
            done(known)
    grade_all = _on_dask if scheduler else _in_threads
    jobs_todo = [(submissions[i], lessons[i], only if i in before else None) for i in todo]
    for n, graded in grade_all(jobs_todo, limits, hide, scheduler or jobs):
        i = todo[n]
        outcome = before[i].with_check(only, graded) if only and i in before else graded
        outcomes[i] = outcome
        journal.add(outcome)
        done(outcome)
    return [outcomes[i] for i in range(len(submissions))]


_Job = tuple["Submission", "GradedLesson", "str | None"]
"""What is graded, by which version of the lesson, and the check to which; None for all of it."""


def _in_threads(todo: list[_Job], limits: Limits, hide: list[str], jobs: Any) -> Iterator[tuple[int, Outcome]]:
    """Grade in threads; the submissions' own processes do the work."""
    waiting = list(enumerate(todo))
    waiting.reverse()
    running: dict[Future[Outcome], int] = {}
    pool = ThreadPoolExecutor(jobs)
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                i, (submission, lesson, until) = waiting.pop()
                running[pool.submit(_grade, submission, lesson, limits, hide, until)] = i
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                yield running.pop(future), future.result()
    except BaseException:  # Ctrl-C ends what is running; --resume grades it
        process.stop_all()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _grade(submission: Submission, lesson: GradedLesson, limits: Limits, hide: list[str], until: str | None) -> Outcome:
    """Grade one submission; an error in the grader is an outcome, too, and does not affect other submissions."""
    try:
        return grade(submission, lesson, limits, hide, until)
    except Exception as error:
        return _failed(submission, lesson, f"the grader failed: {type(error).__name__}: {error}")


def _failed(submission: Submission, lesson: GradedLesson, reason: str) -> Outcome:
    outcome = nothing_yet(submission, lesson)
    outcome.status, outcome.reason = "error", reason
    return outcome


def _on_dask(todo: list[_Job], limits: Limits, hide: list[str], scheduler: Any) -> Iterator[tuple[int, Outcome]]:
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise FakeGpuError("Dask is not installed here: pip install 'fakegpu-lab[dask]'") from None
    try:
        client: Any = Client(scheduler, timeout="20s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise FakeGpuError(f"There is no Dask scheduler at {scheduler}: {error}.") from None
    with client:
        versions = {lesson.digest: lesson for _, lesson, _ in todo}
        shared = {digest: client.scatter(lesson, broadcast=True) for digest, lesson in versions.items()}
        futures = {
            client.submit(_grade, one, shared[lesson.digest], limits, hide, until, pure=False, retries=DASK_TRIES): i
            for i, (one, lesson, until) in enumerate(todo)
        }
        try:
            for future in as_completed(list(futures), loop=client.loop):
                i = futures[future]
                try:
                    yield i, future.result()
                except Exception as error:
                    yield i, _failed(todo[i][0], todo[i][1], f"Dask lost it: {type(error).__name__}: {error}")
        finally:
            with contextlib.suppress(Exception):
                client.cancel(list(futures))
