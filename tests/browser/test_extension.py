"""The extension as a person uses it. One test, because each step begins where the one before has ended.

Pictures of it are left in the folder that FAKEGPU_LAB_PICTURES names, to be looked at.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import TOKEN, extension
from tests.browser.drawing import TRAINING, assert_true_peaks
from tests.browser.lab import WAIT, Lab

if TYPE_CHECKING:
    from collections.abc import Iterator

BUSY = """
import time, torch
kept = []
for _ in range(25):
    kept.append(torch.ones(16 << 20, device="cuda"))
    time.sleep(0.2)
"""

NASTY = """raise ValueError("<img src=x onerror='window.hacked = 1'><b>bold</b>")"""


@pytest.fixture
def lab(server: tuple[str, Path], browser: Any) -> Iterator[Lab]:
    """A page with the sidebar open."""
    if extension() is None:
        pytest.skip("JupyterLab's extension is not built of the present sources: make extension builds it")
    address, folder = server
    page = browser.new_page(viewport={"width": 1500, "height": 1000}, accept_downloads=True)
    page.set_default_timeout(WAIT)
    page.goto(f"{address}/lab?token={TOKEN}&reset")
    opened = Lab(page, folder)
    opened.loaded()
    opened.command("fakegpu-lab:show-gpus")
    opened.shows("No notebook is open")
    yield opened
    page.close()


def picture(lab: Lab, name: str) -> None:
    folder = os.environ.get("FAKEGPU_LAB_PICTURES")
    if folder:
        Path(folder).mkdir(exist_ok=True)
        lab.page.screenshot(path=Path(folder) / f"{name}.png")


def gpus_are_chosen_in_the_dialog(lab: Lab) -> None:
    lab.write("first.ipynb", "1 + 1", BUSY, NASTY, "del kept[:12]")
    lab.open("first.ipynb")
    lab.shows("This kernel has no simulated GPU.")
    lab.page.click("text=Choose GPUs …")
    lab.page.wait_for_selector(".fg-Hardware")
    lab.page.keyboard.type("hopper")
    assert lab.page.locator(".fg-Hardware-list li").count() > 3
    assert not lab.page.locator(".fg-Hardware-list li[data-id=t4]").count()
    lab.page.fill(".fg-Hardware input[type=search]", "t4")
    lab.page.fill(".fg-Hardware input[type=number]", "2")
    lab.page.fill(".fg-Hardware input[type=text]", "2 gigs")
    assert lab.page.inner_text(".fg-Hardware-line") == "2 gigs is not an amount of memory: write 2GiB or 512MiB."
    assert lab.page.locator(".jp-Dialog button.jp-mod-accept").is_disabled()
    lab.page.fill(".fg-Hardware input[type=text]", "2 GiB")
    nothing_is_seriously_inaccessible(lab, ".fg-Hardware")
    assert lab.page.inner_text(".fg-Hardware-line") == "%fakegpu t4:2 --memory 2GiB"
    lab.page.click(".jp-Dialog .jp-mod-accept")
    lab.shows("cuda:1  T4")
    assert lab.cells()[:2] == ["%load_ext fakegpu_lab\n%fakegpu t4:2 --memory 2GiB", "1 + 1"]
    assert lab.status == "T4 ×2 · 0 / 4.00 GiB"


def parse_size(share: str) -> float:
    """MiB of ``640 MiB / 2.00 GiB`` or ``1.56 / 2.00 GiB``, whose unit is said once."""
    held, unit = re.match(r"([\d.]+) (?:([KM])iB )?/", share).groups()  # type: ignore[union-attr]
    return float(held) * {"K": 1 / 1024, "M": 1, None: 1024}[unit]


def memory_is_seen_while_the_cell_is_busy(lab: Lab) -> None:
    lab.run(2)
    lab.shows("running")
    seen: list[float] = []
    until = monotonic() + 30
    while "running" in lab.sidebar and monotonic() < until:
        held = parse_size(lab.page.locator(".fg-Card-memory").first.inner_text())
        if not seen or held != seen[-1]:
            seen.append(held)
    assert len(seen) >= 5
    assert seen == sorted(seen)
    lab.shows("1.56 / 2.00 GiB")
    assert lab.status == "T4 ×2 · 1.56 / 4.00 GiB"
    assert lab.page.locator(".fg-Card.fg-mod-full").count() == 0


DRAWN = """part => {
  const [swatch, canvas] = ['.fg-Swatch', 'canvas'].map(one => document.querySelector(`[data-part=${part}] ${one}`));
  const colour = getComputedStyle(swatch).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number);  // without alpha
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return Array.from({ length: data.length / 4 }, (_, at) => 4 * at)
    .filter(at => data[at + 3] > 200 && colour.every((value, place) => data[at + place] === value)).length;
}"""
"""How many pixels of a figure have the colour of its first curve."""


def the_dashboard_opens_beside_the_notebook(lab: Lab) -> None:
    page = lab.page
    page.click(".fg-Card-name >> nth=0")
    page.wait_for_selector(".fg-Dashboard [data-part=memory] canvas")
    page.wait_for_function("document.querySelector('.fg-Dashboard').innerText.includes('1.56 GiB')")
    told = page.inner_text(".fg-Dashboard")
    assert re.match(r"6\.\d+ ms", page.inner_text(".fg-Dashboard .fg-Busy"))  # of the kernels: the host took 0.1 ms
    assert "Nothing has been copied yet" in told
    assert "%%ranks 2 at the top of a cell" in told
    assert "aten::ones" in told or "aten::fill_" in told
    for part in ("memory", "busy"):
        assert page.evaluate(DRAWN, part) > 500
    picture(lab, "dashboard")


def brush(page: Any) -> dict[str, float]:
    """Zoom to the second quarter of the memory's figure; returns where that is."""
    box: dict[str, float] = page.locator(".fg-Dashboard [data-part=memory] .u-over").bounding_box()
    page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 60, steps=4)
    page.mouse.up()
    page.wait_for_selector("text=Show the whole run")
    return box


def a_brush_zooms_and_the_cursor_is_the_same_in_both_figures(lab: Lab) -> None:
    page = lab.page
    box = brush(page)
    moved = "part => document.querySelector(`[data-part=${part}] .u-cursor-x`).style.transform"
    assert page.evaluate(moved, "busy") == page.evaluate(moved, "memory") != ""
    legend = page.inner_text("[data-part=memory] .fg-Legend")
    page.mouse.move(box["x"] + 2, box["y"] + 60)
    assert page.inner_text("[data-part=memory] .fg-Legend") != legend
    page.click("text=Show the whole run")
    assert not page.is_visible("text=Show the whole run")


def figures_are_saved(lab: Lab) -> None:
    with lab.page.expect_download() as csv:
        lab.page.click("[data-part=memory] button:has-text('CSV')")
    lines = Path(csv.value.path()).read_text().splitlines()
    assert lines[0].startswith("simulated_ns,parameters_bytes,")
    last = dict(zip(lines[0].split(","), lines[-1].split(","), strict=True))
    assert int(last["other_bytes"]) == 25 * (64 << 20)
    with lab.page.expect_download() as png:
        lab.command("fakegpu-lab:save-dashboard-png")
    assert png.value.suggested_filename == "first-gpus.png"
    assert Path(png.value.path()).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def a_paused_dashboard_stands_still(lab: Lab) -> None:
    lab.page.click(".fg-Dashboard button:has-text('Pause')")
    lab.open("first.ipynb")
    lab.run(4)
    lab.shows("832 MiB / 2.00 GiB")
    assert "1.56 / 2.00 GiB" in lab.page.inner_text("[data-part=memory]")
    lab.page.click(".fg-Dashboard button:has-text('Resume')")
    lab.page.wait_for_function("document.querySelector('[data-part=memory]').innerText.includes('832 MiB / 2.00 GiB')")


def nothing_is_seriously_inaccessible(lab: Lab, *parts: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="the extra `browser` is not installed")
    found = []
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        lab.page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", theme)
        lab.page.wait_for_timeout(300)
        for part in parts:
            found += [
                (theme, fault["id"], [node["html"][:160] for node in fault["nodes"]][:3])
                for fault in axe.Axe().run(lab.page, context=part).response["violations"]
                if fault["impact"] in ("serious", "critical")
            ]
        picture(lab, f"{parts[-1].removeprefix('.fg-').lower()}-{theme.split()[1].lower()}")
    assert found == []


def each_step_has_its_true_peak(lab: Lab) -> None:
    lab.write("teeth.ipynb", "%load_ext fakegpu_lab\n%fakegpu a100:2", TRAINING)
    lab.open("first.ipynb")  # the next one opens in the same place, and does not hide the dashboard
    lab.open("teeth.ipynb")
    lab.run(0)
    lab.shows("cuda:0  A100")
    lab.page.locator(".fg-Card-name").first.click()
    lab.open("teeth.ipynb")
    lab.run(1)
    lab.page.wait_for_selector(
        ".fg-Dashboard [data-part=memory] .fg-Chart-host[aria-label*='step 12 ']", timeout=2 * WAIT
    )
    lab.page.locator(".jp-OutputArea-output:has-text('step ')").last.wait_for()
    lab.page.wait_for_timeout(1500)
    printed = lab.page.locator(".jp-OutputArea-output:has-text('step ')").last.inner_text()
    assert_true_peaks(lab.page, ".fg-Dashboard", printed)


WIDER = """() => [...document.querySelectorAll('.fg-Gpus, .fg-Dashboard, .fg-Dashboard .fg-Table-scroll')]
  .filter(one => one.scrollWidth > one.clientWidth + 1)
  .map(one => `${one.className} ${one.getAttribute('aria-label') ?? ''}: ${one.scrollWidth} of ${one.clientWidth}`)"""
"""What is cut at the right."""


def nothing_is_cut_where_the_page_is_narrow(lab: Lab) -> None:
    # Nobody has three columns side by side where the page is narrow: the dashboard alone, beside the sidebar.
    lab.page.evaluate("void window.jupyterapp.commands.execute('application:set-mode', {mode: 'single-document'})")
    lab.page.evaluate("window.jupyterapp.shell.collapseLeft()")
    lab.command("fakegpu-lab:show-dashboard")
    for theme in ("Dark", "Light"):
        change = "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})"
        lab.page.evaluate(change, f"JupyterLab {theme}")
        for name, width in (("wide", 1400), ("twice", 700), ("narrow", 600)):  # 700: a window of 1400 at 200%
            lab.page.set_viewport_size({"width": width, "height": 900})
            lab.page.wait_for_timeout(600)
            assert lab.page.evaluate(WIDER) == []
            picture(lab, f"lab-{name}-{theme.lower()}")
            lab.page.locator(".fg-Dashboard [data-part=transfers]").scroll_into_view_if_needed()
            lab.page.wait_for_timeout(300)
            picture(lab, f"lab-{name}-{theme.lower()}-below")
            lab.page.locator(".fg-Dashboard [data-part=memory]").scroll_into_view_if_needed()
    lab.page.set_viewport_size({"width": 1500, "height": 1000})
    lab.page.evaluate("void window.jupyterapp.commands.execute('application:set-mode', {mode: 'multiple-document'})")
    lab.page.evaluate("void window.jupyterapp.commands.execute('docmanager:open', {path: 'first.ipynb'})")


def what_the_kernel_says_is_text(lab: Lab) -> None:
    lab.open("first.ipynb")
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
    lab.page.wait_for_function("document.querySelector('.fg-Dashboard').innerText.includes('second.ipynb')")
    lab.open("first.ipynb")
    lab.shows("cuda:1  T4")
    lab.page.wait_for_function("document.querySelector('.fg-Dashboard').innerText.includes('T4')")
    assert lab.status.startswith("T4 ×2 · ")


def kept_the_zoom(request: Any) -> bool:
    """Whether a request has JupyterLab's server keep the layout, and in it what the dashboard zooms to."""
    return "/api/workspaces/" in request.url and '"range":[' in (request.post_data or "")


def a_reload_shows_the_same(lab: Lab) -> None:
    lab.command("docmanager:save")
    lab.page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")
    with lab.page.expect_request(kept_the_zoom):
        brush(lab.page)
    lab.page.reload()
    lab.loaded()
    lab.page.wait_for_selector(".fg-Dashboard")  # restored, beside the notebook
    lab.command("fakegpu-lab:show-gpus")
    lab.open("first.ipynb")
    lab.shows("832 MiB / 2.00 GiB")
    lab.page.wait_for_function("document.querySelector('.fg-Dashboard').innerText.includes('832 MiB / 2.00 GiB')")
    lab.page.click("text=Show the whole run")
    lab.open("first.ipynb")


def after_a_restart_there_is_no_gpu_until_there_is(lab: Lab) -> None:
    lab.page.evaluate("void window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    lab.shows("This kernel has no simulated GPU.")
    assert "832 MiB / 2.00 GiB" not in lab.sidebar
    lab.page.wait_for_selector(".fg-Dashboard :text('This kernel has no simulated GPU.')")
    lab.run(0)
    lab.shows("0 / 2.00 GiB")


WRONG = '%%exercise find-the-gpu\ndevice, count = "cpu", 7  # MINE'
RIGHT = """%%exercise find-the-gpu
device = "cuda" if torch.cuda.is_available() else "cpu"  # MINE
count = torch.cuda.device_count()"""
WRITE = """source => {
  const cells = window.jupyterapp.shell.currentWidget.content.model.sharedModel.cells;
  cells.find(cell => cell.getSource().startsWith('%%exercise find-the-gpu')).setSource(source);
}"""


def a_lesson_is_begun_from_the_launcher(lab: Lab) -> None:
    page = lab.page
    lab.command("launcher:create")
    page.click(".jp-LauncherCard:visible:has-text('Where things are')")
    page.wait_for_function(
        "window.jupyterapp.shell.currentWidget?.context?.path?.endsWith('01-device-placement.ipynb')"
    )
    lab.command("fakegpu-lab:show-lessons")
    page.wait_for_selector(".fg-Exercise")
    assert (lab.folder / "fakegpu-lessons/01-device-placement/01-device-placement.ipynb").is_file()


def state(lab: Lab, number: int) -> str:
    return str(lab.page.locator(".fg-Exercise-mark").nth(number).inner_text())


def an_exercise_is_failed_and_then_passed(lab: Lab) -> None:
    page = lab.page
    page.wait_for_selector("[data-key='hint find-the-gpu']")  # the kernel has told what it knows
    page.click("[data-key='check find-the-gpu']")  # in a fresh kernel: all above is run, too
    page.wait_for_selector("text=not solved yet")
    assert state(lab, 0) == "○"
    for source, became in ((WRONG, "failed"), (RIGHT, "passed")):
        page.evaluate(WRITE, source)
        page.click("[data-key='check find-the-gpu']")
        page.wait_for_selector(f".fg-Exercise.fg-mod-{became}")
    page.wait_for_selector("[data-lesson='01-device-placement'] :text('1 of ')")
    picture(lab, "lesson")


ONE_MORE = """there => {
  const model = window.jupyterapp.shell.currentWidget.content.model.sharedModel;
  const place = model.cells.length - (there ? 0 : 1);
  if (there) model.insertCell(place, { cell_type: 'code', source: '%%exercise one-more' });
  else model.deleteCell(place);
}"""


def a_button_that_is_drawn_anew_while_it_is_pressed_is_clicked(lab: Lab) -> None:
    page = lab.page
    page.hover("[data-key='hint find-the-gpu']")
    page.mouse.down()
    page.evaluate(ONE_MORE, True)
    page.wait_for_timeout(400)
    page.mouse.up()
    page.wait_for_selector(".fg-Hints li >> nth=0")
    page.wait_for_selector("[data-key='check one-more']")
    page.evaluate(ONE_MORE, False)


def hints_come_one_by_one_and_are_noted(lab: Lab) -> None:
    lab.page.click("[data-key='hint find-the-gpu']")
    lab.page.wait_for_selector(".fg-Hints li >> nth=1")
    kept = json.loads((lab.folder / "fakegpu-lessons/fakegpu-progress.json").read_text())
    assert kept["lessons"]["01-device-placement"]["exercises"]["find-the-gpu"]["hints"] == 2


def progress_survives_a_restart(lab: Lab) -> None:
    lab.page.evaluate("void window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    lab.command("notebook:clear-all-cell-outputs")
    lab.page.wait_for_selector(".fg-Exercise :text('solved before, not run yet in this session')")
    assert "1 of " in lab.page.inner_text("[data-lesson='01-device-placement']")


def starting_over_keeps_the_old_notebook(lab: Lab) -> None:
    page = lab.page
    page.click("[data-key='over 01-device-placement']")
    page.click(".jp-Dialog .jp-mod-accept")
    page.wait_for_function(
        """() => {
          const shown = window.jupyterapp.shell.currentWidget;
          const cells = shown?.content?.model?.sharedModel?.cells ?? [];
          return shown?.context?.path?.endsWith('01-device-placement.ipynb') && cells.length > 0
            && !cells.some(cell => cell.getSource().includes('MINE'));
        }"""
    )
    folder = lab.folder / "fakegpu-lessons/01-device-placement"
    assert "MINE" in (folder / "01-device-placement.backup-1.ipynb").read_text()
    assert "MINE" not in (folder / "01-device-placement.ipynb").read_text()


def test_a_session_in_jupyterlab(lab: Lab) -> None:
    gpus_are_chosen_in_the_dialog(lab)
    memory_is_seen_while_the_cell_is_busy(lab)
    the_dashboard_opens_beside_the_notebook(lab)
    a_brush_zooms_and_the_cursor_is_the_same_in_both_figures(lab)
    figures_are_saved(lab)
    a_paused_dashboard_stands_still(lab)
    nothing_is_seriously_inaccessible(lab, ".fg-Gpus", ".fg-Dashboard")
    each_step_has_its_true_peak(lab)
    nothing_is_cut_where_the_page_is_narrow(lab)
    what_the_kernel_says_is_text(lab)
    each_notebook_has_its_own_gpus(lab)
    a_reload_shows_the_same(lab)
    after_a_restart_there_is_no_gpu_until_there_is(lab)
    a_lesson_is_begun_from_the_launcher(lab)
    an_exercise_is_failed_and_then_passed(lab)
    a_button_that_is_drawn_anew_while_it_is_pressed_is_clicked(lab)
    hints_come_one_by_one_and_are_noted(lab)
    nothing_is_seriously_inaccessible(lab, ".fg-Lessons")
    progress_survives_a_restart(lab)
    starting_over_keeps_the_old_notebook(lab)
