"""The one exception class of the package."""

from __future__ import annotations


class FakeGpuError(ValueError):
    """A request that cannot be met; the message is for a student.

    It is one sentence that names what was requested, what is available, and what to try. It is raised ``from None``
    where the inner traceback would only frighten. Errors that a real GPU would raise are not of this class: they are
    CUDA's own, with CUDA's wording.
    """

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython shows instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]
