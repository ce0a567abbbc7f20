"""The timeline's figure: what is drawn where, in numbers; how it looks is for people to judge."""

from __future__ import annotations

import re
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab.formatting.units import size
from fakegpu_lab.hardware.memory_categories import COLOURS
from fakegpu_lab.recording_views.figures.timeline import BARS
from tests.recording_views.conftest import some_work

if TYPE_CHECKING:
    from pathlib import Path

    from fakegpu_lab.hardware.machine import Machine

go = pytest.importorskip("plotly.graph_objects")


def drawn(figure: Any) -> list[tuple[str, str, float, float, str]]:
    """Every bar: lane, legend, start and end in the axis's unit, hover."""
    names = dict(
        zip(figure.layout.yaxis.tickvals, (text.strip() for text in figure.layout.yaxis.ticktext), strict=True)
    )
    return [
        (names[row], trace.name, start, start + length, text)
        for trace in figure.data
        if trace.type == "bar" and trace.hovertext is not None
        for row, start, length, text in zip(trace.y, trace.base, trace.x, trace.hovertext, strict=True)
    ]


def unit(figure: Any) -> float:
    """The axis's unit in ns."""
    return {"s": 1e9, "ms": 1e6, "µs": 1e3}[figure.layout.xaxis.title.text.split()[0]]


def test_every_kernel_is_a_bar_in_its_stream_s_lane_at_its_time(trace: lab.Trace) -> None:
    figure = trace.figure()
    bars = [bar for bar in drawn(figure) if re.search(r"stream \d+$", bar[0])]
    placed = sorted((lane, round(start * unit(figure)), round(end * unit(figure))) for lane, _, start, end, _ in bars)
    assert placed == sorted(
        (f"cuda:{k.device} stream {k.stream}", k.start_ns - trace.began_ns, k.end_ns - trace.began_ns)
        for k in trace.kernels
    )


def test_copies_are_in_the_copy_engines_lanes(trace: lab.Trace) -> None:
    lanes = [lane for lane, kind, _, _, _ in drawn(trace.figure()) if "copy" in lane and kind == "copy"]
    into = [f"cuda:{t.target} copy in" for t in trace.transfers if t.target is not None]
    out = [f"cuda:{t.source} copy out" for t in trace.transfers if t.source is not None]
    assert sorted(lanes) == sorted(into + out)
    assert set(lanes) == {"cuda:0 copy in", "cuda:0 copy out", "cuda:1 copy in"}


def test_the_host_launches_waits_and_works(trace: lab.Trace) -> None:
    host = [bar for bar in drawn(trace.figure()) if bar[0] == "host"]
    kinds = [kind for _, kind, _, _, _ in host]
    assert kinds.count("host launches") == len(trace.kernels) + len(trace.transfers)
    assert kinds.count("host waits") == len(trace.waits)
    assert kinds.count("host works") == len(trace.host_work) == 2  # pin_memory and host_work
    (wait,) = [text for _, kind, _, _, text in host if kind == "host waits" and "loss.item()" in text]
    assert "the copy to the host" in wait


def test_the_hover_tells_what_and_why(machine: Machine) -> None:
    a = torch.ones(1024, 1024, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with lab.record() as trace:
        b = a @ a  # first
        b @ a
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            b @ b
    first, second, third = [text for lane, _, _, _, text in drawn(trace.figure()) if re.search(r"stream \d+$", lane)]
    assert first.startswith("<b>aten::mm</b><br>1024×1024, 1024×1024<br>")
    assert "2.15 GFLOP" in first
    assert "12.0 MiB" in first
    assert "began when launched" in first
    assert "<i>b = a @ a  # first</i>" in first
    assert "for the work before it in its stream" in second
    assert "for an event, that is for another stream" in third


def test_a_stream_that_waits_for_launches_says_so(machine: Machine) -> None:
    a = torch.ones(8, device="cuda")
    with lab.record() as trace:
        for _ in range(3):
            a + a
    texts = [text for lane, _, _, _, text in drawn(trace.figure()) if lane == "cuda:0 stream 0"]
    assert "its stream was idle" in texts[-1]
    assert "waited for the launch" in texts[-1]


def test_modules_have_a_lane(trace: lab.Trace) -> None:
    spans = [(kind, text) for lane, kind, _, _, text in drawn(trace.figure()) if lane == "cuda:0 modules"]
    assert [kind for kind, _ in spans].count("module, forward") == 3
    assert [kind for kind, _ in spans].count("module, backward") == 3
    assert any("<b>Sequential.2</b> (backward)" in text for _, text in spans)


def test_the_memory_below_reaches_the_peak(trace: lab.Trace) -> None:
    figure = trace.figure()
    curves = {t.name: t for t in figure.data if t.type == "scatter"}
    assert max(curves["memory cuda:0"].y) == trace.peak_memory(0)
    assert max(curves["memory cuda:1"].y) == trace.peak_memory(1)
    assert figure.layout.xaxis.anchor == "y3", "lanes and both devices' memory share the axis"


def test_memory_taken_and_given_back_in_one_moment_is_seen(machine: Machine) -> None:
    kept = torch.ones(256, device="cuda")
    with lab.record() as trace:
        torch.empty(2**20, device="cuda")  # launches nothing: the host's clock stands still
        kept + kept
    (curve,) = (t for t in trace.figure().data if t.type == "scatter" and t.mode == "lines")
    assert max(curve.y) == trace.peak_memory(0) == 2**20 * 4 + 1024
    assert curve.y[-1] == 1024


def test_a_device_or_a_part_alone(trace: lab.Trace) -> None:
    assert {lane.split()[0] for lane, *_ in drawn(trace.figure(device=1))} == {"host", "cuda:1"}
    middle = (trace.kernels[2].start_ns - trace.began_ns) / 1e9
    part = trace.figure(start=middle, end=trace.elapsed)
    assert 0 < len(drawn(part)) < len(drawn(trace.figure()))
    assert part.layout.xaxis.range[0] * unit(part) == pytest.approx(middle * 1e9)
    with pytest.raises(lab.FakeGpuError, match="shows no part of the recording"):
        trace.figure(start=2.0)
    with pytest.raises(lab.FakeGpuError, match="no device 7"):
        trace.figure(device=7)
    with pytest.raises(lab.FakeGpuError, match="'light' or 'dark'"):
        trace.figure(theme="pink")


def test_many_kernels_are_drawn_together_and_that_is_said(machine: Machine) -> None:
    a = torch.ones(8, device="cuda")
    with lab.record() as trace:
        for _ in range(3000):
            a + a
        a.cpu()
    began = time.perf_counter()
    figure = trace.figure()
    assert time.perf_counter() - began < 10
    bars = drawn(figure)
    assert len(bars) <= BARS
    assert "too many to draw one by one" in figure.layout.title.text.replace("<br>", " ")
    assert any("together</b>" in text and "× add" in text for _, _, _, _, text in bars)
    busy = sum(end - start for lane, _, start, end, _ in bars if lane == "cuda:0 stream 0")
    assert busy * unit(figure) == pytest.approx(trace.busy() * 1e9), "gaps between kernels are gaps here, too"
    on_host = {kind for lane, kind, *_ in bars if lane == "host"}
    assert {"host: Python", "host: PyTorch's C++", "host launches"} <= on_host
    part = trace.figure(end=1e-3)
    assert "too many" not in part.layout.title.text
    assert sum(lane == "cuda:0 stream 0" for lane, *_ in drawn(part)) == sum(
        k.start_ns - trace.began_ns <= 1e6 for k in trace.kernels
    )


def test_short_kernels_with_gaps_do_not_fill_their_lane(machine: Machine) -> None:
    """plotly draws an opaque bar a pixel wide at least: of 14% of the time, it would make all of it."""
    small, large = torch.ones(8, device="cuda"), torch.ones(4096, 4096, device="cuda")
    with lab.record() as few:
        large @ large
        small + 1
    with lab.record() as many:
        for _ in range(1_000):
            small = small + 1
    assert many.busy(0) < 0.2 * many.elapsed
    for trace, blended in ((few, False), (many, True)):
        bars = [one for one in trace.figure().data if one.name in ("elementwise", "host launches")]
        assert len(bars) == 2
        for one in bars:
            assert all(str(colour).startswith("rgba(") for colour in one.marker.color) is blended


def test_what_was_dropped_is_said(machine: Machine) -> None:
    a = torch.ones(8, device="cuda")
    with lab.record(limit=2) as trace:
        for _ in range(4):
            a + a
    assert "no details were kept of" in trace.figure().layout.title.text.replace("<br>", " ")


def test_the_theme_follows_plotly_s(trace: lab.Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    import plotly.io

    light = trace.figure().to_dict()
    monkeypatch.setattr(plotly.io.templates, "default", "plotly_dark")
    assert trace.figure().to_dict() == trace.figure(theme="dark").to_dict() != light
    assert trace.figure(theme="light").to_dict() == light


def _luminance(colour: str) -> float:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_names_in_bars_can_be_read_in_both_themes(trace: lab.Trace, theme: str) -> None:
    """WCAG asks for a contrast of 4.5; plotly would take a gray of its own."""
    for figure in (trace.figure(theme=theme), trace.memory_figure(theme=theme)):
        for bars in figure.data:
            if bars.type == "bar" and bars.text is not None and bars.hovertext is not None:
                fills, inks = bars.marker.color, bars.insidetextfont.color
                fills, inks = ([one] if isinstance(one, str) else one for one in (fills, inks))
                for fill, ink in zip(fills, inks, strict=True):
                    pair = sorted((_luminance(fill), _luminance(ink)))
                    assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, (bars.name, fill, ink)


def test_bands_have_the_colours_of_the_key(trace: lab.Trace) -> None:
    bands = [band for band in trace.memory_figure(theme="dark").data if band.type == "scatter" and band.fill]
    assert bands
    assert {band.fillcolor for band in bands} <= set(COLOURS.values()), "none that lets the page show through"


def test_the_same_program_gives_the_same_figure(machine: Machine) -> None:
    def picture() -> str:
        lab.reset()
        with lab.record() as recorded:
            some_work()
        return str(recorded.figure().to_json())

    assert picture() == picture()


def test_without_plotly_one_sentence_says_what_to_do(trace: lab.Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "plotly"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(lab.FakeGpuError, match="pip install plotly") as caught:
        trace.figure()
    assert len(str(caught.value).splitlines()) == 1


def test_an_empty_recording_has_a_figure(machine: Machine) -> None:
    with lab.record() as trace:
        pass
    assert drawn(trace.figure()) == []


def test_phases_are_shaded_behind_lanes_and_memory(trace: lab.Trace) -> None:
    figure = trace.figure()
    shaded = [bar for bar in figure.data if bar.type == "bar" and bar.hoverinfo == "skip" and bar.orientation != "h"]
    assert [bar.text for bar in shaded] == [("forward",), ("backward",), ("optimizer",)]
    kernels = [k for k in trace.kernels if k.phase == "backward"]
    (backward,) = (bar for bar in shaded if bar.text == ("backward",))
    ends = [backward.x[0] + sign * backward.width[0] / 2 for sign in (-1, 1)]
    times = (min(k.start_ns for k in kernels), max(k.end_ns for k in kernels))
    assert [round(end * unit(figure)) for end in ends] == [when - trace.began_ns for when in times]


def test_each_gpu_has_a_memory_strip_of_its_own_and_its_peak_in_figures(trace: lab.Trace) -> None:
    figure = trace.figure()
    peaks = {t.name: t.text[0] for t in figure.data if t.name and t.name.startswith("peak")}
    assert peaks == {f"peak cuda:{i}": f"peak {size(trace.peak_memory(i))}" for i in range(2)}
    first, second = figure.layout.yaxis2, figure.layout.yaxis3
    assert first.domain[0] > second.domain[1]
    assert first.range == second.range
    titles = [annotation.text for annotation in figure.layout.annotations]
    assert titles == ["cuda:0 memory", "cuda:1 memory"]


def test_above_the_figure_stand_its_title_its_colours_and_its_numbers_in_words(trace: lab.Trace) -> None:
    figure = trace.figure()
    above = figure.above()
    assert trace.described().partition(";")[0] in above
    assert "host launches</li>" in above
    assert re.search(r'background: repeating-linear-gradient\([^"]+"></span>host waits</li>', above), "as in the figure"
    assert "var(--jp-ui-font-color1)" in above, "JupyterLab's theme, light or dark"
    assert f"Memory of cuda:0: tensors held 0 at first, at most {size(trace.peak_memory(0))}" in above
    assert "Phases of cuda:0: forward " in above
    assert "cuda:0 copy in: 5 copies, " in above
    assert "var(--jp-ui-font-color1)" not in trace.figure(theme="dark").above()
    assert f"min-height: {figure._height}px" in trace.figure(theme="dark").above()
    assert trace.described().partition(";")[0] not in figure.without_title().above().partition("<details")[0]


def test_a_page_of_a_figure_has_a_language_and_a_title(tmp_path: Path) -> None:
    lab.enable("a100", compute="meta")
    with lab.record() as trace:
        torch.ones(4, device="cuda") + 1
    lab.disable()
    trace.figure().write_html(tmp_path / "figure.html", include_plotlyjs=False)
    page = (tmp_path / "figure.html").read_text(encoding="utf-8")
    assert '<html lang="en">' in page
    assert "<title>" in page
    assert "of simulated time" in page.partition("</title>")[0].replace("\xa0", " ")


def test_the_toolbar_has_only_what_is_of_use(trace: lab.Trace) -> None:
    page = trace.figure().to_html(include_plotlyjs=False)
    assert '"displaylogo": false' in page
    assert "lasso2d" in page.partition("modeBarButtonsToRemove")[2]
    assert trace.figure().layout.modebar.orientation == "v", "beside the figure, not over its title"
