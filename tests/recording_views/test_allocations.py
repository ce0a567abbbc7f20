"""The allocations as records: what made the peak, for what, at which line."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import fakegpu_lab as lab
from fakegpu_lab.driver.memory_report import categories
from fakegpu_lab.recording_views.allocations import Allocations, allocations
from fakegpu_lab.session import machine as enabled

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def planned() -> Iterator[None]:
    lab.enable("a100", compute="meta")
    yield
    lab.disable()


class Block(nn.Module):
    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(x)))


def train(*, checkpointed: bool = False, steps: int = 2) -> lab.Trace:
    model = nn.ModuleList(Block() for _ in range(4)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    torch.cuda.reset_peak_memory_stats()
    with lab.record() as trace:
        for _ in range(steps):
            x = torch.ones(2048, 256).to("cuda")
            for block in model:
                x = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
            optimizer.zero_grad()
            x.square().mean().backward()
            optimizer.step()
    return trace


def at_peak(found: Allocations) -> Counter[str]:
    sums: Counter[str] = Counter()
    for tensor in found.tensors:
        if tensor.at_peak:
            sums[tensor.category] += tensor.nbytes
    return sums


def test_the_peak_is_the_allocator_s_and_its_tensors_add_up_to_it() -> None:
    found = allocations(train())
    assert found.peak == max(found.heights) == torch.cuda.max_memory_allocated()
    sums = at_peak(found)
    assert sums.total() == found.peak
    parameters = 4 * 4 * (2 * 4 * 256 * 256 + 5 * 256)
    assert sums["parameters"] == parameters
    assert sums["optimizer_state"] >= 2 * parameters
    assert sums["activations"] > found.peak / 3
    assert sums["inputs"] == 2048 * 256 * 4


def test_what_came_from_the_host_has_a_shape_and_says_whence() -> None:
    found = allocations(train(steps=1))
    (batch,) = [tensor for tensor in found.tensors if tensor.category == "inputs"]
    assert (batch.shape, batch.dtype, batch.op) == ((2048, 256), "float32", "copy from the host")


def test_what_is_left_has_the_categories_of_the_panel() -> None:
    with lab.record() as trace:
        model = nn.Sequential(Block(), Block()).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        loss = model(torch.ones(2048, 256).to("cuda")).square().mean()
        loss.backward()
        optimizer.step()
    (now,) = categories.by_category(enabled()).values()
    sums: Counter[str] = Counter()
    for tensor in allocations(trace).tensors:
        if not tensor.freed:
            sums[tensor.category] += tensor.nbytes
    known = now.model_dump()
    assert sums.total() == now.total
    for name in ("parameters", "gradients", "optimizer_state", "workspace"):
        assert sums[name] == known[name], name


def test_a_model_that_is_gone_leaves_its_categories() -> None:
    with lab.record() as trace:
        train()
    sums = at_peak(allocations(trace))
    assert sums["parameters"] > 0
    assert sums["optimizer_state"] >= 2 * sums["parameters"]


def test_a_tensor_tells_its_line_first_then_who_called() -> None:
    found = allocations(train())
    grown = next(tensor for tensor in found.tensors if tensor.op == "aten::gelu")
    assert grown.shape == (2048, 1024)
    assert grown.dtype == "float32"
    assert grown.nbytes == 2048 * 1024 * 4
    assert grown.phase == "forward"
    assert grown.module == "Block"
    mine, caller, *_ = grown.stack
    assert mine.text == "return x + self.down(nn.functional.gelu(self.up(x)))"
    assert mine.function == "forward"
    assert caller.function == "train"
    assert caller.line.rpartition(":")[0].endswith("test_allocations.py")


def test_checkpointing_keeps_less_and_recomputes_activations() -> None:
    plain, frugal = (allocations(train(checkpointed=checkpointed)) for checkpointed in (False, True))
    assert at_peak(frugal)["activations"] < 0.6 * at_peak(plain)["activations"]
    again = [t for t in frugal.tensors if t.op == "aten::gelu" and t.phase == "backward"]
    assert len(again) == 2 * 4
    assert {tensor.category for tensor in again} == {"activations"}


def test_regions_name_phases_and_modules() -> None:
    found = allocations(train())
    assert [region.name for region in found.phases] == ["forward", "backward", "optimizer"] * 2
    assert {region.name for region in found.modules} == {"Block"}
    for region, after in zip(found.phases, found.phases[1:], strict=False):
        assert region.first < region.last <= after.first
    assert found.phases[0].last - 1 <= found.peak_step


def test_it_is_json_with_a_schema() -> None:
    found = allocations(train(steps=1))
    assert Allocations.model_validate_json(found.model_dump_json()) == found
    described = Allocations.model_json_schema()["$defs"]["Tensor"]["properties"]
    assert described["category"]["description"]


def test_the_table_says_what_made_the_peak() -> None:
    trace = train()
    table = trace.at_peak(top=3)
    assert table.title.startswith("Peak of cuda:0: ")
    assert "in backward" in table.title
    first = dict(zip(table.headers, table.rows[0], strict=True))
    assert first["category"] == "activations"
    assert first["tensors"] == "4"
    assert first["shape"] == "2048×1024 float32"
    assert "return x + self.down" in first["line"]
    assert len(table.rows) == 4
    assert table.rows[-1][3] == "others"
    with pytest.raises(lab.FakeGpuError, match="no device 7"):
        trace.at_peak(7)


def outlines(figure: Any) -> list[Any]:
    return [trace for trace in figure.data if trace.type == "scatter" and trace.fill == "toself"]


def test_in_the_figure_bands_lie_on_each_other_up_to_the_peak() -> None:
    trace = train()
    found, figure = trace.memory(), trace.memory_figure()
    for step in (found.peak_step, found.steps):
        covered = sorted(
            (low, high) for band in outlines(figure) if (edges := at(band, step)) is not None for low, high in [edges]
        )
        assert covered[0][0] == 0
        assert all(one[1] == after[0] for one, after in itertools.pairwise(covered))
        assert covered[-1][1] == found.heights[step]
    assert max(max(band.y) for band in outlines(figure)) == found.peak


def at(band: Any, step: int) -> tuple[int, int] | None:
    """The lower and the upper edge of a band at a step."""
    half = len(band.x) // 2
    for start, end, top, bottom in zip(
        band.x[:half:2], band.x[1:half:2], band.y[:half:2], list(reversed(band.y[half:]))[::2], strict=True
    ):
        if start <= step < end:
            return bottom, top
    return None


def test_a_band_says_size_shape_line_and_what_it_is_for() -> None:
    text = next(band.text for band in outlines(train(steps=1).memory_figure()) if "aten::gelu" in band.text)
    lines = text.split("<br>")
    assert lines[0] == "<b>8.00 MiB</b>, 2048×1024 float32"
    assert "return x + self.down" in lines[1], "the user's line first"
    assert lines[2].startswith("called from ")
    assert "activations, made in forward by aten::gelu of Block" in lines


def test_two_recordings_are_drawn_to_one_scale() -> None:
    plain, frugal = train(), train(checkpointed=True)
    figure = plain.memory_figure(against=frugal, labels=("plain", "checkpointed"))
    assert figure.layout.yaxis.range == figure.layout.yaxis3.range
    assert figure.layout.xaxis.title.text == "plain: allocations and frees, in order"
    assert figure.layout.xaxis2.title.text == "checkpointed: allocations and frees, in order"
    peaks = [trace.text[1] for trace in figure.data if trace.name == "peak"]
    assert len(set(peaks)) == 2


def test_a_long_recording_has_a_figure_of_bounded_size_with_its_peak() -> None:
    a = torch.zeros(64, device="cuda")
    with lab.record() as trace:
        for _ in range(3000):
            a + 1
        high = torch.zeros(2**20, device="cuda")
        del high
        for _ in range(3000):
            a + 1
    figure = trace.memory_figure()
    assert max(max(band.y) for band in outlines(figure)) == trace.peak_memory()
    assert len(figure.to_json()) < 2_000_000


def test_an_empty_recording_has_a_figure_of_its_allocations() -> None:
    with lab.record() as trace:
        pass
    assert trace.memory_figure().data is not None
    assert "held most at the beginning: 0" in trace.at_peak().title


def test_the_names_on_its_bars_are_plotly_s_own_dark_or_light() -> None:
    trace = train(steps=1)
    assert "fakegpu-faint" not in trace.memory_figure().above()
    assert "fakegpu-faint" in trace.figure().above(), "there the page shows through the phases"
