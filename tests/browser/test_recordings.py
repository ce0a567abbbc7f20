"""A recording of a real card opens in JupyterLab by a double click."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import TOKEN, extension
from tests.browser.lab import WAIT, Lab

if TYPE_CHECKING:
    from collections.abc import Iterator

REAL = Path(__file__).parents[1] / "recording_views" / "real"

pytestmark = pytest.mark.long


@pytest.fixture
def lab(server: tuple[str, Path], browser: Any) -> Iterator[Lab]:
    if extension() is None:
        pytest.skip("JupyterLab's extension is not built of the present sources: make extension builds it")
    address, folder = server
    shutil.copy(REAL / "alexnet.json.gz", folder / "alexnet.pt.trace.json.gz")
    shutil.copy(REAL / "resnet50_v100.json.gz", folder / "resnet.trace.json.gz")
    (folder / "broken.trace.json").write_text('{"traceEvents": [')
    (folder / "<b>other<b>.pickle").write_bytes(pickle.dumps(os.getcwd))
    page = browser.new_page(viewport={"width": 1500, "height": 1100})
    page.set_default_timeout(WAIT)
    page.goto(f"{address}/lab?token={TOKEN}&reset")
    opened = Lab(page, folder)
    opened.loaded()
    yield opened
    page.close()


def double_click(lab: Lab, name: str) -> str:
    """Open a file as a person does, and return what is shown when it is done."""
    lab.page.dblclick(f'.jp-DirListing-item[title*="{name}"]')
    lab.page.wait_for_function(
        """name => {
          const shown = window.jupyterapp.shell.currentWidget;
          if (shown?.context?.path !== name) return false;
          const said = shown.node.querySelector('.fg-Recording-status');
          return said && !said.innerText.startsWith('Opening') && shown.node.innerText.trim().length > 20;
        }""",
        arg=name,
        timeout=WAIT,
    )
    folder = os.environ.get("FAKEGPU_LAB_PICTURES")
    if folder:
        lab.page.wait_for_timeout(2000)
        lab.page.screenshot(path=Path(folder) / f"recording-{name.strip('<').partition('.')[0]}.png")
    return str(lab.page.inner_text(".fg-Recording:visible"))


def no_kernel_is_left(lab: Lab) -> None:
    """The kernels that opened files end, and give their memory back."""
    script = """() => {
      const { kernels } = window.jupyterapp.serviceManager;
      return kernels.refreshRunning().then(() => [...kernels.running()].length === 0);
    }"""
    lab.page.wait_for_function(script, timeout=WAIT)


def test_a_double_click_opens_a_recording_and_says_what_is_none(lab: Lab) -> None:
    shown = double_click(lab, "alexnet.pt.trace.json.gz")
    assert "43.4 s recorded on NVIDIA A100-PG509-200" in shown
    lab.page.wait_for_selector(".fg-Recording .js-plotly-plot .main-svg")
    lab.page.click("details summary:has-text('by kernel')")
    assert "aten::cudnn_convolution" in lab.page.inner_text(".fg-Recording:visible")
    no_kernel_is_left(lab)

    shown = double_click(lab, "resnet.trace.json.gz")
    assert "130 ms recorded on Tesla V100-DGXS-32GB" in shown
    assert "Peak of cuda:0: 2.60 GiB" in shown

    assert "broken.trace.json" in double_click(lab, "broken.trace.json")
    assert "is a pickle" in double_click(lab, "<b>other<b>.pickle")
    no_kernel_is_left(lab)

    lab.page.reload()  # the tabs come back, each with its file
    lab.loaded()
    lab.page.wait_for_function("document.querySelectorAll('.fg-Recording').length === 4", timeout=WAIT)
