"""`expectation`: makes an expectation of a function that judges what was seen of its arguments.

A call first looks at each argument, which makes plain data of it (`seen`). Then it judges the data. While a class is
graded, the data also go to the grader, who judges them again in a process that never runs a student's code.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, ParamSpec

from fakegpu_lab.course.expect.outcome import running_check
from fakegpu_lab.course.expect.plain_data.conversion import seen

if TYPE_CHECKING:
    from collections.abc import Callable

    P = ParamSpec("P")
else:
    P = ParamSpec("P")

JUDGES: dict[str, Callable[..., bool]] = {}
"""By name, the functions that judge what was seen."""
SIGNATURES: dict[str, inspect.Signature] = {}
"""By name, the parameters of each expectation."""
RUNS: dict[str, frozenset[str]] = {}
"""By name, the parameters of which something is seen by running or measuring: their text says nothing of it."""


def expectation(*runs: str, **how: Callable[[Any], Any]) -> Callable[[Callable[P, bool]], Callable[P, bool]]:
    """Make an expectation of a judge.

    Parameters
    ----------
    *runs
        Names of parameters that are run or measured to see something.
    **how
        By parameter, how to look at it, in this order; `seen` for the others.
    """

    def wrap(judge: Callable[P, bool]) -> Callable[P, bool]:
        signature = inspect.signature(judge)
        name = judge.__name__

        @functools.wraps(judge)
        def expect(*args: P.args, **kwargs: P.kwargs) -> bool:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given = bound.arguments
            check = running_check()
            if check is not None:
                check.function = name
            given.update({parameter: look(given[parameter]) for parameter, look in how.items()})
            given.update({parameter: seen(value) for parameter, value in given.items() if parameter not in how})
            if check is not None:
                check.function = name  # what was run may have called another expectation
                if check.observed is not None:
                    check.observed(name, dict(given))
            return judge(*bound.args, **bound.kwargs)

        JUDGES[name], SIGNATURES[name], RUNS[name] = judge, signature, frozenset(runs)
        return expect

    return wrap
