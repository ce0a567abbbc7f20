"""Expectations of errors: that a call raises one, or runs out of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.expect.outcome import report, subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Unpack

    from fakegpu_lab.course.expect.outcome import Said


def raises(function: Callable[[], Any], kind: type[BaseException], text: str = "", **said: Unpack[Said]) -> bool:
    """Expect that a function without arguments raises an error, with `text` in its message."""
    what = f"{subject('the call')} raises a {kind.__name__}" + (f" that says “{text}”" if text else "")
    try:
        function()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        met = isinstance(error, kind) and text in str(error)
        first = str(error).partition("\n")[0][:200]
        return report(said, met=met, what=what, found=f"{type(error).__name__}: {first}")
    return report(said, met=False, what=what, found="no error")


def raises_oom(function: Callable[[], Any], **said: Unpack[Said]) -> bool:
    """Expect that a function without arguments runs out of GPU memory."""
    import torch

    said.setdefault("what", f"{subject('the call')} runs out of GPU memory")
    return raises(function, torch.OutOfMemoryError, "", **said)
