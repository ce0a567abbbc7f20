"""The panel as a person sees it: in JupyterLab, while a cell runs.

Pictures of it are left in the folder that FAKEGPU_LAB_PICTURES names, to be looked at.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.drawing import TRAINING, assert_true_peaks

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.long

OPEN = "%load_ext fakegpu_lab\n%fakegpu a100:2 --memory 1700MiB\n%fakegpu panel"
TRAIN = """
import os, time, torch
from torch import nn

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        return x + self.mlp(self.norm(x))

class Net(nn.Module):
    def __init__(self, width=256, depth=4):
        super().__init__()
        self.embed = nn.Embedding(1000, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.head = nn.Linear(width, 1000)

    def forward(self, tokens):
        return self.head(self.blocks(self.embed(tokens)))

model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters())
began = time.time()
while time.time() - began < 60 and not os.path.exists("enough") or optimizer.state[model.head.weight]["step"] < 60:
    tokens = torch.randint(0, 1000, (8, 65)).to("cuda")
    optimizer.zero_grad()
    scores = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    copy = model.head.weight.detach().to("cuda:1")
print(f"loss {loss.item():.2f}")
"""
RANKS = """%%ranks 2
import torch, torch.distributed as dist
dist.init_process_group("nccl")
x = torch.ones(2**20, device=f"cuda:{dist.get_rank()}")
for _ in range(3):
    dist.all_reduce(x)
"""
WHEN = """from fakegpu_lab import snapshot
from fakegpu_lab.formatting import units
print("all is done after", units.duration(snapshot().done_ns))
"""
TOO_MUCH = "scores = model(torch.randint(0, 1000, (512, 64)).cuda())"

TABS = ("memory", "allocations", "busy", "timeline", "transfers", "collectives")

DRAWN = "() => document.querySelector('.fg-Panel [data-part=memory] canvas')?.toDataURL() ?? ''"


def words(page: Any) -> str:
    return str(page.inner_text(".fg-Panel"))


def run(page: Any, cell: int) -> None:
    page.evaluate(
        """(cell) => {
            const notebook = window.jupyterapp.shell.currentWidget;
            notebook.content.activeCellIndex = cell;
            void window.jupyterapp.commands.execute("notebook:run-cell");
        }""",
        cell,
    )


def idle(page: Any, cell: int) -> None:
    """Wait until a cell has run."""
    page.wait_for_function(
        """(cell) => {
            const model = window.jupyterapp.shell.currentWidget.content.model.cells.get(cell);
            return model.executionCount !== null && model.executionState !== "running";
        }""",
        arg=cell,
        timeout=120_000,
    )


def choose(page: Any, tab: str) -> None:
    page.click(f".fg-Panel [data-tab={tab}]")
    page.wait_for_timeout(250)


def picture(page: Any, name: str, selector: str = ".fg-Panel") -> None:
    folder = os.environ.get("FAKEGPU_LAB_PICTURES")
    if folder:
        Path(folder).mkdir(exist_ok=True)
        page.locator(selector).last.screenshot(path=Path(folder) / f"{name}.png")


@pytest.fixture(scope="module")
def page(opened: Callable[[str, list[str]], Any]) -> Any:
    page = opened("panel.ipynb", [OPEN, TRAIN, RANKS, TOO_MUCH, WHEN])
    run(page, 0)
    page.wait_for_selector(".fg-Panel")
    page.wait_for_function("() => document.querySelector('.fg-Panel').innerText.includes('cuda:1')")
    return page


def test_the_memory_figure_grows_while_a_cell_is_busy(page: Any, server: tuple[str, Path]) -> None:
    run(page, 1)
    seen: set[str] = set()
    states: set[str] = set()
    until = time.monotonic() + 120
    while time.monotonic() < until:
        drawn = page.evaluate(DRAWN)
        state = page.inner_text(".fg-Panel-status")
        states.add(state)
        if drawn and state == "running":
            seen.add(hashlib.sha256(drawn.encode()).hexdigest())
            if len(seen) == 20:
                (server[1] / "enough").touch()
        if len(seen) >= 5 and state == "idle":
            break
        page.wait_for_timeout(30)
    assert len(seen) >= 20, "distinct frames while busy"
    assert {"running", "idle"} <= states
    told = words(page)
    for category in ("parameters", "gradients", "optimizer state", "activations", "inputs"):
        assert category in told
    assert page.get_attribute(".fg-Panel [data-part=memory] .fg-Chart-host", "data-steps").startswith("end of step 1 ")
    picture(page, "memory")


def test_figures_agree_with_the_kernel_s(page: Any) -> None:
    said = page.locator(".fg-Panel [data-line=parameters] span").last
    weights = 1000 * 256 + 1000 + 256 * 1000 + 4 * (2 * 256 + 2 * 4 * 256 * 256 + 4 * 256 + 256)
    shown = int(said.get_attribute("title").split()[0].replace(",", ""))
    assert weights * 4 <= shown <= weights * 4 + 30 * 512


def test_transfers_and_the_timeline_fill(page: Any) -> None:
    choose(page, "transfers")
    told = words(page)
    assert "host → cuda:0" in told
    assert "GB/s" in told
    picture(page, "transfers")
    choose(page, "timeline")
    told = words(page)
    assert "Step" in told
    assert "aten::linear_backward" in told
    assert "lanes over" in page.get_attribute(".fg-Panel .fg-Lanes", "aria-label")
    picture(page, "timeline")


def test_every_allocation_of_a_step_can_be_pointed_at(page: Any) -> None:
    choose(page, "allocations")
    figure = page.locator(".fg-Panel .fg-Bands")
    assert "Peak of cuda:0" in figure.get_attribute("aria-label")
    said = page.locator(".fg-Panel .fg-Allocations-said")
    assert "Each band is a tensor" in said.inner_text()
    frame = json.loads(figure.get_attribute("data-frame"))
    box = figure.bounding_box()
    peak = page.locator(".fg-mod-peak tbody tr").first.inner_text()
    assert "MiB" in peak or "KiB" in peak
    seen = set()
    for tenth in range(1, 10):
        # along a line a little above what stays: activations and gradients, one after the other
        x = box["x"] + frame["left"] + frame["wide"] * tenth / 10
        for twelfth in range(1, 12):
            page.mouse.move(x, box["y"] + frame["top"] + frame["high"] * twelfth / 12)
            seen.add(said.inner_text())
    lines = [text for text in seen if "In[2], line" in text and " · " in text.splitlines()[0]]
    assert len(lines) >= 5, "of different tensors"
    assert any("activations, made in forward by aten::" in text for text in lines)
    assert any("called from In[2], line" in text for text in lines)
    page.mouse.move(box["x"] + frame["left"] + frame["wide"] / 4, box["y"] + frame["top"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + frame["left"] + frame["wide"] / 2, box["y"] + frame["top"] + 60)
    page.mouse.up()
    low, high = json.loads(figure.get_attribute("data-frame"))["across"]
    whole = frame["across"][1] - frame["across"][0]
    assert high - low == pytest.approx(whole / 4, rel=0.05), "dragging zooms"
    picture(page, "allocations-zoomed")
    figure.focus()
    page.keyboard.press("0")
    page.keyboard.press("ArrowRight")
    assert "In[2], line" in said.inner_text() or "tensors" in said.inner_text()
    picture(page, "allocations")


def test_collectives_fill(page: Any) -> None:
    choose(page, "collectives")
    assert "%%ranks 2" in words(page)
    run(page, 2)
    page.wait_for_function("() => document.querySelector('.fg-Panel').innerText.includes('GB/s')")
    told = words(page)
    assert "all_reduce\t2\t3\t12.0 MiB" in told
    assert "cuda:0\t3\t12.0 MiB" in told
    picture(page, "collectives")


def test_the_time_is_that_of_all_that_was_launched(page: Any) -> None:
    run(page, 4)
    said = page.locator(".jp-OutputArea-output", has_text="all is done after").inner_text().split("after ")[1].strip()
    page.wait_for_selector(f".fg-Panel-clock:has-text('a100:2 · {said} simulated')")


def test_pause_clear_and_keys(page: Any) -> None:
    choose(page, "memory")
    page.click(".fg-Panel button:has-text('Pause')")
    page.wait_for_selector(".fg-Panel-status:has-text('paused')")  # it is drawn in the browser's next frame
    page.click(".fg-Panel button:has-text('Resume')")
    legend = ".fg-Panel [data-part=memory] .fg-Legend"
    before = page.inner_text(legend)
    page.focus(".fg-Panel [data-part=memory] .fg-Chart-host")
    for _ in range(60):
        page.keyboard.press("ArrowLeft")
    page.wait_for_function("([place, text]) => document.querySelector(place).innerText !== text", arg=[legend, before])
    page.focus(".fg-Panel [data-tab=memory]")
    page.keyboard.press("ArrowRight")
    assert page.locator(".fg-Panel [aria-selected=true]").inner_text() == "Allocations"
    choose(page, "memory")


def test_it_has_no_serious_accessibility_fault(page: Any) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="the extra `browser` is not installed")
    found = []
    for theme in ("light", "dark"):
        page.select_option(".fg-Panel select[aria-label=Theme]", theme)
        for tab in TABS:
            choose(page, tab)
            violations = axe.Axe().run(page, context=".fg-Panel").response["violations"]
            found += [
                (theme, tab, fault["id"], [node["html"][:120] for node in fault["nodes"]][:3])
                for fault in violations
                if fault["impact"] in ("serious", "critical")
            ]
    page.select_option(".fg-Panel select[aria-label=Theme]", "auto")
    assert found == []


SIZES = [("wide", 1400), ("twice", 700), ("narrow", 600), ("projector", 1920)]
"""Pixels of the page; at 200%, a window of 1400 is a page of 700."""


@pytest.mark.parametrize(("name", "width"), SIZES)
def test_it_fits_every_width(page: Any, name: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 1000})
    for theme in ("light", "dark"):
        page.select_option(".fg-Panel select[aria-label=Theme]", theme)
        for tab in TABS:
            choose(page, tab)
            picture(page, f"panel-{name}-{theme}-{tab}")
            wide = page.evaluate(
                """() => Math.max(...[...document.querySelectorAll('.fg-Panel, .fg-Panel .fg-Table-scroll')]
                  .map(one => one.scrollWidth - one.clientWidth))"""
            )
            assert wide <= 1, f"{tab} is {wide} px wider than its place"
    page.select_option(".fg-Panel select[aria-label=Theme]", "auto")
    page.set_viewport_size({"width": 1280, "height": 1000})
    choose(page, "memory")


def test_an_out_of_memory_cell_shows_its_post_mortem(page: Any) -> None:
    run(page, 3)
    page.wait_for_function("() => document.body.innerText.includes('What would have fit')")
    page.locator("text=What would have fit").last.scroll_into_view_if_needed()
    picture(page, "postmortem", ".jp-OutputArea-output:has-text('What would have fit')")
    page.evaluate("window.jupyterapp.shell.currentWidget.content.scrollToItem(0)")  # what is out of sight is detached
    assert "OutOfMemoryError" in page.inner_text(".fg-Panel .fg-Error")
    picture(page, "memory-full")


def test_each_step_has_its_true_peak(opened: Callable[[str, list[str]], Any]) -> None:
    page = opened("teeth.ipynb", ["%load_ext fakegpu_lab\n%fakegpu a100\n%fakegpu panel", TRAINING])
    run(page, 0)
    page.wait_for_selector(".fg-Panel-status:has-text('idle')")
    run(page, 1)
    idle(page, 1)
    page.wait_for_selector("[data-part=memory] .fg-Chart-host[aria-label*='step 12 ']")
    picture(page, "teeth")
    printed = page.locator(".jp-OutputArea-output", has_text="step ").last.inner_text()
    assert_true_peaks(page, ".fg-Panel", printed)
    label = page.get_attribute(".fg-Panel [data-part=memory] .fg-Chart-host", "aria-label")
    assert "tensors hold" in label
    assert "step 12" in label
