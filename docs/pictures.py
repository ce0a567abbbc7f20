"""Makes the pictures of README.md and the guide: ``python docs/pictures.py [NAME …]`` writes docs/images/NAME.png.

It needs the extra `browser` and a Chromium (on Debian: apt-get install chromium), and for `kernel-card` the extra
`numba`. Figures of recordings are made by timeline.py, ranks.py and memory.py, here, and photographed; the others are
photographed in a JupyterLab that is started for it, with the extension as it is built.

docs/images/drawn.json has a digest of what each picture was made of (`drawn`): a test fails if the code now draws
something else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import urlopen

import nbformat
from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
DRAWN = DOCS / "images" / "drawn.json"
TOKEN = "pictures"
WAIT = 120_000
"""Milliseconds; generous, for a machine that does other things meanwhile."""

PAGES = {
    "copies": ("timeline.py", "copies.html", 1000, 640),
    "gpt-step": ("timeline.py", "gpt-step.html", 1000, 520),
    "ddp-step": ("ranks.py", "ddp-step.html", 1000, 1080),
    "memory": ("memory.py", "memory.html", 1000, 540),
    "whole-data-parallel": ("../tests/fidelity/side_by_side.py", "data-parallel.html", 1000, 560),
    "whole-resnet50": ("../tests/fidelity/side_by_side.py", "resnet50.html", 1000, 560),
    "whole-alexnet": ("../tests/fidelity/side_by_side.py", "alexnet.html", 1000, 560),
}
"""By picture: the program, the page that it writes, and the size of the window."""

SETUP = "%load_ext fakegpu_lab\n%fakegpu a100:2\nimport torch\nfrom torch import nn"
SMALL = SETUP.replace("a100:2", "t4 --memory 2GiB --compute meta")
TRAIN = """\
blocks = [layer for _ in range(4) for layer in (nn.Linear(512, 512), nn.ReLU())]
model = nn.Sequential(*blocks).cuda()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(12):
    x = torch.rand(4096, 512).to("cuda")
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()"""
FILL = TRAIN.replace("512", "3072").replace("4096", "12288")
"""The same, larger, on a card that it nearly fills: shapes alone, because the values would take minutes."""
KERNEL = """\
%%kernel
from numba import cuda, float32


@cuda.jit
def transpose(source, target):
    tile = cuda.shared.array((32, 32), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    tile[ty, tx] = source[y, x]
    cuda.syncthreads()
    target[cuda.blockIdx.x * 32 + ty, cuda.blockIdx.y * 32 + tx] = tile[tx, ty]


source = torch.rand(256, 256, device="cuda")
transpose[(8, 8), (32, 32)](source, torch.empty_like(source))"""
LESSON = "01-device-placement"
ANSWERS = {
    "find-the-gpu": 'device = "cuda" if torch.cuda.is_available() else "cpu"\ncount = torch.cuda.device_count()',
    "first-move": 'return (2 * prices).to("cuda")',
}
"""What a student wrote, by exercise: the second one is not quite right."""

OPEN = re.compile(r"(?m)^( *)# YOUR CODE HERE\n *raise NotImplementedError\(\)")

NOTEBOOKS = {
    "panel": ([SMALL, "%fakegpu panel", FILL], ".fg-Panel", ()),
    "kernel-card": ([SETUP, KERNEL], "section[aria-label^=transpose]", ()),
    "extension-dashboard": ([SETUP, TRAIN], "", ("show-gpus", "show-dashboard")),
    "extension-lesson": ([], "", ("show-lessons",)),
}
"""By picture: the cells that are run, what of the page is on it (all if empty), and the extension's commands before."""

SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},  # else what is out of sight is not on the page
    "apputils-extension/notification": {"fetchNews": "false"},
}


def photograph_pages(browser: Any, names: list[str]) -> None:
    """Run the programs of these pictures, and photograph the pages that they write."""
    with tempfile.TemporaryDirectory() as folder:
        for program in {PAGES[name][0] for name in names}:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(DOCS)])}
            subprocess.run([sys.executable, str(DOCS / program)], cwd=folder, env=environment, check=True)
        for name in names:
            _, written, width, height = PAGES[name]
            page = browser.new_page(viewport={"width": width, "height": height})
            page.set_default_timeout(WAIT)
            page.goto((Path(folder) / written).as_uri())
            page.wait_for_selector(".js-plotly-plot .main-svg")
            page.wait_for_timeout(1500)
            height = page.evaluate(
                "Math.max(...[...document.body.children].map(one => one.getBoundingClientRect().bottom))"
            )
            page.set_viewport_size({"width": width, "height": round(height) + 16})
            page.screenshot(path=str(DOCS / "images" / f"{name}.png"))
            page.close()


@contextlib.contextmanager
def jupyterlab() -> Iterator[tuple[str, Path]]:
    """A JupyterLab with the extension and an empty folder: its address, the folder."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as text:
        folder = Path(text)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        scratch = {f"JUPYTER_{kind}_DIR": str(folder / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
        environment = {**os.environ, **scratch, "PYTHONPATH": str(ROOT), "JUPYTER_PREFER_ENV_PATH": "0"}
        shutil.copytree(ROOT / "labextension" / "built", folder / "data/labextensions/fakegpu-lab")
        (folder / "notebooks").mkdir()
        for plugin, options in SETTINGS.items():
            path = folder / f"config/lab/user-settings/@jupyterlab/{plugin}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(options), encoding="utf-8")
        command = [sys.executable, "-m", "jupyterlab", "--allow-root", "--no-browser", "--ip=127.0.0.1",
                   f"--port={port}", f"--IdentityProvider.token={TOKEN}", "--LabApp.expose_app_in_browser=True",
                   f"--ServerApp.root_dir={folder / 'notebooks'}"]  # fmt: skip
        with (
            (folder / "log").open("w") as log,
            subprocess.Popen(command, env=environment, stdout=log, stderr=log) as lab,
        ):
            address = f"http://127.0.0.1:{port}"
            try:
                until = time.monotonic() + 120
                while True:
                    try:
                        urlopen(f"{address}/api?token={TOKEN}", timeout=5).close()
                        break
                    except (URLError, OSError):
                        if time.monotonic() > until or lab.poll() is not None:
                            raise
                        time.sleep(0.3)
                yield address, folder / "notebooks"
            finally:
                lab.terminate()


READY = """() => {
    const widget = window.jupyterapp?.shell.currentWidget;
    return widget?.sessionContext?.session?.kernel?.status === "idle" && widget.content.model.cells.length > 0;
}"""


def command(page: Any, name: str, **arguments: object) -> None:
    """Give JupyterLab a command."""
    page.evaluate(
        "([name, given]) => window.jupyterapp.commands.execute(name, given).then(() => null)", [name, arguments]
    )


def run_cell(page: Any, place: int) -> None:
    """Run a cell of the notebook that is shown, and wait for it."""
    page.evaluate("place => void (window.jupyterapp.shell.currentWidget.content.activeCellIndex = place)", place)
    command(page, "notebook:run-cell")


def lesson(folder: Path) -> tuple[str, list[int], int]:
    """A lesson with a student's answers: its path, the cells that are run, and the one that is shown."""
    release = ROOT / "lessons" / "release" / LESSON
    shutil.copytree(release, folder / LESSON)
    path = folder / LESSON / f"{LESSON}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    run = [place for place, cell in enumerate(notebook.cells) if cell.source.startswith("%load_ext fakegpu_lab")]
    for exercise, answer in ANSWERS.items():
        for place, cell in enumerate(notebook.cells):
            first = cell.source.partition("\n")[0]
            if first in (f"%%exercise {exercise}", f"%%check {exercise}"):
                cell.source = OPEN.sub(lambda found, answer=answer: indent(answer, found[1]), cell.source)
                run.append(place)
    nbformat.write(notebook, path)
    return f"{LESSON}/{path.name}", run, run[-1]


def photograph_notebooks(browser: Any, names: list[str]) -> None:
    """Run the cells of these pictures in JupyterLab, and photograph it."""
    with jupyterlab() as (address, folder):
        for name in names:
            cells, shown, commands = NOTEBOOKS[name]
            if cells:
                notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
                notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
                where, run, last = f"{name}/train.ipynb", list(range(len(cells))), 0
                (folder / name).mkdir()
                nbformat.write(notebook, folder / where)
            else:
                where, run, last = lesson(folder)
            page = browser.new_page(viewport={"width": 1400, "height": 2000 if name == "kernel-card" else 900})
            page.set_default_timeout(WAIT)
            page.goto(f"{address}/lab/tree/{where}?token={TOKEN}&reset")
            page.wait_for_function(READY, timeout=180_000)
            if page.locator(".jp-FileBrowser").is_visible():
                command(page, "application:toggle-left-area")
            for place in run:
                run_cell(page, place)
            for one in commands:
                command(page, f"fakegpu-lab:{one}", **({"slot": 0} if one == "show-dashboard" else {}))
            if not cells:
                # The card offers hints; the sidebar's button takes the first.
                page.locator(".fg-Lessons button", has_text="Hint 1").nth(len(ANSWERS) - 1).click()
            page.wait_for_timeout(4000)
            page.locator(".jp-Notebook .jp-Cell").nth(last).scroll_into_view_if_needed()
            (page.locator(shown) if shown else page).screenshot(path=str(DOCS / "images" / f"{name}.png"))
            page.close()


def drawn() -> dict[str, str]:
    """By picture: a digest of what it is made of now. Figures are drawn for it; of the others, it is the program."""
    figures = dict.fromkeys(PAGES, "")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(DOCS), str(ROOT)])}
        command = [sys.executable, "-m", "website.programs", str(file)]
        subprocess.run(command, cwd=DOCS, env=environment, check=True)  # figures name files as seen from there
        for name, text in json.loads(file.read_text(encoding="utf-8")).items():
            figures[name.removesuffix("-pinned")] += text
    said = (DOCS / "fidelity.md").read_text(encoding="utf-8")  # a test compares it with what is simulated
    whole = said[said.index("## Whole programs") : said.index("## About the times")]
    figures |= {name: whole for name in PAGES if name.startswith("whole-")}
    extension = (ROOT / "labextension" / "made-of").read_text(encoding="utf-8")
    cards = sorted((ROOT / "fakegpu_lab" / "recording_views" / "kernel_card").glob("*.py"))
    beside = {
        "kernel-card": "".join(path.read_text(encoding="utf-8") for path in cards),
        "extension-lesson": extension + (ROOT / "lessons" / "release" / LESSON / f"{LESSON}.ipynb").read_text("utf-8"),
    }
    programs = {name: "".join(cells) + beside.get(name, extension) for name, (cells, _, _) in NOTEBOOKS.items()}
    return {name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in (figures | programs).items()}


def chromium() -> str:
    """The browser's program."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    sys.exit("There is no Chromium: on Debian, apt-get install chromium.")


def main(names: list[str]) -> None:
    """Make these pictures, or all."""
    unknown = set(names) - {*PAGES, *NOTEBOOKS}
    if unknown:
        sys.exit(f"There is no picture {min(unknown)!r}: there are {', '.join((*PAGES, *NOTEBOOKS))}.")
    names = names or [*PAGES, *NOTEBOOKS]
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        pages = [name for name in names if name in PAGES]
        if pages:
            photograph_pages(browser, pages)
        notebooks = [name for name in names if name in NOTEBOOKS]
        if notebooks:
            photograph_notebooks(browser, notebooks)
        browser.close()
    kept, now = json.loads(DRAWN.read_text(encoding="utf-8")) if DRAWN.exists() else {}, drawn()
    DRAWN.write_text(json.dumps(kept | {name: now[name] for name in names}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
