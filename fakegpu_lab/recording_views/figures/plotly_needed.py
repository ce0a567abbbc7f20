"""Imports plotly, which draws figures, without a grammar of web addresses that no figure needs.

To show a figure, plotly looks for nbformat, which imports jsonschema, which imports rfc3987_syntax if it is there, as
next to JupyterLab. That module builds a parser when it is imported: 18 MiB in the kernel of each student, to check that
a text is an international web address.
"""

from __future__ import annotations

import sys

from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.user_code import environment

_GRAMMAR = "rfc3987_syntax"


def need_plotly() -> None:
    """Import plotly and what it shows figures with; refuse in one sentence if it is not installed.

    In this process, jsonschema does not check the format "iri" then, unless the program imported it before.
    """
    left_out = _GRAMMAR not in sys.modules
    if left_out:
        sys.modules[_GRAMMAR] = None  # type: ignore[assignment]  # importing it fails, as if it were not there
    try:
        import plotly.graph_objects

        if environment.shell() is not None:  # in a notebook, figures are shown
            import plotly.io._renderers  # noqa: F401
    except ImportError:
        raise FakeGpuError(
            "The figure is drawn with plotly, which is not installed: pip install plotly nbformat, and try again. "
            "Without it, trace.summary() shows a table, and trace.to_chrome_trace('trace.json') writes a file that "
            "https://ui.perfetto.dev draws."
        ) from None
    finally:
        if left_out:
            del sys.modules[_GRAMMAR]
