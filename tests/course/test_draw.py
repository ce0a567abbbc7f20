"""Drawings for lessons: what they show is computed, and said in words."""

from __future__ import annotations

import doctest
import importlib
import itertools
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fakegpu_lab as lab
from fakegpu_lab.course.draw.ranks import ring_steps
from fakegpu_lab.course.draw.timelines import schedule
from fakegpu_lab.hardware import memory_categories
from fakegpu_lab.hardware.memory_categories import COLOURS

if TYPE_CHECKING:
    from pathlib import Path

ALL = {
    "ring": lambda: lab.draw.ring(4),
    "eight in rows": lambda: lab.draw.ring(8),
    "one step": lambda: lab.draw.ring(3, after=2),
    "pipeline": lambda: lab.draw.pipeline(4, 8),
    "streams": lambda: lab.draw.streams(
        {"copies": [("batch", 0, 2)], "compute": [("<step>", 2, 5)]}, [("copies", 2, "compute", 2)]
    ),
    "bar": lambda: lab.draw.memory_bar({"parameters": 2**30, "my own": 2**20}, 8 * 2**30),
    "rows": lambda: lab.draw.shards((10, 4), 4),
    "roofline": lambda: lab.draw.roofline(
        {"add": (1e7, 1.2e8, 80e-6), "@": (2e9, 1.3e7, 159e-6)}, peak=19.5e12, bandwidth=2e12
    ),
    "columns": lambda: lab.draw.shards((10, 4), 4, dim=1),
}


@pytest.mark.parametrize("name", ALL)
def test_a_drawing_is_svg_with_its_words_in_colours_of_the_page(name: str, tmp_path: Path) -> None:
    drawn = ALL[name]()
    root = ET.fromstring(drawn._repr_html_())
    assert root.get("aria-label") == str(drawn) != ""
    assert root.get("role") == "img"
    assert "var(--jp-ui-font-color1" in drawn._repr_html_()
    _, _, width, height = map(float, root.get("viewBox", "").split())
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        x, y, wide, high = (float(box.get(key, "nan")) for key in ("x", "y", "width", "height"))
        assert -0.1 <= x <= x + wide <= width + 0.1
        assert -0.1 <= y <= y + high <= height + 0.1
    page = drawn.save(tmp_path / "drawing.svg").read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in page
    ET.fromstring(page)


SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", ALL)
def test_text_can_be_read_on_a_narrow_page(name: str) -> None:
    """A page of 600 pixels leaves 484 for a drawing; what is smaller than 9 of them is hard to read."""
    root = ET.fromstring(ALL[name]()._repr_html_())
    width = float(root.get("viewBox", "").split()[2])
    assert min(float(text.get("font-size", "nan")) for text in root.iter(f"{SVG}text")) * min(1, 484 / width) >= 9


def test_a_key_that_is_wider_than_the_drawing_goes_on_below() -> None:
    drawn = lab.draw.memory_bar(dict.fromkeys(memory_categories.NAMES, 2**30), 80 * 2**30)
    root = ET.fromstring(drawn._repr_html_())
    _, _, width, height = map(float, root.get("viewBox", "").split())
    texts = list(root.iter(f"{SVG}text"))
    assert len(texts) == 1 + len(memory_categories.NAMES)
    for text in texts:
        x, y, words = float(text.get("x", "nan")), float(text.get("y", "nan")), text.text or ""
        assert (x if text.get("text-anchor") == "end" else x + 6 * len(words)) <= width, words
        assert y < height


def test_times_on_the_axis_are_round_and_reach_the_end() -> None:
    root = ET.fromstring(lab.draw.streams({"copies": [("batch", 0, 2)], "compute": [("step", 2, 5)]})._repr_html_())
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts[-7:-1] == ["0", "1", "2", "3", "4", "5"]


def test_the_parts_of_a_memory_bar_have_colours_of_their_own() -> None:
    drawn = lab.draw.memory_bar({"parameters": 1, "optimizer state": 1, "gradients": 1, "mine": 1, "yours": 1})
    boxes = ET.fromstring(drawn._repr_html_()).iter("{http://www.w3.org/2000/svg}rect")
    colours = [box.get("fill") for box in list(boxes)[1:6]]
    assert len(set(colours)) == 5
    assert colours[:2] == [COLOURS["parameters"], COLOURS["optimizer_state"]]


def test_a_roofline_says_how_near_a_kernel_is_to_what_the_card_can_do() -> None:
    kernels = {"streams": (1e9, 1e9, 1e-3), "computes": (1e12, 1e9, 0.2)}
    words = str(lab.draw.roofline(kernels, peak=10e12, bandwidth=2e12))
    assert "streams does 1 FLOP/byte at 1 TFLOP/s (50% of the roof)" in words  # 2 TFLOP/s by the bandwidth
    assert "computes does 1,000 FLOP/byte at 5 TFLOP/s (50% of the roof)" in words  # 10 TFLOP/s
    with pytest.raises(lab.FakeGpuError, match=r"above 0; 'copy' has one that is not"):
        lab.draw.roofline({"copy": (0, 1e9, 1e-3)}, peak=1e12, bandwidth=1e12)


@given(st.integers(2, 8))
def test_after_a_ring_all_reduce_every_rank_has_the_sum_of_all(ranks: int) -> None:
    steps = ring_steps(ranks)
    assert len(steps) == 1 + 2 * (ranks - 1)
    assert steps[-1][0] == [[ranks] * ranks] * ranks
    middle = steps[ranks - 1][0]  # after the reduce-scatter, each rank has one chunk whole
    assert [chunks.count(ranks) for chunks in middle] == [1] * ranks


@pytest.mark.parametrize("ranks", range(2, 9))
def test_no_two_ranks_of_a_ring_are_drawn_over_each_other(ranks: int) -> None:
    root = ET.fromstring(lab.draw.ring(ranks, after=1)._repr_html_())
    boxes = {}  # of each rank's parts: left, top, right, bottom
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        rank = box.findtext("{http://www.w3.org/2000/svg}title", "").split(",")[0]
        x, y, width, height = (float(box.get(name)) for name in ("x", "y", "width", "height"))
        left, top, right, bottom = boxes.get(rank, (x, y, x, y))
        boxes[rank] = (min(left, x), min(top, y), max(right, x + width), max(bottom, y + height))
    assert set(boxes) == {f"rank {rank}" for rank in range(ranks)}
    for (left, top, right, bottom), (left2, top2, right2, bottom2) in itertools.combinations(boxes.values(), 2):
        assert right < left2 or right2 < left or bottom < top2 or bottom2 < top


def test_a_memory_bar_marks_where_the_memory_ends_if_its_parts_do_not_fit() -> None:
    drawn = lab.draw.memory_bar({"parameters": 60 * 2**30, "gradients": 40 * 2**30}, 80 * 2**30)
    assert str(drawn).endswith("20.0 GiB do not fit.")
    root = ET.fromstring(drawn._repr_html_())
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "80.00 GiB in all" in texts
    assert "20.0 GiB too many" in texts
    [end] = root.iter("{http://www.w3.org/2000/svg}line")
    whole = next(root.iter("{http://www.w3.org/2000/svg}rect"))
    share = (float(end.get("x1")) - float(whole.get("x"))) / float(whole.get("width"))
    assert share == pytest.approx(0.8, abs=0.01)


@given(st.integers(1, 6), st.integers(1, 12), st.sampled_from(["gpipe", "1f1b"]), st.sampled_from([1.0, 2.0]))
def test_a_pipeline_idles_as_the_papers_say(stages: int, microbatches: int, kind: str, backward: float) -> None:
    placed = schedule(stages, microbatches, kind, backward)
    whole = max(end for row in placed for *_, end in row)
    assert whole == pytest.approx((microbatches + stages - 1) * (1 + backward))
    for row in placed:
        assert len(row) == 2 * microbatches
        assert all(before[4] <= after[3] for before, after in itertools.pairwise(row))
    if kind == "1f1b":
        for stage, row in enumerate(placed):
            held = most = 0
            for what, *_ in row:
                held += 1 if what == "F" else -1
                most = max(most, held)
            assert most <= stages - stage


@given(st.integers(1, 6), st.integers(1, 4))
def test_smaller_bubbles_are_as_small_as_the_papers_say(stages: int, rounds: int) -> None:
    """Two parts in each stage halve the bubble; gradients of weights that wait leave a third of it (where all parts
    of a step take as long as a forward).
    """
    microbatches = rounds * stages
    for kind, bubble in (("1f1b", 3.0), ("interleaved", 1.5), ("zero-bubble", 1.0)):
        placed = schedule(stages, microbatches, kind, 2.0)
        assert max(end for row in placed for *_, end in row) == pytest.approx(3 * microbatches + bubble * (stages - 1))
        for stage, row in enumerate(placed):
            done = [one[:3] for one in row]
            assert (
                len(done)
                == len(set(done))
                == (2 if kind == "1f1b" else 4 if kind == "interleaved" else 3) * microbatches
            )
            held = most = 0
            for what, *_ in row:
                held += (what == "F") - (what == ("W" if kind == "zero-bubble" else "B"))
                most = max(most, held)
            if kind == "zero-bubble":
                assert most <= stages, f"stage {stage} holds no more than stage 0 of 1F1B"


@given(st.integers(1, 40), st.integers(1, 16))
def test_shards_are_torch_s_chunks(rows: int, ranks: int) -> None:
    said = str(lab.draw.shards((rows, 3), ranks))
    sizes = [int(number) for number in re.findall(r"has (\d+)×3", said)]
    assert sizes == [len(chunk) for chunk in torch.zeros(rows, 3).chunk(ranks)]


def test_the_allocator_is_drawn_as_it_is() -> None:
    lab.enable("a100", compute="meta")
    try:
        kept = torch.zeros(2**20, device="cuda")
        gone = torch.zeros(2**21, device="cuda")
        del gone
        drawn = lab.draw.allocator()
        assert "1 segment of 20.0 MiB in all, 4.00 MiB of it in tensors." in str(drawn)
        assert "tensor 4.00 MiB, free 16.0 MiB" in str(drawn)
        assert kept.numel() == 2**20
    finally:
        lab.disable()


def test_a_segment_is_drawn_with_its_gpu_and_those_that_are_not_drawn_are_counted() -> None:
    def segment(device: int, mib: int) -> dict[str, object]:
        block = {"size": mib * 2**20, "state": "active_allocated"}
        return {"device": device, "total_size": mib * 2**20, "blocks": [block]}

    drawn = lab.draw.allocator([segment(0, 2), segment(1, 20), segment(0, 4), segment(0, 2)], most=2)
    texts = [text.text for text in ET.fromstring(drawn._repr_html_()).iter(f"{SVG}text")]
    rest = "2 of 4 segments, the largest; the others hold 4.00 MiB."
    assert {"cuda:1, segment 1", "cuda:0, segment 2", rest} <= set(texts)
    assert str(drawn).endswith(rest)
    alone = lab.draw.allocator([segment(1, 2)])
    assert next(text.text for text in ET.fromstring(alone._repr_html_()).iter(f"{SVG}text")) == "segment 1"
    assert "the others" not in str(alone)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: lab.draw.ring(1), "2 to 8 ranks"),
        (lambda: lab.draw.ring(4, after=9), "the ring has 6 steps"),
        (lambda: lab.draw.pipeline(0, 1), "1 to 16 stages"),
        (lambda: lab.draw.pipeline(kind="zero"), "'1f1b', 'interleaved' or 'zero-bubble'"),
        (lambda: lab.draw.pipeline(4, 6, "interleaved"), "a multiple of 4, such as 8"),
        (lambda: lab.draw.shards((3,), 2), "a shape of two numbers"),
        (lambda: lab.draw.streams({"a": []}, [("a", 0, "b", 1)]), "'b', which is not among a"),
        (lambda: lab.draw.memory_bar({"a": -1}), "0 bytes or more"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_sentence(call: object, sentence: str) -> None:
    with pytest.raises(lab.FakeGpuError, match=sentence) as caught:
        call()  # type: ignore[operator]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["memory", "ranks", "timelines"])
def test_the_examples_are_true(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"fakegpu_lab.course.draw.{name}"))
    assert (failed, tried > 0) == (0, True)


def test_in_a_memory_bar_no_two_parts_have_a_colour_in_common_and_the_rest_is_named() -> None:
    parts = {"optimizer state": 4e9, "parameters": 2e9, "buffers": 1e9, "inputs": 1e9}
    root = ET.fromstring(lab.draw.memory_bar(parts, total=80e9)._repr_html_())
    boxes = [box for box in root.iter("{http://www.w3.org/2000/svg}rect") if box.get("height") == "28.0"]
    colours = [box.get("fill") for box in boxes[1:]]
    assert len(set(colours)) == len(parts)
    assert colours[:2] == [memory_categories.COLOURS["optimizer_state"], memory_categories.COLOURS["parameters"]]
    assert "free: 67.1 GiB" in "".join(root.itertext())
