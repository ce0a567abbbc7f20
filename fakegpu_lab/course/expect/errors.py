"""Expectations of errors: that a call raises one, or runs out of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.expect.expectation import expectation
from fakegpu_lab.course.expect.outcome import report, subject
from fakegpu_lab.course.expect.plain_data.conversion import SeenError, SeenType, named, type_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Unpack

    from fakegpu_lab.course.expect.outcome import Said


def _raised(function: Callable[[], Any]) -> SeenError | None:
    """What a call raises; None if it raises nothing."""
    try:
        function()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return SeenError(type_of(error), str(error))
    return None


@expectation("function", "kind", function=_raised, kind=named)
def raises(function: Callable[[], Any], kind: type[BaseException], text: str = "", **said: Unpack[Said]) -> bool:
    """Expect that a function without arguments raises an error, with `text` in its message."""
    assert isinstance(kind, SeenType)
    what = f"{subject('the call')} raises a {kind.name}" + (f" that says “{text}”" if text else "")
    return _report(function, kind.names[0], text, what, said)


@expectation("function", function=_raised)
def raises_oom(function: Callable[[], Any], **said: Unpack[Said]) -> bool:
    """Expect that a function without arguments runs out of GPU memory."""
    return _report(function, "torch.OutOfMemoryError", "", f"{subject('the call')} runs out of GPU memory", said)


def _report(error: object, kind: str, text: str, what: str, said: Said) -> bool:
    if not isinstance(error, SeenError):
        return report(said, met=False, what=what, found="no error")
    met = kind in error.type.names and text in error.text
    return report(said, met=met, what=what, found=f"{error.type.name}: {error.text.partition(chr(10))[0][:200]}")
