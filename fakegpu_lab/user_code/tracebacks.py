"""Tracebacks end at the user's own line: without the frames of cell magics and of this package.

What is left is what the same error shows on a real GPU: the cell's lines, those of libraries in between, and CUDA's
message. While there is a machine they are trimmed where they are shown, in IPython and by `sys.excepthook`.
``FAKEGPU_LAB_DEBUG=1`` leaves all frames in.
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

_OURS = str(Path(__file__).parents[1]) + os.sep
_SHELL = str(Path("IPython", "core", "interactiveshell.py"))
_MAGICS = frozenset({"run_cell_magic", "run_line_magic"})


def trim(error: BaseException) -> None:
    """Take out of an error's traceback, and of those it was raised from, the frames that are not the user's concern.

    One that would have no frame left stays whole: it is an error of ours.
    """
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        one.__traceback__ = _trimmed(one.__traceback__)
        one = one.__cause__ or one.__context__


def _trimmed(traceback: TracebackType | None) -> TracebackType | None:
    frames = list(_steps(traceback))
    for place, step in enumerate(frames):
        code = step.tb_frame.f_code
        if code.co_name in _MAGICS and code.co_filename.endswith(_SHELL):
            frames = frames[place + 1 :]  # the line that calls the magic is Jupyter's, not the user's
            break
    files = [step.tb_frame.f_code.co_filename for step in frames]
    last = max((place for place, file in enumerate(files) if not (_is_hidden(file) or _is_torchs(file))), default=-1)
    for place, file in enumerate(files):
        if place > last and file.startswith(_OURS):  # from here on all stands for C++, torch's own frames as well
            frames = frames[:place]
            break
    kept = [step for step in frames if not _is_hidden(step.tb_frame.f_code.co_filename)]
    if not kept:
        return traceback
    found = None
    for step in reversed(kept):
        found = TracebackType(found, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return found


def _is_hidden(file: str) -> bool:
    return file.startswith(_OURS) or file.endswith(_SHELL)


def _is_torchs(file: str) -> bool:
    torchs = getattr(sys.modules.get("torch"), "__file__", None)
    return torchs is not None and file.startswith(str(Path(torchs).parent) + os.sep)


def _steps(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def show(shell: Any, error: Exception) -> None:
    """Show an error as IPython does, trimmed."""
    if not environment.DEBUG:
        trim(error)
    shell.showtraceback((type(error), error, error.__traceback__), tb_offset=0)


def watch() -> Callable[[], None]:
    """Trim what is shown from now on; returns what ends that."""
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
