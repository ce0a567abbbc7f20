"""JupyterLab in a page, used as a person would."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

WAIT = 60_000
"""Milliseconds; generous, for a machine that does other things meanwhile."""


@dataclass
class Lab:
    """JupyterLab in a page, used as a person would."""

    page: Any
    folder: Path

    def loaded(self) -> None:
        """Wait until the page stands."""
        self.page.wait_for_function("window.jupyterapp && window.jupyterapp.restored", timeout=WAIT)
        self.page.evaluate("window.jupyterapp.restored.then(() => true)")

    def command(self, name: str, **arguments: object) -> None:
        """Give a command, and do not wait for its end: that may be the end of a cell."""
        self.page.evaluate(f"void window.jupyterapp.commands.execute('{name}', {json.dumps(arguments)})")

    def write(self, name: str, *cells: str) -> None:
        """Put a notebook into the folder."""
        made = [
            {"cell_type": "code", "id": f"cell-{place}", "metadata": {}, "execution_count": None, "outputs": []}
            | {"source": source}
            for place, source in enumerate(cells)
        ]
        spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook = {"cells": made, "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5}
        (self.folder / name).write_text(json.dumps(notebook), encoding="utf-8")

    def open(self, name: str) -> None:
        """Open a notebook, or turn to it, and wait for its kernel."""
        self.command("docmanager:open", path=name)
        ready = """name => {
          const shown = window.jupyterapp.shell.currentWidget;
          return shown?.context?.path === name && shown.sessionContext.session?.kernel?.status === 'idle';
        }"""
        self.page.wait_for_function(ready, arg=name, timeout=WAIT)

    def run(self, place: int) -> None:
        """Run a cell."""
        self.page.evaluate(f"window.jupyterapp.shell.currentWidget.content.activeCellIndex = {place}")
        self.command("notebook:run-cell")

    def cells(self) -> list[str]:
        """The sources of the notebook's cells."""
        script = "window.jupyterapp.shell.currentWidget.content.model.sharedModel.cells.map(cell => cell.getSource())"
        found: list[str] = self.page.evaluate(script)
        return found

    def shows(self, text: str) -> None:
        """Wait until the sidebar has this text."""
        script = "text => document.querySelector('.fg-Gpus')?.innerText.includes(text)"
        self.page.wait_for_function(script, arg=text, timeout=WAIT)

    @property
    def sidebar(self) -> str:
        """The sidebar's text."""
        return str(self.page.inner_text(".fg-Gpus"))

    @property
    def status(self) -> str:
        """The status bar's text about GPUs."""
        return str(self.page.inner_text(".fg-Status"))
