"""The panel as a person sees it: in JupyterLab, while a cell runs.

Pictures of it are left in the folder that FAKEGPU_LAB_PICTURES names, to be looked at.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

OPEN = "%load_ext fakegpu_lab\n%fakegpu a100:2 --memory 1GiB\n%fakegpu panel"
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

PATHS = "() => [...document.querySelectorAll('.fg-layer')].map(path => path.getAttribute('d')).join('|')"


def words(page: Any) -> str:
    return str(page.inner_text(".fg-panel"))


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
    page.click(f".fg-panel [data-tab={tab}]")
    page.wait_for_timeout(250)


def picture(page: Any, name: str, selector: str = ".fg-panel") -> None:
    folder = os.environ.get("FAKEGPU_LAB_PICTURES")
    if folder:
        Path(folder).mkdir(exist_ok=True)
        page.locator(selector).last.screenshot(path=Path(folder) / f"{name}.png")


@pytest.fixture(scope="module")
def page(opened: Callable[[str, list[str]], Any]) -> Any:
    page = opened("panel.ipynb", [OPEN, TRAIN, RANKS, TOO_MUCH, WHEN])
    run(page, 0)
    page.wait_for_selector(".fg-panel")
    page.wait_for_function("() => document.querySelector('.fg-panel').innerText.includes('cuda:1')")
    return page


def test_the_memory_figure_grows_while_a_cell_is_busy(page: Any, server: tuple[str, Path]) -> None:
    run(page, 1)
    seen: set[str] = set()
    states: set[str] = set()
    until = time.monotonic() + 60
    while time.monotonic() < until:
        paths = page.evaluate(PATHS)
        state = page.inner_text(".fg-status")
        states.add(state)
        if paths and state == "running":
            seen.add(hashlib.sha256(paths.encode()).hexdigest())
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
    assert "step 1" in page.text_content(".fg-texts")
    picture(page, "memory")


def test_figures_agree_with_the_kernel_s(page: Any) -> None:
    cell = page.locator(".fg-legend tr", has_text="parameters").locator("td").first
    weights = 1000 * 256 + 1000 + 256 * 1000 + 4 * (2 * 256 + 2 * 4 * 256 * 256 + 4 * 256 + 256)
    shown = int(cell.get_attribute("title").split()[0].replace(",", ""))
    assert weights * 4 <= shown <= weights * 4 + 30 * 512


def test_transfers_and_the_timeline_fill(page: Any) -> None:
    choose(page, "Transfers")
    told = words(page)
    assert "host to device" in told
    assert "GB/s" in told
    picture(page, "transfers")
    choose(page, "Timeline")
    told = words(page)
    assert "Step" in told
    assert "aten::linear_backward" in told
    assert page.locator(".fg-lanes rect").count() > 30
    picture(page, "timeline")


def test_collectives_fill(page: Any) -> None:
    choose(page, "Collectives")
    assert "%%ranks 4" in words(page)
    run(page, 2)
    page.wait_for_function("() => document.querySelector('.fg-panel').innerText.includes('GB/s')")
    told = words(page)
    assert "all_reduce\t2\t3\t12.0 MiB" in told
    assert "cuda:0 took part in 3, of 12.0 MiB" in told
    picture(page, "collectives")


def test_the_time_is_that_of_all_that_was_launched(page: Any) -> None:
    run(page, 4)
    said = page.locator(".jp-OutputArea-output", has_text="all is done after").inner_text().split("after ")[1].strip()
    page.wait_for_selector(f".fg-clock:has-text('a100:2 · {said} simulated')")


def test_freeze_clear_and_keys(page: Any) -> None:
    choose(page, "Memory")
    page.click(".fg-panel button:has-text('Freeze')")
    page.wait_for_selector(".fg-status:has-text('frozen')")  # it is drawn in the browser's next frame
    page.click(".fg-panel button:has-text('Go on')")
    before = page.text_content(".fg-legend thead")
    page.focus(".fg-figure")
    page.keyboard.press("ArrowLeft")
    page.wait_for_timeout(200)
    assert "now" in before
    assert "at " in page.text_content(".fg-legend thead")
    page.focus(".fg-panel [data-tab=Memory]")
    page.keyboard.press("ArrowRight")
    assert page.locator(".fg-panel [aria-selected=true]").inner_text() == "Transfers"
    choose(page, "Memory")


def test_it_has_no_serious_accessibility_fault(page: Any) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="the extra `browser` is not installed")
    found = []
    for theme in ("light", "dark"):
        page.select_option(".fg-panel select[aria-label=Theme]", theme)
        for tab in ("Memory", "Transfers", "Collectives", "Timeline"):
            choose(page, tab)
            violations = axe.Axe().run(page, context=".fg-panel").response["violations"]
            found += [
                (theme, tab, fault["id"], [node["html"][:120] for node in fault["nodes"]][:3])
                for fault in violations
                if fault["impact"] in ("serious", "critical")
            ]
    page.select_option(".fg-panel select[aria-label=Theme]", "auto")
    assert found == []


@pytest.mark.parametrize(("name", "width"), [("narrow", 600), ("projector", 1920)])
def test_it_fits_every_width(page: Any, name: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 1000})
    for theme in ("light", "dark"):
        page.select_option(".fg-panel select[aria-label=Theme]", theme)
        for tab in ("Memory", "Transfers", "Timeline"):
            choose(page, tab)
            picture(page, f"{name}-{theme}-{tab.lower()}")
            wide = page.evaluate(
                "() => { const p = document.querySelector('.fg-panel'); return p.scrollWidth - p.clientWidth; }"
            )
            assert wide <= 1, f"{tab} is {wide} px wider than the panel"
    page.select_option(".fg-panel select[aria-label=Theme]", "auto")
    page.set_viewport_size({"width": 1280, "height": 1000})
    choose(page, "Memory")


def test_an_out_of_memory_cell_shows_its_post_mortem(page: Any) -> None:
    run(page, 3)
    page.wait_for_function("() => document.body.innerText.includes('What would have fitted')")
    page.locator("text=What would have fitted").last.scroll_into_view_if_needed()
    picture(page, "postmortem", ".jp-OutputArea-output:has-text('What would have fitted')")
    page.evaluate("window.jupyterapp.shell.currentWidget.content.scrollToItem(0)")  # what is out of sight is detached
    assert "OutOfMemoryError" in page.inner_text(".fg-error:visible")
    picture(page, "memory-full")
