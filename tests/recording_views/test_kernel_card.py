"""The card of a kernel: its figures, its lines, its drawings and what they say in words."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import numpy as np
import pytest

from fakegpu_lab.hardware.catalogue.lookup import gpu
from fakegpu_lab.hardware.kernel_model.accesses import AccessLog
from fakegpu_lab.hardware.kernel_model.launch_time import launch_time
from fakegpu_lab.hardware.kernel_model.occupancy import occupancy
from fakegpu_lab.recording_views.kernel_card.card import KernelCard

LANES = np.arange(32)


def card(log: AccessLog, grid: int = 1, threads: int = 256) -> KernelCard:
    profile = gpu("a100")
    full = occupancy(profile, threads)
    access = replace(log.summary(), grid=(grid,), threads=threads, occupancy=full)
    time = launch_time(profile, access, full)
    return KernelCard("kernel", replace(access, time=time), profile, time.ns)


def words(shown: KernelCard, title: str) -> str:
    return next(drawing.words for heading, drawing in shown.drawings if heading.startswith(title))


@pytest.mark.parametrize(("stride", "sectors", "used"), [(1, 4, 100), (2, 8, 50), (8, 32, 12)])
def test_the_drawing_of_a_request_shows_what_was_moved_for_nothing(stride, sectors, used):
    log = AccessLog()
    log.add("load", "global", 4 * stride * LANES[None], 4, ("kernel.py", 3))
    shown = card(log)
    assert f"touches {sectors} sectors of 32 bytes: {used}% of what is moved" in words(shown, "Threads and sectors")
    assert str(shown).count("kernel.py:3") == 2


def test_the_drawing_of_banks_shows_a_conflict():
    log = AccessLog()
    log.add("load", "shared", 4 * 32 * LANES[None], 4, ("kernel.py", 4))
    shown = card(log)
    assert words(shown, "Banks") == (
        "A request to shared memory uses 1 bank of 32; the busiest has to deliver 32 words, one per cycle: 32 cycles."
    )
    assert "31 cycles lost in bank conflicts" in str(shown)


def test_a_word_that_all_lanes_read_is_no_conflict():
    log = AccessLog()
    log.add("load", "shared", np.zeros((1, 32), np.int64), 4, ("kernel.py", 4))
    assert "the busiest has to deliver 1 word" in words(card(log), "Banks")


def test_the_roofline_says_what_limits_the_kernel():
    log = AccessLog()
    log.add("load", "global", 4 * np.arange(1 << 20).reshape(-1, 32), 4)
    log.flops(1 << 20)
    assert "memory allows 510 GFLOP/s at 0.25 FLOPs a byte. The kernel gets 11.0 GFLOP/s, 2.2% of it." in words(
        card(log), "Roofline"
    )
    without = AccessLog()
    without.add("load", "global", 4 * LANES[None], 4)
    assert not any(heading == "Roofline" for heading, _ in card(without).drawings)


def test_a_kernel_above_the_roof_found_its_data_in_l2():
    log = AccessLog()
    log.add("load", "global", 4 * np.arange(1 << 22).reshape(-1, 32), 4)
    log.flops(1 << 22)
    assert words(card(log, grid=2**12), "Roofline").endswith("% of it: L2 is faster than DRAM.")


def test_what_is_not_counted_is_not_shown_as_none():
    log = AccessLog()
    log.add("load", "global", 4 * LANES[None], 4)
    profile = gpu("a100")
    full = occupancy(profile, 128, 32, 4096)
    access = replace(log.summary(), threads=128, registers=32, shared_bytes=4096, shared_counted=False, occupancy=full)
    assert access.bank_conflicts is None
    shown = str(KernelCard("k", replace(access, time=launch_time(profile, access, full)), profile, 2000))
    assert re.search(r"shared memory +not counted +Triton's compiler decides", shown)
    assert re.search(r"32  registers per thread", shown)
    assert re.search(r"not counted  registers per thread", str(card(log)))


def test_the_blocks_are_told_by_waves():
    log = AccessLog()
    log.add("load", "global", 4 * LANES[None], 4)
    said = words(card(log, grid=2 * 864 + 54), "Blocks")
    assert said == (
        "2 full waves of 864 blocks, and 54 blocks in the last wave, which fill 7% of the card's block slots. A "
        "multiprocessor holds 8 blocks (64 of 64 warps)."
    )


def test_in_a_notebook_every_drawing_has_its_words():
    log = AccessLog()
    log.add("load", "global", 4 * LANES[None], 4, ("kernel.py", 3))
    log.add("load", "shared", 4 * LANES[None], 4, ("kernel.py", 4))
    log.flops(64)
    shown = card(log)
    page = shown._repr_html_()
    assert page.count("<svg") == page.count('role="img"') == len(shown.drawings) == 4
    assert all(html.escape(drawing.words) in page for _, drawing in shown.drawings)
