"""A recording in tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab.recording_views.kernel_classes import CLASSES, class_of

if TYPE_CHECKING:
    from fakegpu_lab.formatting.table import Table
    from fakegpu_lab.hardware.machine import Machine


def cells(table: Table, first: str) -> dict[str, str]:
    (row,) = [row for row in table.rows if row[0] == first]
    return dict(zip(table.headers, row, strict=True))


def multiplied(times: int = 3) -> lab.Trace:
    """Three products of 1024³ on cuda:0."""
    a = torch.ones(1024, 1024, device="cuda")
    with lab.record() as trace:
        for _ in range(times):
            a @ a
        a.add(1).cpu()
    return trace


def test_the_summary_counts_time_flops_and_bytes(machine: Machine) -> None:
    trace = multiplied()
    row = cells(trace.summary(), "aten::mm")
    kernels = [k for k in trace.kernels if k.name == "aten::mm"]
    assert row["calls"] == "3"
    assert row["FLOPs"] == "6.44 GFLOP"  # 3 × 2 × 1024³
    assert row["bytes"] == "36.0 MiB"  # 3 × 3 matrices of 4 MiB
    seconds = sum(k.duration for k in kernels)
    assert row["total"] == f"{seconds * 1e6:.3g} µs"
    assert row["FLOP/s"] == f"{6 * 1024**3 / seconds / 1e12:.3g} TFLOP/s"
    assert row["bandwidth"] == f"{9 * 2**22 / seconds / 1e9:.3g} GB/s"
    copy = cells(trace.summary(), "Memcpy DtoH (Device -> Pageable)")
    assert copy["calls"] == "1"
    shares = [float(cells(trace.summary(), name)["% of time"].rstrip("%")) for (_, name) in trace.totals]
    assert sum(shares) == pytest.approx(100, abs=0.2)


def test_it_is_sorted_as_asked(machine: Machine) -> None:
    trace = multiplied()
    order = {by: [row[0] for row in trace.summary(by).rows] for by in ("time", "calls", "name", "bytes", "mean")}
    totals = {name: total for (_, name), total in trace.totals.items()}
    assert order["time"] == sorted(totals, key=lambda name: -totals[name].ns)
    assert order["mean"] == sorted(totals, key=lambda name: -totals[name].ns / totals[name].count)
    assert order["calls"][0] == "aten::mm"
    assert order["name"] == sorted(totals)
    with pytest.raises(lab.FakeGpuError, match=r"cannot be sorted by 'size', only by time, mean, .* or name"):
        trace.summary("size")


def test_the_rest_is_one_row(machine: Machine) -> None:
    trace = multiplied()
    rows = trace.summary("calls", top=1).rows
    assert [row[0] for row in rows] == ["aten::mm", "(2 more)"]
    assert rows[1][1] == "2"
    with pytest.raises(lab.FakeGpuError, match="must be at least 1"):
        trace.summary(top=0)


def test_several_devices_have_rows_of_their_own(trace: lab.Trace) -> None:
    table = trace.summary()
    assert table.headers[0] == "device"
    assert ["cuda:1", "aten::mul_"] in [list(row[:2]) for row in table.rows]
    assert "cuda:1 busy" in table.title


def test_lines_say_what_they_cost(machine: Machine) -> None:
    a = torch.ones(2048, 2048, device="cuda")
    with lab.record() as trace:
        b = a @ a  # the expensive line
        b[0, 0].item()  # the line that waits
    first, second = trace.by_line().rows[:2]
    row = dict(zip(trace.by_line().headers, first, strict=True))
    assert row["source"] == "b = a @ a  # the expensive line"
    assert row["line"].startswith(("tests/recording_views/test_tables.py:", "test_tables.py:"))
    assert row["host waited"] == ""
    assert dict(zip(trace.by_line().headers, second, strict=True))["host waited"].endswith(" ms")


def test_code_is_monospaced_and_only_long_words_may_be_cut(machine: Machine) -> None:
    with lab.record() as trace:
        torch.ones(64, 64, device="cuda").square().sum()
    page = trace.by_line()._repr_html_()
    cells = re.findall(r'<td style="([^"]*)">([^<]*)</td>', page)
    (code,) = [style for style, cell in cells if cell.startswith("torch.ones(64")]
    assert code.endswith("overflow-wrap: anywhere; font-family: var(--jp-code-font-family, monospace)")
    assert {style for style, cell in cells if cell.endswith("%")} == {"text-align: right; white-space: nowrap"}


def test_modules_say_what_they_cost(trace: lab.Trace) -> None:
    table = trace.by_module()
    row = cells(table, "Sequential.0")
    mine = [k for k in trace.kernels if k.module == "Sequential.0"]
    assert row["kernels, copies"] == str(len(mine))
    assert any(k.backward for k in mine)
    assert row["forward"] != "0"
    assert row["backward"] != "0"
    assert {r[0] for r in trace.by_module(depth=1).rows} == {"Sequential", "(no module)"}
    with pytest.raises(lab.FakeGpuError, match="depth=0"):
        trace.by_module(depth=0)


def test_a_full_recording_stays_exact(machine: Machine) -> None:
    a = torch.ones(8, 8, device="cuda")

    def work() -> None:
        for _ in range(10):
            a + a
        a @ a
        a.cpu()
        a.cpu()

    with lab.record() as whole:
        work()
    with lab.record(limit=5) as small:
        work()
    assert len(small.kernels) == 5
    assert small.dropped == {"kernels": 6, "allocations": small.dropped["allocations"]}
    assert small.totals == whole.totals
    assert small.summary().rows == whole.summary().rows
    assert "11 kernels, 2 transfers" in repr(small)
    assert "no details of" in repr(small)
    for table in (small.summary(), small.by_line(), small.by_module()):
        assert "no details were kept of 6 allocations and 6 kernels" in str(table)
        assert "no details" in table._repr_html_()
    assert whole.summary().note == ""
    assert "no details" not in repr(whole)


def test_a_limit_below_zero_is_refused(machine: Machine) -> None:
    with pytest.raises(lab.FakeGpuError, match="limit=-1"):
        lab.record(limit=-1)


def test_a_trace_in_a_notebook_is_one_line_and_a_hint(trace: lab.Trace) -> None:
    shown = trace._repr_html_()
    assert repr(trace)[1:-1] in shown
    assert ".summary()" in shown
    assert "<Trace" not in shown
    assert trace.collectives == []


def test_host_work_is_recorded(trace: lab.Trace) -> None:
    pinning, work = trace.host_work
    assert pinning.name == "pin_memory"
    assert work.name == "host_work"
    assert work.duration == pytest.approx(30e-6)
    assert "conftest.py" in work.line


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::mm", "matmul"),
        ("aten::addmm", "matmul"),
        ("aten::linear_backward", "matmul"),
        ("aten::_scaled_mm", "matmul"),
        ("aten::convolution_backward", "convolution"),
        ("aten::_scaled_dot_product_flash_attention", "attention"),
        ("aten::add_", "elementwise"),
        ("aten::gelu", "elementwise"),
        ("aten::fill_", "elementwise"),
        ("aten::native_dropout", "elementwise"),
        ("aten::sum", "reduction"),
        ("aten::_log_softmax_backward_data", "reduction"),
        ("aten::nll_loss_forward", "reduction"),
        ("aten::native_layer_norm_backward", "normalization"),
        ("aten::_fused_adamw_", "optimizer"),
        ("aten::_foreach_addcdiv_", "optimizer"),
        ("aten::clone", "copy"),
        ("Memcpy HtoD (Pinned -> Device)", "copy"),
        ("aten::max_pool2d_with_indices", "reduction"),
        ("aten::linalg_inv_ex", "other"),
        ("mine::strange", "other"),
        ("allocation", "other"),
    ],
)
def test_kernels_have_classes(name: str, kind: str) -> None:
    assert class_of(name) == kind
    assert kind in CLASSES
