"""The published figures: each with its source, set aside by the rule; and what the page says of them is so."""

from __future__ import annotations

import csv
import gzip
import json
import re
from statistics import median
from typing import TYPE_CHECKING

import pytest

from fakegpu_lab.recording_views.uncertainty import TYPICAL
from tests.fidelity import host_traces, results, step_traces
from tests.fidelity.published import (
    COLLECTED_LATER,
    HOST,
    NEVER_SEEN,
    SECOND_ROUND,
    Row,
    error,
    rows,
    series,
    set_aside,
    sources,
)
from tests.fidelity.table import PAGE

if TYPE_CHECKING:
    from pathlib import Path

FOUND = results.read()


def test_rows_are_set_aside_by_the_rule_and_every_one_has_a_public_source() -> None:
    assert len(rows()) >= 300
    assert len({(row.what, row.machine) for row in rows()}) == len(rows())
    for row in rows():
        assert row.held_out == set_aside(row), row
        assert sources()[row.source]["url"].startswith("https://"), row
    others = [row for row in rows() if row.category != HOST]
    assert 0.25 < sum(row.held_out for row in others) / len(others) < 0.4
    assert len({row.machine.split(":")[0].split()[0] for row in rows()}) >= 20


def test_host_bound_rows_are_set_aside_by_series() -> None:
    several = [row for row in rows() if row.category == HOST]
    assert len(several) >= 40
    known, aside = ({series(row.source) for row in several if row.held_out is held} for held in (False, True))
    assert not known & aside
    assert len(aside) >= len(known) == 10
    assert aside == {*COLLECTED_LATER, *NEVER_SEEN, *SECOND_ROUND}


def test_the_page_says_how_far_off_host_bound_programs_are() -> None:
    """The goal: half within 25%, and four fifths within 40%. Rows that nobody had seen meet it in the second round."""
    page = " ".join(PAGE.read_text("utf-8").split())
    told = {
        SECOND_ROUND: "On these 16 rows, half are within {}%, and {} are within 40%",
        NEVER_SEEN: "On these 17 rows, half are within {}% now, and {} are within 40%",
        COLLECTED_LATER: "On these 19 rows, half are within {}%, and {} are within 40%",
        SECOND_ROUND
        + NEVER_SEEN
        + COLLECTED_LATER: "half are within {}%, and {} are within 40%. All rows are simulated",
    }
    for several, text in told.items():
        found = [
            error(FOUND[row.what, row.machine], row.real)
            for row in rows()
            if row.category == HOST and series(row.source) in several
        ]
        half = median(found)
        shown = f"{100 * half:.1f}" if several == NEVER_SEEN else f"{100 * half:.0f}"  # just above 40%
        assert text.format(shown, sum(one <= 0.4 for one in found)) in page


def test_steps_in_traces_are_as_the_page_says() -> None:
    assert step_traces.table() in PAGE.read_text("utf-8")
    assert median(step_traces.errors("ns_resolution_trace", "host")) <= 0.3
    assert median(step_traces.errors("ns_resolution_trace", "kernels")) <= 0.15
    for trace in ("nccl_parser_config", "linear_kineto", "resnet_kineto"):
        assert median(step_traces.errors(trace, "kernels")) <= 0.2
    step = next(row for row in step_traces.read() if row["op"] == "the step")
    assert error(float(step["host ours"]), float(step["host real"])) <= 0.1


@pytest.mark.slow
def test_the_recorded_step_is_what_the_simulation_says() -> None:
    program = step_traces.PROGRAMS[0]
    real = [[*row[:6], row[7]] for row in (list(row.values()) for row in step_traces.read()) if row[0] == program.trace]
    again = step_traces.compared(program, real)
    recorded = [list(row.values()) for row in step_traces.read() if row["trace"] == program.trace]
    assert again == recorded, "python -m tests.fidelity.step_traces"


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.what}, {row.machine}") for row in rows() if row.quick])
def test_the_recorded_result_is_what_the_simulation_says(row: Row) -> None:
    assert float(f"{row.ours():.5g}") == FOUND[row.what, row.machine], "python -m tests.fidelity.results --write"


SAMPLE = (
    "training of ResNet50, AMP, NCHW, batch 224",
    "inference of VGG16, AMP, NHWC, batch 1024",
    "inference of Transformer-XL, FP16, 1×64, latency",
    "TD3 of CleanRL, HalfCheetah",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "row", [pytest.param(row, id=f"{row.what}, {row.machine}") for row in rows() if row.what in SAMPLE]
)
def test_the_recorded_result_of_a_program_is_what_the_simulation_says(row: Row) -> None:
    assert row.ours() == pytest.approx(FOUND[row.what, row.machine], rel=1e-3)


def test_the_page_tells_the_errors() -> None:
    assert set(FOUND) == {(row.what, row.machine) for row in rows()}
    assert results.page_with(results.summary(FOUND)) == PAGE.read_text("utf-8")


def test_rows_that_are_not_comparable_are_few_and_say_why_on_the_page() -> None:
    apart = [row for row in rows() if row.apart]
    assert len(apart) <= len(rows()) / 20
    counted = sum(len(errors) for held in (False, True) for errors in results.errors(FOUND, held_out=held).values())
    assert counted == len(rows()) - len(apart)
    page = PAGE.read_text("utf-8")
    for row in apart:
        told = next(text for text in page.splitlines() if text.startswith(f"| {row.what} | {row.machine} |"))
        assert told.endswith(f"| {row.apart} |")


def test_half_of_each_category_is_close() -> None:
    for category, errors in results.errors(FOUND, held_out=False).items():
        assert median(errors) <= (0.25 if category == HOST else 0.1), category


EXPLAINED = {
    ("training of BERT-large, FP16, SQuAD, batch 64", "rtx-6000-ada"),
    ("BERT-large, DDP on 2 GPUs, FP16, SQuAD, batch 2×28", "rtx4090:2"),
    ("all-reduce on 2 GPUs, 1 GiB", "h100-pcie:2"),
}
"""The rows that docs/fidelity.md lists: known, and more than 25% off."""


def test_no_other_known_row_is_far_off() -> None:
    far = {
        (row.what, row.machine)
        for row in rows()
        if not (row.held_out or row.apart or row.category == HOST)
        and error(FOUND[row.what, row.machine], row.real) > 0.25
    }
    assert far <= EXPLAINED


def kind_of_kernel(row: Row) -> str:
    """Which of `TYPICAL` a row tells of; whole steps tell of what they mostly consist of."""
    if row.category in ("Training", "Inference"):
        return "attention" if re.search("BERT|ViT", row.what) else "convolutions"
    kinds = {
        "Matrix products": "products",
        "Memory bandwidth": "kernels",
        "Transfers": "copies",
        "Collectives": "collectives",
    }
    return kinds.get(row.category, "")


@pytest.mark.parametrize("kind", TYPICAL)
def test_two_thirds_of_those_set_aside_are_as_close_as_summaries_say(kind: str) -> None:
    errors = [
        abs(FOUND[row.what, row.machine] / row.real - 1)
        for row in rows()
        if kind_of_kernel(row) == kind and row.held_out and not row.apart
    ]
    close = sum(error <= TYPICAL[kind] / 100 for error in errors) / len(errors)
    tighter = sum(error <= (TYPICAL[kind] - 5) / 100 for error in errors) / len(errors)
    assert tighter < 2 / 3 <= close


def test_the_recorded_results_are_renewed(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results.csv")  # type: ignore[operator]
    results.write(FOUND)
    assert results.read() == FOUND


def test_the_hosts_times_in_traces_are_set_aside_by_trace(tmp_path: Path) -> None:
    with host_traces.FILE.open(encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert {row["trace"] for row in found} == set(host_traces.TRACES)
    for row in found:
        assert (row["held_out"] == "yes") == host_traces.set_aside(row["trace"])
        assert float(row["first quartile"]) <= float(row["median"]) <= float(row["third quartile"])

    ops = [("aten::linear", start, 40.0) for start in range(0, 600, 50)]  # each calls addmm, 30 µs; gaps of 10 µs
    ops += [("aten::addmm", start + 5, 30.0) for start in range(0, 600, 50)]
    ops += [("aten::add", start + 1000, 5.0) for start in range(0, 1000, 10)]
    events = [{"ph": "X", "cat": "cpu_op", "tid": 1, "name": name, "ts": ts, "dur": dur} for name, ts, dur in ops]
    (tmp_path / "one.json.gz").write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    told = {row[4]: row for row in host_traces.rows(host_traces.TRACES[0], tmp_path / "one.json.gz")}
    assert told["aten::linear"][5:] == ["12", "40.0", "40.0", "40.0", "10.0"]
    assert told["aten::addmm, called by an op"][9] == "30.0"
    assert told["gap to the next op"][7] == "5.0"
