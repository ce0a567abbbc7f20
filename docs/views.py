"""Photographs every view, to be looked at: ``python docs/views.py FOLDER [light] [dark] [1400] [600] [200]``.

Panel, dashboard, sidebar, `%%gpuprofile`, `trace.figure()`, `trace.memory_figure()`, what follows an out-of-memory
error, checks, drawings and the panel as a still, each light and dark, on a page of 1400 and of 600 pixels and at 200%.
It prints what axe finds that is serious, and what is wider than its place. It needs what pictures.py needs.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from pictures import READY, TOKEN, WAIT, chromium, command, jupyterlab, run_cell
from playwright.sync_api import sync_playwright

WIDTHS = {"1400": 1400, "600": 600, "200": 700}
"""By name, the page's width: at 200%, a window of 1400 pixels is a page of 700."""

HEIGHT = 2400
"""Pixels of a page: each view is on it whole."""

TRAIN = """\
class Block(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

model = nn.Sequential(*(Block() for _ in range(3))).cuda()
optimizer = torch.optim.AdamW(model.parameters())

def step(batch=2048):
    loss = model(torch.ones(batch, 512).to("cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

for number in range(12):
    step(1024 * (1 + number % 2))
copy = model[0].up.weight.detach().to("cuda:1")
torch.cuda.synchronize()
with lab.record() as trace:
    step()"""

RANKS = """\
%%ranks 2
import torch, torch.distributed as dist
dist.init_process_group("nccl")
x = torch.ones(2**22, device=f"cuda:{dist.get_rank()}")
for _ in range(3):
    dist.all_reduce(x)"""

CHECKS = """\
from fakegpu_lab.course.checks import checking
from IPython.display import display
waits = '''expect.equal(total.item(), 3.0, hint="Add up all three.")
expect.on_device(total, "cuda:0")'''
display(checking.run(waits, {"total": torch.ones(3, device="cuda").sum()}, "add-up"))
display(checking.run(waits, {"total": torch.ones(4).sum()}, "add-up"))"""

DRAWINGS = """\
display(lab.draw.allocator())
display(lab.draw.memory_bar({"parameters": 4e9, "gradients": 4e9, "optimizer state": 8e9}, total=80e9))
display(lab.draw.streams({"copies": [("batch", 0, 2)], "compute": [("step", 2, 5)]}, [("copies", 2, "compute", 2)]))
display(lab.draw.ring(4))
display(lab.draw.pipeline(4, 8, "1f1b"))
display(lab.draw.shards((8, 6), 4, dim=0))"""

CELLS = {
    "panel": "%fakegpu panel",
    "": TRAIN,
    "ranks": RANKS,
    "gpuprofile": "%%gpuprofile\nstep()",
    "figure": "trace.figure()",
    "memory-figure": "trace.memory_figure()",
    "checks": CHECKS,
    "drawings": DRAWINGS,
    "still": "lab.panel(live=False)",
    "out-of-memory": "step(2**20)",
    "one-request": "torch.empty(2**34, device='cuda')",
}
"""By the picture of its output, each cell."""

FIGURES = ("gpuprofile", "figure", "memory-figure")
"""The outputs that have a plot: it must be seen, else this fails."""

TABS = ("memory", "allocations", "busy", "timeline", "transfers", "collectives", "advice")

_OUTPUT = """([place, name]) => {
    const cell = document.querySelectorAll(".jp-Notebook .jp-Cell")[place];
    cell.querySelector(".jp-Cell-outputWrapper").dataset.view = name;
}"""
_WIDER = """selector => [...document.querySelectorAll(`${selector}, ${selector} *`)]
    .filter(one => one.scrollWidth - one.clientWidth > 1 && one.clientWidth > 1 && !one.closest("thead")
        && !["auto", "scroll"].includes(getComputedStyle(one).overflowX) && !one.closest("svg, .fg-Spoken")
        && getComputedStyle(one).display !== "inline" && !one.classList.contains("fg-Spoken"))
    .map(one => `${one.className || one.tagName} ${one.scrollWidth - one.clientWidth}`).slice(0, 3)"""


def notebook() -> Any:
    """The notebook that is photographed."""
    setup = (
        "%load_ext fakegpu_lab\n%fakegpu a100:2 --memory 2GiB\nimport torch, fakegpu_lab as lab\nfrom torch import nn"
    )
    cells = [nbformat.v4.new_code_cell(cell) for cell in (setup, *CELLS.values())]
    made = nbformat.v4.new_notebook(cells=cells)
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return made


def photograph(page: Any, folder: Path, selector: str, name: str) -> None:
    """Photograph what a selector finds, and print what is wrong with it."""
    shown = page.locator(selector).last
    if not shown.is_visible():
        print(f"{name}: not there")
        return
    shown.screenshot(path=str(folder / f"{name}.png"))
    wider = page.evaluate(_WIDER, selector)
    if wider:
        print(f"{name}: wider than its place: {'; '.join(map(str, wider))}")


def faults(page: Any, selector: str, name: str) -> None:
    """Print what axe finds that is serious."""
    from axe_playwright_python.sync_playwright import Axe

    for fault in Axe().run(page, context=selector).response["violations"]:
        if fault["impact"] in ("serious", "critical"):
            nodes = [re.sub(r"\s+", " ", node["html"])[:140] for node in fault["nodes"]]
            print(f"{name}: axe: {fault['id']} ({len(nodes)}): {nodes[:2]}")


def photograph_all(page: Any, folder: Path, theme: str, width: str) -> None:
    """Photograph every view in one theme at one width."""
    end = f"{theme}-{width}"
    page.set_viewport_size({"width": WIDTHS[width], "height": HEIGHT})
    command(page, "apputils:change-theme", theme=f"JupyterLab {theme.capitalize()}")
    page.wait_for_timeout(1500)
    for tab in TABS:
        if page.locator(f".fg-Panel [data-tab={tab}]").is_visible():
            page.click(f".fg-Panel [data-tab={tab}]")
            page.wait_for_timeout(400)
            photograph(page, folder, ".fg-Panel", f"panel-{tab}-{end}")
            if width == "1400":
                faults(page, ".fg-Panel", f"panel-{tab}-{end}")
    for place, name in enumerate(CELLS, 1):
        if name not in ("", "panel", "ranks"):
            page.evaluate(_OUTPUT, [place, name])
            if name in FIGURES:  # a plot without height is there, and cannot be seen
                page.locator(f"[data-view={name}] .js-plotly-plot").wait_for(state="visible", timeout=20_000)
            photograph(page, folder, f"[data-view={name}]", f"{name}-{end}")
            if width == "1400":
                faults(page, f"[data-view={name}]", f"{name}-{end}")


def photograph_lab(page: Any, folder: Path, theme: str, width: str) -> None:
    """Photograph the sidebar and the dashboard."""
    end = f"{theme}-{width}"
    page.set_viewport_size({"width": WIDTHS[width], "height": HEIGHT})
    command(page, "apputils:change-theme", theme=f"JupyterLab {theme.capitalize()}")
    page.wait_for_timeout(1500)
    # A narrow page has room for one of them: in the simple mode there is one document, and the sidebar can be closed.
    page.evaluate(
        "alone => { window.jupyterapp.shell.mode = alone ? 'single-document' : 'multiple-document'; }", width != "1400"
    )
    for name, selector in (("sidebar", ".fg-Gpus"), ("dashboard", ".fg-Dashboard")):
        command(page, f"fakegpu-lab:show-{'gpus' if name == 'sidebar' else name}")
        if width != "1400" and name == "dashboard":
            page.evaluate("window.jupyterapp.shell.collapseLeft()")
        page.wait_for_timeout(800)
        photograph(page, folder, selector, f"{name}-{end}")
        if width == "1400":
            faults(page, selector, f"{name}-{end}")


def main(arguments: list[str]) -> None:
    """Photograph them into a folder."""
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    themes = [name for name in ("light", "dark") if name in arguments] or ["light", "dark"]
    widths = [name for name in WIDTHS if name in arguments] or list(WIDTHS)
    with jupyterlab() as (address, notebooks), sync_playwright() as running:
        nbformat.write(notebook(), notebooks / "views.ipynb")
        browser = running.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1400, "height": HEIGHT})
        page.set_default_timeout(WAIT)
        page.goto(f"{address}/lab/tree/views.ipynb?token={TOKEN}&reset")
        page.wait_for_function(READY, timeout=180_000)
        if page.locator(".jp-FileBrowser").is_visible():
            command(page, "application:toggle-left-area")
        for place in range(len(CELLS) + 1):
            run_cell(page, place)
        page.wait_for_function(  # plotly is fetched with the first one
            "many => document.querySelectorAll('.js-plotly-plot .main-svg').length >= many", arg=len(FIGURES)
        )
        page.wait_for_timeout(3000)
        for theme in themes:
            for width in widths:
                photograph_all(page, folder, theme, width)
        command(page, "fakegpu-lab:show-gpus")
        command(page, "fakegpu-lab:show-dashboard", slot=0)
        page.wait_for_timeout(2000)
        for theme in themes:
            for width in widths:
                photograph_lab(page, folder, theme, width)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
