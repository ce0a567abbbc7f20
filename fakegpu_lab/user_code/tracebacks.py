"""Tracebacks without the frames of cell magics and of this package, so that they end at the user's own line.

The rest is what the same error shows on a real GPU: the cell's lines, those of libraries in between, and CUDA's
message. While a machine is enabled, IPython and `sys.excepthook` trim the tracebacks that they show.
``FAKEGPU_LAB_DEBUG=1`` keeps all frames.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fakegpu_lab.user_code import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_OURS = str(environment.PACKAGE) + os.sep
_SHELL = str(Path("IPython", "core", "interactiveshell.py"))
_MAGICS = frozenset({"run_cell_magic", "run_line_magic"})


def trim(error: BaseException) -> None:
    """Remove the frames of magics and of this package from the tracebacks of an error and of its causes.

    A traceback that would have no frame left stays whole: the error is ours.
    """
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        one.__traceback__ = _trimmed(one.__traceback__)
        one = one.__cause__ or one.__context__


def _trimmed(traceback: TracebackType | None) -> TracebackType | None:
    steps = _without_our_end(_below_magic(list(_steps(traceback))))
    kept = [step for step in steps if not _is_hidden(_file(step))]
    if not kept:
        return traceback
    trimmed = None
    for step in reversed(kept):
        trimmed = TracebackType(trimmed, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return trimmed


def _below_magic(steps: list[TracebackType]) -> list[TracebackType]:
    """The steps after IPython's call of a magic: the line that calls it is Jupyter's, not the user's."""
    for place, step in enumerate(steps):
        if step.tb_frame.f_code.co_name in _MAGICS and _file(step).endswith(_SHELL):
            return steps[place + 1 :]
    return steps


def _without_our_end(steps: list[TracebackType]) -> list[TracebackType]:
    """The steps before our first frame after the user's last: from there on, all frames (torch's too) stand for C++."""
    files = [_file(step) for step in steps]
    last = max((place for place, file in enumerate(files) if not (_is_hidden(file) or _is_torchs(file))), default=-1)
    for place, file in enumerate(files):
        if place > last and is_ours(file):
            return steps[:place]
    return steps


def _file(step: TracebackType) -> str:
    return step.tb_frame.f_code.co_filename


def is_ours(file: str) -> bool:
    """Whether a file of code belongs to this package."""
    return file.startswith(_OURS)


def _is_hidden(file: str) -> bool:
    return is_ours(file) or file.endswith(_SHELL)


def _is_torchs(file: str) -> bool:
    torchs = getattr(sys.modules.get("torch"), "__file__", None)
    return torchs is not None and file.startswith(str(Path(torchs).parent) + os.sep)


def _steps(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def show(shell: Any, error: Exception) -> None:
    """Show an error as IPython does, with a trimmed traceback."""
    if not environment.DEBUG:
        trim(error)
    shell.showtraceback((type(error), error, error.__traceback__), tb_offset=0)


def watch() -> Callable[[], None]:
    """Trim every traceback shown from now on; return the function that ends this."""
    if environment.DEBUG:
        return lambda: None
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        trim(error)
        before(kind, error, error.__traceback__)

    sys.excepthook = hook
    shell = environment.shell()
    ours = shell is not None and not shell.custom_exceptions
    if ours:
        shell.set_custom_exc((Exception,), lambda shell, kind, error, traceback, tb_offset=None: show(shell, error))

    def end() -> None:
        if sys.excepthook is hook:
            sys.excepthook = before
        if ours and shell.custom_exceptions == (Exception,):
            shell.custom_exceptions = ()

    return end
