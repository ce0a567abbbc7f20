"""Expectations of the student's text: what it calls."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.expect.attempt import called
from fakegpu_lab.course.expect.outcome import looking, report
from fakegpu_lab.formatting.units import several
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fakegpu_lab.course.expect.outcome import Said


def calls(name: str, *, function: Any = None, at_least: int = 1, **said: Unpack[Said]) -> bool:
    """Expect that the exercise's cell (or a function) calls something.

    Parameters
    ----------
    name
        As it is written, or the end of it: ``"synchronize"`` finds ``torch.cuda.synchronize()``.
    function
        Look at this function's text, in place of the cell's.
    at_least
        In so many places.
    """
    found = _calls(name, function)
    what = f"your code calls `{name}`" + (f" in {at_least} places" if at_least > 1 else "")
    told = several(len(found), "call") if found else "no such call"
    return report(said, met=len(found) >= at_least, what=what, found=told)


def does_not_call(name: str, *, function: Any = None, **said: Unpack[Said]) -> bool:
    """Expect that the exercise's cell (or a function) does not call something."""
    found = _calls(name, function)
    look = looking()
    file = look.attempt.name if look is not None and look.attempt is not None and function is None else ""
    line = f"{file}:{found[0][1]}" if found and file else ""
    return report(said, met=not found, what=f"your code does without `{name}`", found="it calls it", line=line)


def _calls(name: str, function: Any) -> list[tuple[str, int]]:
    if function is not None:
        every = called(ast.parse(textwrap.dedent(inspect.getsource(function))))
    else:
        look = looking()
        if look is None or look.attempt is None:
            raise FakeGpuError(
                "The exercise's cell has not run: it begins with %%exercise, and is run before its check."
            )
        every = look.attempt.calls()
    return [call for call in every if call[0] == name or call[0].endswith(f".{name}")]
