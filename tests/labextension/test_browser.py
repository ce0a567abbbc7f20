"""The extension as a person uses it. One test, because each step begins where the one before has ended."""

from __future__ import annotations

import re
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.labextension.conftest import Lab

BUSY = """
import time, torch
kept = []
for _ in range(25):
    kept.append(torch.ones(16 << 20, device="cuda"))
    time.sleep(0.2)
"""

NASTY = """raise ValueError("<img src=x onerror='window.hacked = 1'><b>bold</b>")"""


def gpus_are_chosen_in_the_dialog(lab: Lab) -> None:
    lab.write("first.ipynb", "1 + 1", BUSY, NASTY)
    lab.open("first.ipynb")
    lab.shows("This kernel has no simulated GPU.")
    lab.page.click("text=Choose GPUs …")
    lab.page.wait_for_selector(".fg-Hardware")
    lab.page.keyboard.type("hopper")
    assert lab.page.locator(".fg-Hardware-list li").count() > 3
    assert not lab.page.locator(".fg-Hardware-list li[data-id=t4]").count()
    lab.page.fill(".fg-Hardware input[type=search]", "t4")
    lab.page.fill(".fg-Hardware input[type=number]", "2")
    lab.page.fill(".fg-Hardware input[type=text]", "2 GiB")
    assert lab.page.inner_text(".fg-Hardware-line") == "%fakegpu t4:2 --memory 2GiB"
    lab.page.click(".jp-Dialog .jp-mod-accept")
    lab.shows("cuda:1  T4")
    assert lab.cells()[:2] == ["%load_ext fakegpu_lab\n%fakegpu t4:2 --memory 2GiB", "1 + 1"]
    assert re.fullmatch(r"T4 ×2 · 0\.\d / 4 GiB", lab.status)


def memory_is_seen_while_the_cell_is_busy(lab: Lab) -> None:
    lab.run(2)
    lab.shows("running")
    seen: list[float] = []
    until = monotonic() + 30
    while "running" in lab.sidebar and monotonic() < until:
        held = float(lab.page.locator(".fg-Card-memory").first.inner_text().split()[0])
        if not seen or held != seen[-1]:
            seen.append(held)
    assert len(seen) >= 5
    assert seen == sorted(seen)
    lab.shows("1.6 / 2 GiB")
    assert lab.page.locator(".fg-Card.fg-mod-full").count() == 0


def what_the_kernel_says_is_text(lab: Lab) -> None:
    lab.run(3)
    lab.shows("ValueError: <img src=x onerror='window.hacked = 1'><b>bold</b>")
    assert lab.page.locator(".fg-Gpus img, .fg-Gpus b").count() == 0
    assert lab.page.evaluate("window.hacked") is None


def each_notebook_has_its_own_gpus(lab: Lab) -> None:
    lab.write("second.ipynb", "1 + 1")
    lab.open("second.ipynb")
    lab.shows("This kernel has no simulated GPU.")
    assert lab.status == ""
    lab.page.click("text=Enable a100:2")
    lab.shows("cuda:1  A100")
    lab.open("first.ipynb")
    lab.shows("cuda:1  T4")
    assert lab.status.startswith("T4 ×2 · ")


def a_reload_shows_the_same(lab: Lab) -> None:
    lab.command("docmanager:save")
    lab.page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")
    lab.page.reload()
    lab.loaded()
    lab.command("fakegpu-lab:show-gpus")
    lab.open("first.ipynb")
    lab.shows("1.6 / 2 GiB")


def after_a_restart_there_is_no_gpu_until_there_is(lab: Lab) -> None:
    lab.page.evaluate("void window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    lab.shows("This kernel has no simulated GPU.")
    assert "1.6 / 2 GiB" not in lab.sidebar
    lab.run(0)
    lab.shows("0 / 2 GiB")


def test_a_session_in_jupyterlab(lab: Lab) -> None:
    gpus_are_chosen_in_the_dialog(lab)
    memory_is_seen_while_the_cell_is_busy(lab)
    what_the_kernel_says_is_text(lab)
    each_notebook_has_its_own_gpus(lab)
    a_reload_shows_the_same(lab)
    after_a_restart_there_is_no_gpu_until_there_is(lab)
