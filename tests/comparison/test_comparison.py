"""What a comparison shows, and what it refuses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab.formatting.units import size
from fakegpu_lab.hardware.time.records import HostWork, Transfer
from tests.comparison.conftest import Written, kernel, sequence
from tests.recording_views.conftest import some_work

if TYPE_CHECKING:
    from pathlib import Path

    from fakegpu_lab.hardware.machine import Machine

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def compared(machine: Machine) -> lab.Comparison:
    some_work()
    with lab.record() as before:
        some_work()
    with lab.record() as after:
        some_work()
        some_work()
    return lab.compare(before, after)


# --------------------------------------------------------------- bad input


def test_what_is_no_recording_is_refused_in_a_sentence(machine: Machine) -> None:
    with lab.record() as trace:
        torch.ones(1, device="cuda")
    with pytest.raises(lab.FakeGpuError, match=r"needs two recordings, and 'after' is of the type float: make one"):
        lab.compare(trace, trace.elapsed)  # type: ignore[arg-type]
    with pytest.raises(lab.FakeGpuError, match="'before' is of the type NoneType"):
        lab.compare(None, trace)  # type: ignore[arg-type]


def test_a_recording_that_has_not_ended_is_refused(machine: Machine) -> None:
    with lab.record() as trace:
        torch.ones(1, device="cuda")
    with lab.record() as running:
        torch.ones(1, device="cuda")
        with pytest.raises(lab.FakeGpuError, match="The recording 'after' has not ended: compare it after the `with"):
            lab.compare(trace, running)
    assert lab.compare(trace, running).speedup == 1


def test_an_empty_recording_and_one_that_kept_nothing_are_refused(machine: Machine) -> None:
    with lab.record() as empty:
        torch.ones(1)
    with lab.record(limit=0) as full:
        torch.ones(1, device="cuda")
    with lab.record() as trace:
        torch.ones(1, device="cuda")
    with pytest.raises(lab.FakeGpuError, match="'before' is empty, because nothing ran on a GPU meanwhile"):
        lab.compare(empty, trace)
    with pytest.raises(lab.FakeGpuError, match=r"'after' kept no records: make it with a larger limit, lab.record"):
        lab.compare(trace, full)


def test_the_same_recording_twice_is_refused(machine: Machine) -> None:
    with lab.record() as trace:
        torch.ones(1, device="cuda")
    with pytest.raises(lab.FakeGpuError, match="the same recording twice"):
        lab.compare(trace, trace)


def test_a_part_that_is_not_there_is_refused(compared: lab.Comparison) -> None:
    with pytest.raises(lab.FakeGpuError, match="top must be at least 1"):
        compared.kernels(top=0)
    with pytest.raises(lab.FakeGpuError, match="no theme 'pink'"):
        compared.figure(theme="pink")


def test_a_recording_that_dropped_records_says_so(machine: Machine) -> None:
    def some() -> None:
        for _ in range(5):
            torch.ones(1, device="cuda")

    with lab.record() as whole:
        some()
    with lab.record(limit=3) as part:
        some()
    assert "The recording was full: no details were kept of 2" in lab.compare(whole, part).time().note
    assert "the causes are those of what was kept" in lab.compare(whole, part).sentence


# ------------------------------------------------------------------- tables


def in_ns(text: str) -> float:
    number, _, unit = text.replace("−", "-").lstrip("+").partition(" ")
    return float(number.replace(",", "")) * {"s": 1e9, "ms": 1e6, "µs": 1e3, "ns": 1, "": 0}[unit]


def test_each_column_of_the_times_adds_up_to_the_elapsed_time(compared: lab.Comparison) -> None:
    table = compared.time()
    assert table.rows[-1][0] == "elapsed"
    for column in (1, 2, 3):
        parts = [in_ns(row[column]) for row in table.rows[:-1]]
        assert sum(parts) == pytest.approx(in_ns(table.rows[-1][column]), rel=0.01)
    for side in (compared.before, compared.after):
        assert sum(side.means.values()) == pytest.approx(side.elapsed_ns)


def test_totals_count_what_the_recordings_have(compared: lab.Comparison) -> None:
    rows = {row[0]: row[1:] for row in compared.totals().rows}
    before, after = compared.before.recorded, compared.after.recorded
    assert rows["kernels"][:2] == [f"{len(before.kernels)}", f"{len(after.kernels)}"]
    assert rows["kernels"][2:] == [f"+{len(after.kernels) - len(before.kernels)}", "+100%"]
    assert rows["waits of the host"][:2] == [f"{len(before.waits)}", f"{len(after.waits)}"]
    copied = [sum(copy.nbytes for copy in trace.transfers if copy.kind == "h2d") for trace in (before, after)]
    assert rows["copied to GPUs"][:2] == [size(nbytes) for nbytes in copied]
    assert "peak memory of tensors" in rows


def test_the_table_of_devices_has_both(compared: lab.Comparison) -> None:
    table = compared.by_device()
    assert [row[0] for row in table.rows] == ["cuda:0", "cuda:1"]
    assert table in compared.tables
    busy = table.rows[1][1].split(" → ")
    assert in_ns(busy[1]) == pytest.approx(2 * in_ns(busy[0]), rel=0.01)


def test_what_changed_is_sorted_by_the_difference_and_says_how() -> None:
    old = Written(100, sequence("abc", module="Net.0", line="train.py:1"))
    new = Written(100, [kernel("aten::a", 0, 40, module="Net.0"), kernel("aten::d", 40, 50, module="Net.0"),
                        kernel("aten::c", 50, 55, module="Net.0")])  # fmt: skip
    rows = lab.compare(old, new).kernels().rows
    assert [(row[0], row[1], row[2], row[6], row[-1]) for row in rows] == [
        ("a", "slower", "1", "+300%", "Net.0"),
        ("c", "faster", "1", "−50%", "Net.0"),
    ]
    gone = Written(100, sequence("abbb"))
    table = lab.compare(gone, Written(100, sequence("a"))).kernels(top=1)
    assert [(row[0], row[1], row[2]) for row in table.rows] == [("b", "gone", "3 → 0")]
    two = lab.compare(Written(100, sequence("abbbcc")), Written(100, sequence("a"))).kernels(top=1)
    assert [row[:4] for row in two.rows] == [["b", "gone", "3 → 0", "30 ns"], ["(1 more)", "", "", "20 ns"]]


def test_the_same_op_under_two_names_is_one_row_of_a_card_and_its_simulation() -> None:
    copy = kernel("Memcpy DtoD (Device -> Device)", 0, 30)
    card = Written(200, [copy, *(kernel(f"aten::{name}", 30, 40) for name in "abc")])
    kernels = [*sequence("abc"), kernel("aten::copy_", 60, 120, module="Net.0")]
    (row,) = lab.compare(card, Written(200, kernels, simulated=True)).kernels().rows
    assert row == [copy.name, "slower", "1", "30 ns", "60 ns", "+30 ns", "+100%", "Net.0"]
    assert [row[1] for row in lab.compare(card, Written(200, kernels)).kernels().rows] == ["new", "gone"]  # two cards


# ----------------------------------------------------- sentence and notebook


def test_labels_stand_in_the_sentence_and_the_tables(machine: Machine) -> None:
    compared = lab.compare(Written(100, sequence("abc")), Written(50, sequence("abc", ns=5)), ("pageable", "pinned"))
    assert compared.sentence.startswith("pinned is 2.00 times as fast as pageable: 50 ns instead of 100 ns.")
    assert compared.time().headers[1:3] == ["pageable", "pinned"]
    assert compared.sentence == " ".join([compared.verdict, *compared.reasons])
    assert str(compared).startswith("\n- ".join([compared.verdict, *compared.reasons]) + "\n\n")
    assert "Where the time went" in str(compared)


def test_names_from_files_are_escaped_everywhere(tmp_path: Path) -> None:
    pytest.importorskip("plotly.graph_objects")
    more: dict[str, Any] = {"module": HOSTILE, "line": f"{HOSTILE}:3", "thread": HOSTILE}
    old = Written(100, [kernel(HOSTILE, 0, 60, **more)], cards={0: HOSTILE})
    new = Written(90, [kernel(f"{HOSTILE}2", 0, 20, **more), kernel("aten::b", 20, 30, **more)],
                  [Transfer(HOSTILE, 0, 0, 30, 40, HOSTILE, f"{HOSTILE}:3", kind="h2d", target=0)],
                  host_work=[HostWork(HOSTILE, -1, 0, 40, 80, HOSTILE, f"{HOSTILE}:4")])  # fmt: skip
    compared = lab.compare(old, new, (HOSTILE, f"{HOSTILE}2"))
    pages = [compared._repr_html_(), compared.write_html(tmp_path / "page.html").read_text(encoding="utf-8")]
    assert all(HOSTILE not in page and "onerror=alert" in page for page in pages)
    figure = compared.figure()
    texts = [*figure.layout.yaxis.ticktext, *(note.text for note in figure.layout.annotations)]
    texts += [text for bars in figure.data for text in (*bars.hovertext, *bars.text)]
    assert all(HOSTILE not in text for text in texts)
    assert any("&lt;img" in text for text in texts)


def test_a_page_is_one_file_with_sentence_tables_and_figure(compared: lab.Comparison, tmp_path: Path) -> None:
    pytest.importorskip("plotly.graph_objects")
    for theme, paper in (("light", "#FFFFFF"), ("dark", "#111111")):
        page = compared.write_html(tmp_path / "page.html", theme).read_text(encoding="utf-8")
        assert page.startswith("<!DOCTYPE html>")
        assert f"background: {paper}" in page
        assert page.index("times as long as the first") < page.index("plotly") < page.index("Where the time went")
        assert not re.search(r'<(script|link|img)[^>]+(src|href)="http', page)


def test_a_notebook_shows_the_sentence_first_then_the_tables(compared: lab.Comparison) -> None:
    shown = compared._repr_html_()
    assert shown.startswith(f"<p><b>{compared.verdict}</b></p><ul><li>")
    assert shown.count("<table>") == 4


# ------------------------------------------------------------------- figure


def test_the_figure_has_both_recordings_from_zero_on_one_scale(compared: lab.Comparison) -> None:
    pytest.importorskip("plotly.graph_objects")
    figure = compared.figure()
    unit = {"s": 1e9, "ms": 1e6, "µs": 1e3}[figure.layout.xaxis.title.text.split()[0]]
    longest = compared.after.elapsed_ns
    assert longest > compared.before.elapsed_ns
    assert figure.layout.xaxis.range == pytest.approx((0, longest / unit))
    labels = [text.strip() for text in figure.layout.yaxis.ticktext]
    first, second = [place for place, label in enumerate(labels) if not label]
    assert (first, labels[1], labels[second + 1]) == (0, "host", "host")
    names = dict(zip(figure.layout.yaxis.tickvals, labels, strict=True))
    above = len(labels) - second  # rows are numbered from below
    starts: dict[bool, list[float]] = {True: [], False: []}
    for bars in figure.data:
        for row, base, text in zip(bars.y, bars.base, bars.hovertext, strict=True):
            if names[row].endswith("stream 0") and "aten::" in text:
                starts[row > above].append(base)
    for is_before, side in ((True, compared.before), (False, compared.after)):
        expected = sorted((k.start_ns - side.recorded.began_ns) / unit for k in side.recorded.kernels)
        assert sorted(starts[is_before]) == pytest.approx(expected)
    assert figure.layout.annotations[0].text.startswith("<b>before</b>")


def test_many_lanes_are_those_of_the_first_device() -> None:
    pytest.importorskip("plotly.graph_objects")
    kernels = [kernel("aten::mm", 10 * n, 10 * n + 5, device=n % 8, stream=n // 8, correlation=n) for n in range(32)]
    one, other = (Written(400, list(kernels), cards=dict.fromkeys(range(8), "a card")) for _ in range(2))
    figure = lab.compare(one, other).figure()
    assert "The first GPU of each is shown." in figure.layout.title.text
    assert {text.split()[0] for text in figure.layout.yaxis.ticktext if "cuda" in text} == {"cuda:0"}


@pytest.mark.long
def test_ten_thousand_kernels_are_compared_and_drawn_in_seconds() -> None:
    pytest.importorskip("plotly.graph_objects")
    import time

    def many(count: int, skip: int) -> Written:
        names = ("mm", "add", "gelu", "mul", "native_layer_norm", "sum", "div", "softmax", "copy_", "bmm", "tanh")
        kept = [n for n in range(count) if n % skip]
        kernels = [
            kernel(f"aten::{names[n * n % 11]}", 100 * n, 100 * n + 60, correlation=n, module=f"Net.{n % 97}",
                   line=f"train.py:{n % 50}", launched_ns=100 * n, dispatched_ns=100 * n - 20)
            for n in kept
        ]  # fmt: skip
        return Written(100 * count, kernels)

    began = time.process_time()
    compared = lab.compare(many(10_000, 10_001), many(10_000, 7))
    assert compared.sentence
    assert compared.tables
    assert time.process_time() - began < 8
    compared.figure()
    assert time.process_time() - began < 30
