"""Shows tracebacks that end at the user's own line: while a machine is enabled, IPython and `sys.excepthook` trim them.

`frames.trim` removes the frames of cell magics and of this package.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from fakegpu_lab.user_code import environment
from fakegpu_lab.user_code.frames import trim

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


def show(shell: Any, error: Exception) -> None:
    """Show an error as IPython does, with a trimmed traceback."""
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
