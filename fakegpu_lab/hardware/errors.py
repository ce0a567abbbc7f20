"""The one exception class of the package."""

from __future__ import annotations


class FakeGpuError(ValueError):
    """A request that cannot be met, told to a student.

    The message is one sentence that names what was asked, what there is, and what to try. It is raised
    ``from None`` where the inner traceback would only frighten. Errors which a real GPU would raise are not
    of this class: they are CUDA's own, with CUDA's own words.
    """

    def _render_traceback_(self) -> list[str]:
        """What IPython shows instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]
