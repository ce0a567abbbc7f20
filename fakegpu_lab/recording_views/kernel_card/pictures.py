"""Drawings of a kernel's access to memory, of its place under the roofline, and of its blocks on the card."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fakegpu_lab.formatting.drawing import MUTED, PALETTE, Drawing, legend
from fakegpu_lab.formatting.units import amount, several

if TYPE_CHECKING:
    from fakegpu_lab.hardware.catalogue.profile import GpuProfile
    from fakegpu_lab.hardware.time.access import Access, LineAccess

_WIDTH, _MARGIN = 760.0, 12.0
_USED, _WASTED, _LATE = PALETTE[0], PALETTE[1], PALETTE[5]
SECTOR, BANK, BANKS, WARP = 32, 4, 32, 32


def sectors(line: LineAccess) -> Drawing:
    """The lanes of one request above, the 32-byte sectors that it touches below, and which lane needs which.

    A sector is filled as far as its bytes were requested: what stays light was moved for nothing.
    """
    wanted: dict[int, set[int]] = {}
    for address in line.example:
        for byte in range(address, address + line.itemsize) if address >= 0 else ():
            wanted.setdefault(byte // SECTOR, set()).add(byte)
    touched = sorted(wanted)
    active = sum(address >= 0 for address in line.example)
    asked = sum(len(found) for found in wanted.values())
    drawn = Drawing(_WIDTH, 132)
    step = (_WIDTH - 2 * _MARGIN) / WARP
    width = min(step * 4, (_WIDTH - 2 * _MARGIN) / max(len(touched), 1))
    left = (_WIDTH - width * len(touched)) / 2
    place = {sector: left + width * number for number, sector in enumerate(touched)}
    for lane, address in enumerate(line.example):
        x = _MARGIN + step * lane
        drawn.rect(x, 8, step - 2, 20, _USED, opacity=0.85 if address >= 0 else 0.1, hint=f"lane {lane}")
        if address >= 0:
            within = (address % SECTOR + line.itemsize / 2) / SECTOR
            drawn.thin((x + step / 2 - 1, 28), (place[address // SECTOR] + width * within, 78))
    for sector in touched:
        drawn.rect(place[sector], 78, width - 2, 20, _WASTED, opacity=0.6, hint=f"sector at {sector * SECTOR:#x}")
        for first, count in _runs(wanted[sector]):
            x = place[sector] + (width - 2) * (first % SECTOR) / SECTOR
            drawn.fill(x, 78, (width - 2) * count / SECTOR, 20, _USED)
    wasted = [("moved for nothing", _WASTED)] if asked < SECTOR * len(touched) else []
    legend(drawn, _MARGIN, 122, [("requested", _USED), *wasted])
    rows = "above: the lanes of a warp; below: sectors of memory"
    drawn.text(_WIDTH - _MARGIN, 122, rows, anchor="end", colour=MUTED, px=11)
    kind = {"load": "reads", "store": "writes", "atomic": "updates"}[line.kind]
    drawn.words = (
        f"A request {kind} {asked} bytes with {several(active, 'lane')}, and touches {several(len(touched), 'sector')} "
        f"of 32 bytes: {round(100 * asked / (SECTOR * max(len(touched), 1)))}% of what is moved was requested."
    )
    return drawn


def _runs(numbers: set[int]) -> list[tuple[int, int]]:
    """Neighbouring numbers as (first, count)."""
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and number == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((number, 1))
    return runs


def banks(line: LineAccess) -> Drawing:
    """The 32 banks of shared memory, and above each the words that one request needs of it, one after the other."""
    words: dict[int, set[int]] = {}
    for address in line.example:
        if address >= 0:
            for word in range(address // BANK, (address + max(line.itemsize, BANK)) // BANK):
                words.setdefault(word % BANKS, set()).add(word)
    ways = max((len(found) for found in words.values()), default=0)
    row = min(14.0, 112 / max(ways, 1))
    drawn = Drawing(_WIDTH, ways * row + 62)
    step = (_WIDTH - 2 * _MARGIN) / BANKS
    base = ways * row + 10
    for bank in range(BANKS):
        x = _MARGIN + step * bank
        for number in range(len(words.get(bank, ()))):
            drawn.rect(x, base - row * (number + 1), step - 2, row - 1, _USED if not number else _LATE, opacity=0.85,
                       hint=f"bank {bank}, cycle {number + 1}")  # fmt: skip
        drawn.rect(x, base, step - 2, 16, "#9a9a9a", opacity=0.2, hint=f"bank {bank}")
        drawn.text(x + step / 2 - 1, base + 12, str(bank), anchor="middle", px=9)
    legend(drawn, _MARGIN, base + 40, [("first cycle", _USED), *([("one after another", _LATE)] if ways > 1 else [])])
    used = len(words)
    drawn.words = (
        f"A request to shared memory uses {several(used, 'bank')} of 32; the busiest has to "
        f"deliver {several(ways, 'word')}, one per cycle: {several(ways, 'cycle')}."
    )
    return drawn


def roofline(access: Access, profile: GpuProfile, ns: int) -> Drawing:
    """The card's roofline for the kernel's number format, and the kernel on it, which moves bytes and computes."""
    fmt = _format(access)
    peak, bandwidth = profile.peak(fmt), float(profile.memory_bandwidth)
    ridge = peak / bandwidth
    intensity, rate = access.intensity, access.flops / ns * 1e9
    xs = min(0.05, intensity / 4), max(ridge * 20, intensity * 4)
    ys = min(peak / 1e4, rate / 4), peak * 3
    left, top, right, bottom = 84.0, 12.0, _WIDTH - 16, 208.0
    drawn = Drawing(_WIDTH, 252)

    def at(x: float, y: float) -> tuple[float, float]:
        across = math.log(x / xs[0]) / math.log(xs[1] / xs[0])
        up = math.log(y / ys[0]) / math.log(ys[1] / ys[0])
        return left + (right - left) * min(max(across, 0), 1), bottom - (bottom - top) * min(max(up, 0), 1)

    drawn.line((left, bottom), (right, bottom))
    drawn.line((left, top), (left, bottom))
    for power in range(math.ceil(math.log10(xs[0])), math.floor(math.log10(xs[1])) + 1):
        drawn.text(at(10.0**power, ys[0])[0], bottom + 15, f"{10.0**power:g}", anchor="middle", px=11)
    for power in range(math.ceil(math.log10(ys[0])), math.floor(math.log10(ys[1])) + 1):
        drawn.text(left - 6, at(xs[0], 10.0**power)[1] + 4, amount(10.0**power, "FLOP/s"), anchor="end", px=10)
    start = max(xs[0], ys[0] / bandwidth)
    drawn.line(at(start, start * bandwidth), at(ridge, peak))
    drawn.line(at(ridge, peak), at(xs[1], peak))
    drawn.text(at(ridge, peak)[0] + 6, at(ridge, peak)[1] - 6, f"{fmt} peak {amount(peak, 'FLOP/s')}", px=11)
    drawn.text((left + right) / 2, bottom + 36, "FLOPs for each byte of DRAM", anchor="middle", colour=MUTED, px=11)
    known = f"{amount(bandwidth, 'B/s')} of DRAM, {amount(peak, 'FLOP/s')} of {fmt}"
    x, y = at(intensity, rate)
    roof = min(peak, intensity * bandwidth)
    drawn.line((x, y), at(intensity, roof), dashed=True)
    drawn.dot(x, y, _LATE, f"{intensity:.3g} FLOPs a byte, {amount(rate, 'FLOP/s')}")
    limit = "memory" if intensity < ridge else "arithmetic"
    part = f"{100 * rate / roof:.2g}" if rate < roof / 10 else f"{100 * rate / roof:.0f}"
    drawn.words = (
        f"With {known}, {limit} allows {amount(roof, 'FLOP/s')} at {intensity:.3g} FLOPs a byte. The kernel gets "
        f"{amount(rate, 'FLOP/s')}, {part}% of it" + (": L2 is faster than DRAM." if rate > roof else ".")
    )
    return drawn


def _format(access: Access) -> str:
    """The format that most of the arithmetic is in, by its name in a profile."""
    counted = access.flops_by_format or {("fp32", False): 0.0}
    fmt, tensor = max(counted, key=lambda key: counted[key])
    return fmt if tensor or fmt == "fp64" else "fp32"


def waves(access: Access, sm_count: int) -> Drawing:
    """The multiprocessors of the card, wave by wave: how many of the blocks they hold are there."""
    time, occupancy = access.time, access.occupancy
    assert time is not None
    assert occupancy is not None
    rows = [*[time.resident] * min(time.waves, 3), *([time.tail] if time.tail else [])]
    step = (_WIDTH - 2 * _MARGIN - 96) / sm_count
    drawn = Drawing(_WIDTH, 24 * len(rows) + 34)
    for number, blocks in enumerate(rows):
        y = 8.0 + 24 * number
        name = "the last" if time.tail and number == len(rows) - 1 else f"wave {number + 1}"
        drawn.text(_MARGIN + 88, y + 14, name if len(rows) > 1 or time.waves else "one wave", anchor="end", px=11)
        for sm in range(sm_count):
            held = blocks // sm_count + (sm < blocks % sm_count)
            full = held / max(occupancy.blocks, 1)
            hint = f"multiprocessor {sm}: {several(held, 'block')} of {occupancy.blocks}"
            drawn.rect(
                _MARGIN + 96 + step * sm,
                y,
                step - 0.6,
                18,
                _USED,
                opacity=0.25 + 0.7 * full if held else 0.05,
                hint=hint,
            )
    more = time.waves - 3
    drawn.text(
        _MARGIN + 96, drawn.height - 8, f"{several(sm_count, 'multiprocessor')}; darker means fuller"
        + (f"; {several(more, 'full wave')} more" if more > 0 else ""), colour=MUTED, px=11,
    )  # fmt: skip
    parts = [f"{several(time.waves, 'full wave')} of {time.resident:,} blocks"] if time.waves else []
    if time.tail:
        last = math.ceil(100 * time.tail / time.resident)
        which = "the last wave" if time.waves else "one wave"
        fill = "fills" if time.tail == 1 else "fill"
        parts.append(f"{several(time.tail, 'block')} in {which}, which {fill} {last}% of the card's block slots")
    drawn.words = (
        f"{', and '.join(parts)}. A multiprocessor holds {several(occupancy.blocks, 'block')} ({occupancy.warps} of "
        f"{occupancy.max_warps} warps)."
    )
    return drawn
