"""The drawings of a kernel's card as a browser draws them: every word inside its drawing, and none upon another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fakegpu_lab.hardware.kernel_model.accesses import AccessLog
from tests.recording_views.test_kernel_card import LANES, card

_WORDS = """() => [...document.querySelectorAll("svg")].map(svg => {
    const frame = svg.viewBox.baseVal;
    const words = [...svg.querySelectorAll("text")].map(text => [text.textContent, text.getBBox()]);
    const outside = words.filter(([, box]) => box.x < -1 || box.y < -1
        || box.x + box.width > frame.width + 1 || box.y + box.height > frame.height + 1);
    const upon = words.filter(([, box], place) => words.slice(0, place).some(([, other]) =>
        box.x < other.x + other.width - 1 && other.x < box.x + box.width - 1
        && box.y < other.y + other.height - 3 && other.y < box.y + box.height - 3));
    return {words: words.length, wrong: [...outside, ...upon].map(([text]) => text),
            wide: svg.getBoundingClientRect().width};
})"""


@pytest.mark.parametrize("width", [480, 1300])
def test_the_words_of_the_drawings_are_whole_and_apart(browser: Any, width: int) -> None:
    log = AccessLog()
    log.add("load", "global", 32 * LANES[None], 4, ("kernel.py", 3))
    log.add("load", "global", 4 * np.arange(1 << 16).reshape(-1, 32), 4, ("kernel.py", 4))
    log.add("store", "shared", 128 * LANES[None], 4, ("kernel.py", 5))
    log.flops(1 << 20)
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.set_content(f"<body style='font: 13px sans-serif'>{card(log, grid=2000)._repr_html_()}</body>")
    drawings = page.evaluate(_WORDS)
    page.close()
    assert len(drawings) == 4
    assert all(drawing["words"] for drawing in drawings)
    assert [drawing["wrong"] for drawing in drawings] == [[]] * 4
    assert all(drawing["wide"] <= width for drawing in drawings)
