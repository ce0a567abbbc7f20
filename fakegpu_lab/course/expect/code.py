"""Expectations of the student's code: what it calls."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.expect.attempt import called
from fakegpu_lab.course.expect.expectation import expectation
from fakegpu_lab.course.expect.outcome import report, running_check
from fakegpu_lab.formatting.units import several
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fakegpu_lab.course.expect.outcome import Said


def _source(function: Any) -> str | None:
    """The text of a function and of those that it wraps; None stands for the exercise's cell.

    Whatever it says that it wraps (``__wrapped__``), only functions that it can call count.
    """
    if function is None:
        return None
    if not isinstance(function, types.FunctionType):
        return textwrap.dedent(inspect.getsource(function))
    found, waiting = dict[types.FunctionType, str](), [function]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found[one] = textwrap.dedent(inspect.getsource(one.__code__))
            held = [cell.cell_contents for cell in one.__closure__ or ()]
            waiting += [other for other in held if isinstance(other, types.FunctionType)]
    return "\n".join(found.values())


@expectation("function", function=_source)
def calls(name: str, *, function: Any = None, at_least: int = 1, **said: Unpack[Said]) -> bool:
    """Expect that the exercise's cell (or a function) calls something, where it can run: dead code does not count.

    Parameters
    ----------
    name
        The function as written, or the end of it: ``"synchronize"`` finds ``torch.cuda.synchronize()``.
    function
        Search this function instead of the cell.
    at_least
        The number of places.
    """
    found = _calls(name, function, reached=True)
    what = f"your code calls `{name}`" + (f" in {at_least} places" if at_least > 1 else "")
    count = several(len(found), "call") if found else "no such call"
    return report(said, met=len(found) >= at_least, what=what, found=count)


@expectation("function", function=_source)
def does_not_call(name: str, *, function: Any = None, **said: Unpack[Said]) -> bool:
    """Expect that the exercise's cell (or a function) does not call something."""
    found = _calls(name, function)
    check = running_check()
    file = check.attempt.name if check is not None and check.attempt is not None and function is None else ""
    line = f"{file}:{found[0][1]}" if found and file else ""
    return report(said, met=not found, what=f"your code does not use `{name}`", found="it calls it", line=line)


def _calls(name: str, function: Any, *, reached: bool = False) -> list[tuple[str, int]]:
    if function is not None:
        every = called(ast.parse(function), reached=reached)
    else:
        check = running_check()
        if check is None or check.attempt is None:
            raise FakeGpuError("The exercise's cell has not run: run it before its check. It begins with %%exercise.")
        every = check.attempt.calls(reached=reached)
    return [call for call in every if call[0] == name or call[0].endswith(f".{name}")]
