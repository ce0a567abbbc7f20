"""JupyterLab with the extension, in a browser: skipped where one of the two is missing, with the reason."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
EXTENSION = ROOT / "labextension"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
WAIT = 60_000
"""Milliseconds; generous, for a machine that does other things meanwhile."""


@pytest.fixture(scope="session")
def built() -> Path:
    """The folder of the bundle."""
    if not runpy.run_path(str(EXTENSION / "build.py"))["fresh"]():
        pytest.skip("JupyterLab's extension is not built of the present sources: make extension builds it")
    return EXTENSION / "built"


@pytest.fixture(scope="session")
def server(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a JupyterLab that has the extension, and the folder that it shows."""
    pytest.importorskip("jupyterlab", reason="JupyterLab is not installed")
    home = tmp_path_factory.mktemp("lab")
    folders = {name: home / name for name in ("config", "data", "runtime", "shown")}
    for folder in folders.values():
        folder.mkdir()
    shutil.copytree(built, folders["data"] / "labextensions" / "fakegpu-lab")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    variables = {
        "JUPYTER_CONFIG_DIR": str(folders["config"]),
        "JUPYTER_DATA_DIR": str(folders["data"]),
        "JUPYTER_RUNTIME_DIR": str(folders["runtime"]),
        "PYTHONPATH": python_path,
    }
    options = ["--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0"]
    options += ["--IdentityProvider.token=test", "--LabApp.expose_app_in_browser=True", "--LabApp.news_url="]
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options, str(folders["shown"])],
            env=os.environ | variables,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        until = monotonic() + WAIT / 1000
        while not _answers(f"{address}/api?token=test"):
            if process.poll() is not None or monotonic() > until:
                pytest.fail(f"JupyterLab does not start:\n{(home / 'log').read_text()[-2000:]}")
            sleep(0.2)
        yield address, folders["shown"]
    finally:
        process.terminate()
        process.wait(20)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A browser without a window."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"there is no browser ({', '.join(BROWSERS)})")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=FLAGS.split())
        yield opened
        opened.close()


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


@pytest.fixture(scope="module")
def lab(server: tuple[str, Path], browser: Any) -> Iterator[Lab]:
    """A page with the sidebar open."""
    address, folder = server
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(f"{address}/lab?token=test", timeout=WAIT)
    opened = Lab(page, folder)
    opened.loaded()
    opened.command("fakegpu-lab:show-gpus")
    opened.shows("No notebook is open")
    yield opened
    page.close()
