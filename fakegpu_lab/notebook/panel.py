"""``lab.panel()``: the simulated GPUs while they work, in the notebook."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from importlib import resources
from typing import TYPE_CHECKING, Any

from fakegpu_lab import session
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.notebook import static_panel
from fakegpu_lab.notebook.telemetry.publisher import Outlet, publisher
from fakegpu_lab.notebook.telemetry.source import NO_MACHINE, Reader
from fakegpu_lab.user_code import environment

if TYPE_CHECKING:
    from collections.abc import Mapping

THEMES = ("auto", "light", "dark")
KEPT_ROWS = 150
"""Rows a device that stay in the notebook with the panel, for when there is no kernel."""

_LIVE_NEEDS = "A live panel needs a notebook with widgets (JupyterLab, Notebook 7, VS Code, Colab)"

_open: Panel | None = None


def panel(*, live: bool | None = None, theme: str = "auto") -> Panel:
    """Show the simulated GPUs: memory by what it is for, transfers, collectives, the last step as a timeline.

    In a notebook it moves while cells run; to show it, let it be the last line of a cell. Everywhere else it is a
    table, or a picture, of how things are now.

    Parameters
    ----------
    live
        Whether it moves; by default wherever that is known to work.
    theme
        ``"auto"`` (as the notebook), ``"light"`` or ``"dark"``.

    Raises
    ------
    FakeGpuError
        The theme is none of these, or the panel cannot be live here and has to be.
    """
    global _open
    if theme not in THEMES:
        raise FakeGpuError(f"There is no theme {theme!r}: it can be 'auto', 'light' or 'dark'.")
    missing = _missing()
    if live and missing:
        raise FakeGpuError(missing)
    if live is None:
        live = not missing and _front_end()
    if not live:
        return Panel(None, missing)
    if _open is None:
        _open = Panel(_widget()(theme=theme))
    elif theme != "auto":
        _open.widget.theme = theme
    return _open


def opened() -> Panel | None:
    """The live panel, if there is one."""
    return _open


def _missing() -> str:
    """Why there can be no live panel here; empty if there can."""
    if getattr(environment.shell(), "kernel", None) is None:
        return f"{_LIVE_NEEDS}; this Python has no notebook."
    try:
        import anywidget  # noqa: F401
    except ImportError:
        return f"{_LIVE_NEEDS}, and the package anywidget: pip install anywidget, and restart the kernel."
    return ""


def _front_end() -> bool:
    """Whether a front end that shows widgets has started this kernel, and not nbconvert, nbval or a grader."""
    started_by = ("JPY_SESSION_NAME", "VSCODE_PID", "VSCODE_CWD", "VSCODE_IPC_HOOK_CLI")
    return any(name in os.environ for name in started_by) or "google.colab" in sys.modules


@functools.cache
def _widget() -> Any:
    """The widget's class; anywidget is imported only where there is a panel."""
    import anywidget
    import traitlets

    def text(name: str) -> str:
        return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")

    class PanelWidget(anywidget.AnyWidget):
        """The live panel: draws what it is sent; `state` is what stays with the notebook."""

        _esm = text("panel.js")
        _css = text("panel.css")
        theme = traitlets.Unicode("auto").tag(sync=True)
        state = traitlets.Dict().tag(sync=True)

    return PanelWidget


class Panel:
    """What `panel` makes. As text it is a table, in a saved notebook a picture, both of the moment of showing."""

    def __init__(self, widget: Any, why_still: str = "") -> None:
        self.widget = widget
        self._why_still = why_still or f"{_LIVE_NEEDS}. lab.panel(live=True) shows it all the same."
        self._outlet: Outlet | None = None
        if widget is not None:
            telling = publisher()
            self._outlet = Outlet(telling.source, self._send, acknowledges=False)
            telling.source.busy = True  # this very cell
            telling.source.open()
            self.keep()
            widget.on_msg(self._heard)
            telling.add(self._outlet)

    def _send(self, message: dict[str, Any]) -> None:
        self.widget.send({"telemetry": message})

    def _heard(self, _: object, content: Mapping[str, Any], buffers: object) -> None:
        if self._outlet is not None and content.get("do") == "state":
            self._outlet.spoke()
            self._outlet.reader.forget()
            publisher().kick()

    def keep(self) -> None:
        """Let the notebook keep the state as it is now."""
        if self.widget is None:
            return
        source = publisher().source
        source.poll()
        message = Reader(source).message()
        if message is not None:
            state = message.model_dump(mode="json")
            state["history"] = {slot: rows[-KEPT_ROWS:] for slot, rows in state["history"].items()}
            state["busy"] = False
            self.widget.state = state

    def close(self) -> None:
        """Stop watching. The panel stays as it is; `panel` opens another one."""
        global _open
        if self._outlet is not None:
            self.keep()
            publisher().remove(self._outlet)
            self._outlet = None
        if _open is self:
            _open = None

    def __repr__(self) -> str:
        if not session.enabled():
            return NO_MACHINE
        return str(static_panel.table(session.snapshot(categories=True), "" if self.widget else self._why_still))

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]:
        bundle: dict[str, Any] = {"text/plain": repr(self)}
        note = "" if self.widget else self._why_still
        if session.enabled():
            bundle["text/html"] = static_panel.picture(session.snapshot(categories=True), note)
        metadata: dict[str, Any] = {}
        if self.widget is not None:
            with contextlib.suppress(Exception):  # whatever the widget has to say besides, the text is there
                # On Colab it enables the widget manager, and the metadata say where that is.
                shown, metadata = self.widget._repr_mimebundle_()
                bundle |= shown
        return (bundle, metadata) if metadata else bundle
