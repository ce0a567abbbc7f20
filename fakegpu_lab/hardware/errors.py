"""The one exception class of the package, and sentences below the messages of others."""

from __future__ import annotations

from typing import TypeVar

_Error = TypeVar("_Error", bound=BaseException)


class FakeGpuError(ValueError):
    """A request that cannot be met; the message is for a student.

    It is one sentence that names what was requested, what is available, and what to try. It is raised ``from None``
    where the inner traceback would only frighten. Errors that a real GPU would raise are not of this class: they are
    CUDA's own, with CUDA's wording.
    """

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython shows instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


def with_notes(error: _Error, *notes: str) -> _Error:
    """Put sentences below an error's own message, where Python shows them (3.11 and later); returns the error.

    Python 3.10 keeps them with the error, for what shows errors itself, such as a check's card.
    """
    if hasattr(error, "add_note"):
        for note in notes:
            error.add_note(note)
    else:
        error.__notes__ = [*getattr(error, "__notes__", ()), *notes]
    return error
