"""JupyterLab in a real browser; skipped, with the reason, where there is no browser to act with."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest

from tests.serving import free_port, wait_until_it_answers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOKEN = "fakegpu"
ROOT = Path(__file__).parents[2]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip


def chromium() -> str:
    """The browser's program; skips where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("there is no Chromium here (on Debian: apt-get install chromium)")
    return found


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="the extra `browser` is not installed")
    pytest.importorskip("jupyterlab", reason="JupyterLab is not installed")
    program = chromium()
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=program, args=FLAGS)
        yield started
        started.close()


EXTENSION = ROOT / "labextension"


def extension() -> Path | None:
    """The folder of JupyterLab's extension, if it is built of the present sources."""
    fresh = runpy.run_path(str(EXTENSION / "build.py"))["fresh"]()
    return EXTENSION / "built" if fresh else None


@pytest.fixture(scope="session")
def server(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A JupyterLab with an empty folder, and with the extension if that is built: its address, the folder."""
    folder = tmp_path_factory.mktemp("lab")
    port = free_port()
    scratch = {f"JUPYTER_{kind}_DIR": str(folder / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
    environment = {**os.environ, **scratch, "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    environment["JUPYTER_PREFER_ENV_PATH"] = "0"  # an extension installed beside this Python may be an older one
    environment.pop("FAKEGPU_LAB_MACHINE", None)
    settings = folder / "config/lab/user-settings/@jupyterlab/apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
    built = extension()
    if built is not None:
        shutil.copytree(built, folder / "data/labextensions/fakegpu-lab")
    notebooks = folder / "notebooks"
    notebooks.mkdir()
    command = [sys.executable, "-m", "jupyterlab", "--allow-root", "--no-browser", "--ip=127.0.0.1", f"--port={port}",
               "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}", "--LabApp.expose_app_in_browser=True",
               f"--ServerApp.root_dir={notebooks}"]  # fmt: skip
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until_it_answers(f"{address}/api?token={TOKEN}", process, folder / "log")
        yield address, notebooks
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:  # stopped while a kernel restarts, it waits for that
            process.kill()
            process.wait(20)


_IDLE = """() => {
    const widget = window.jupyterapp?.shell.currentWidget;
    return widget?.sessionContext?.session?.kernel?.status === "idle" && widget.content.model.cells.length > 0;
}"""


@pytest.fixture(scope="session")
def opened(browser: Any, server: tuple[str, Path]) -> Iterator[Callable[[str, list[str]], Any]]:
    """Opens a notebook with these cells, and waits until its kernel is ready; gives the page."""
    address, folder = server
    pages = []

    def open_(name: str, cells: list[str]) -> Any:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, folder / name)
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.set_default_timeout(60_000)
        pages.append(page)
        page.goto(f"{address}/lab/tree/{name}?token={TOKEN}&reset")
        page.wait_for_function(_IDLE, timeout=120_000)
        page.evaluate("""async () => {
            const context = window.jupyterapp.shell.currentWidget.sessionContext;
            await context.ready;
            await context.session.kernel.info;
        }""")
        page.evaluate("void window.jupyterapp.commands.execute('application:toggle-left-area')")
        return page

    yield open_
    for page in pages:
        page.close()
