"""A class graded: by some workers of this computer, or by those of a Dask cluster. The grades are the same."""

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
    from fakegpu_lab.course.grade.journal import Journal
    from fakegpu_lab.course.grade.outcome import Outcome
    from fakegpu_lab.course.grade.sandbox.limits import Limits
    from fakegpu_lab.course.grade.submissions import Submission

DASK_TRIES = 2
"""How often Dask starts a submission anew whose worker was lost."""


def run(
    submissions: list[Submission],
    lesson: GradedLesson,
    limits: Limits,
    hide: list[str],
    journal: Journal,
    *,
    jobs: int = 1,
    scheduler: str | None = None,
    done: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Grade all submissions; the outcomes are in their order.

    Parameters
    ----------
    journal
        Each outcome is written to it as soon as it is there; those it knows are not made again.
    jobs
        How many submissions are graded at once.
    scheduler
        The address of a Dask scheduler; its workers grade then. They need fakegpu_lab of the same version.
    done
        Called with each outcome, in the order in which they come.
    """
    outcomes: dict[int, Outcome] = {}
    todo: list[int] = []
    for i, submission in enumerate(submissions):
        known = journal.known(submission)
        if known is None:
            todo.append(i)
        else:
            outcomes[i] = known
            done(known)
    made = _on_dask if scheduler else _here
    for i, outcome in made([submissions[i] for i in todo], lesson, limits, hide, scheduler or jobs):
        outcomes[todo[i]] = outcome
        journal.add(outcome)
        done(outcome)
    return [outcomes[i] for i in range(len(submissions))]


def _here(
    submissions: list[Submission], lesson: GradedLesson, limits: Limits, hide: list[str], jobs: Any
) -> Iterator[tuple[int, Outcome]]:
    """Grade with threads: the work is done by the submissions' own processes."""
    waiting = list(enumerate(submissions))
    waiting.reverse()
    running: dict[Future[Outcome], int] = {}
    pool = ThreadPoolExecutor(jobs)
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                i, submission = waiting.pop()
                running[pool.submit(_grade, submission, lesson, limits, hide)] = i
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                yield running.pop(future), future.result()
    except BaseException:  # Ctrl-C: what runs is ended now, and graded when the run is resumed
        process.stop_all()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _grade(submission: Submission, lesson: GradedLesson, limits: Limits, hide: list[str]) -> Outcome:
    """Grade one; what goes wrong in the grader itself is an outcome, too, and costs no other submission its own."""
    try:
        return grade(submission, lesson, limits, hide)
    except Exception as error:
        return _failed(submission, lesson, f"the grader failed: {type(error).__name__}: {error}")


def _failed(submission: Submission, lesson: GradedLesson, reason: str) -> Outcome:
    outcome = nothing_yet(submission, lesson)
    outcome.status, outcome.reason = "error", reason
    return outcome


def _on_dask(
    submissions: list[Submission], lesson: GradedLesson, limits: Limits, hide: list[str], scheduler: Any
) -> Iterator[tuple[int, Outcome]]:
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise FakeGpuError("Dask is not installed here: pip install 'fakegpu-lab[dask]'") from None
    try:
        client: Any = Client(scheduler, timeout="20s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise FakeGpuError(f"There is no Dask scheduler at {scheduler}: {error}.") from None
    with client:
        shared = client.scatter(lesson, broadcast=True)
        futures = {
            client.submit(_grade, one, shared, limits, hide, pure=False, retries=DASK_TRIES): i
            for i, one in enumerate(submissions)
        }
        try:
            for future in as_completed(list(futures), loop=client.loop):
                i = futures[future]
                try:
                    yield i, future.result()
                except Exception as error:
                    yield i, _failed(submissions[i], lesson, f"Dask lost it: {type(error).__name__}: {error}")
        finally:
            with contextlib.suppress(Exception):
                client.cancel(list(futures))
