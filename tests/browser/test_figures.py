"""The figures of recordings in JupyterLab: what the drawn curve says, the colours of light and dark, a narrow page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.test_lesson import picture, write

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.long

SOURCES = Path(__file__).parents[2] / "lessons" / "source"

_DRAWN = """place => {
    const cell = document.querySelectorAll(".jp-Notebook .jp-Cell")[place];
    const plot = cell.querySelector(".js-plotly-plot");
    const steps = path => [...path.getAttribute("d").matchAll(/([MLHV])([^MLHVZ]+)/g)];
    const points = path => steps(path).reduce((all, [, kind, text]) => {
        const at = text.split(",").map(Number), last = all.at(-1) ?? [0, 0];
        all.push(kind === "H" ? [at[0], last[1]] : kind === "V" ? [last[0], at[0]] : at);
        return all;
    }, []);
    const phases = [...plot.querySelectorAll(".subplot.xy2 .bars .point")].map(point => {
        const box = point.querySelector("path").getBBox();
        return [point.querySelector("text")?.textContent ?? "", box.x, box.x + box.width];
    });
    return {curve: points(plot.querySelector(".subplot.xy2 .scatterlayer .js-line")), phases};
}"""


def cells_of(lesson: str) -> list[str]:
    """The code cells of a lesson."""
    notebook = json.loads((SOURCES / lesson / f"{lesson}.ipynb").read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def check_curve(page: Any, place: int) -> None:
    """The drawn curve is highest where forward ends and backward begins, climbs before, and falls afterwards."""
    page.locator(".jp-Notebook .jp-Cell").nth(place).locator(".js-plotly-plot .scatterlayer .js-line").first.wait_for()
    drawn = page.evaluate(_DRAWN, place)
    phases = sorted(drawn["phases"], key=lambda phase: phase[1])
    assert [name for name, *_ in phases[:2]] == ["forward", "backward"]
    (_, _, forward_ends), (_, backward_begins, backward_ends) = phases[:2]
    assert backward_begins == pytest.approx(forward_ends, abs=2)
    curve = [point for point in drawn["curve"] if point[0] <= backward_ends]
    top = min(y for _, y in curve)  # y grows downwards
    highest = [x for x, y in curve if y == top]
    assert min(highest) >= forward_ends - 1
    assert max(highest) <= backward_begins + 0.1 * (backward_ends - backward_begins)

    def height(x: float) -> float:
        return -[y for at, y in curve if at <= x][-1]

    first = phases[0][1]
    climbing = [height(first + (forward_ends - first) * tenth / 5 + 0.5) for tenth in range(6)]
    assert climbing == sorted(climbing)
    falling = [height(backward_begins + (backward_ends - backward_begins) * tenth / 5 - 0.5) for tenth in range(1, 6)]
    assert falling == sorted(falling, reverse=True)


def test_memory_climbs_in_forward_and_falls_in_backward(opened: Callable[[str, list[str]], Any]) -> None:
    cells = cells_of("03-memory-and-oom")
    lesson = next(text for text in cells if "trace.figure()" in text)
    begin = cells[0].replace("%lesson 03-memory-and-oom\n", "")
    step = "%%gpuprofile\ntrain_step(model, optimizer, 4096)"
    page = opened("figures.ipynb", [begin, lesson, step])
    for place in range(3):
        write(page, place, None)
    check_curve(page, 1)
    check_curve(page, 2)
    picture(page, "figures-light")
    colour = "getComputedStyle(document.querySelector('.js-plotly-plot .xtick text')).fill"
    light = page.evaluate(colour)
    page.evaluate("window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
    page.wait_for_function(f"{colour} !== {light!r}")
    page.wait_for_timeout(4000)  # JupyterLab draws its outputs again
    heights = page.evaluate("[...document.querySelectorAll('.js-plotly-plot')].map(one => one.clientHeight)")
    assert len(heights) == 2
    assert min(heights) > 200, "a figure is as high as before"
    picture(page, "figures-dark")
    page.evaluate("window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Light'})")
    page.set_viewport_size({"width": 600, "height": 1000})
    page.wait_for_timeout(1500)
    plot = page.locator(".js-plotly-plot .cartesianlayer .xy").first.bounding_box()
    assert plot["width"] > 250
    assert page.locator(".js-plotly-plot .legend").count() == 0, "the key stands above, as text that wraps"
    check_curve(page, 1)
    picture(page, "figures-narrow")


def test_in_the_tour_memory_climbs_and_falls_too(opened: Callable[[str, list[str]], Any]) -> None:
    cells = cells_of("00-tour")
    begin = "%load_ext fakegpu_lab\n%fakegpu a100:2\nimport torch"
    model = next(text for text in cells if "def step()" in text).replace("range(21)", "range(2)")
    profile = next(text for text in cells if text.startswith("%%gpuprofile"))
    page = opened("tour.ipynb", [begin, model, profile])
    for place in range(3):
        write(page, place, None)
    check_curve(page, 2)
