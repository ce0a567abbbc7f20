"""`KernelCard`: what one kernel did to the card, in figures, by line, and drawn."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from fakegpu_lab.formatting.table import Table
from fakegpu_lab.formatting.units import amount, duration, several, size
from fakegpu_lab.hardware.time.roofline import FLOOR_NS
from fakegpu_lab.recording_views.kernel_card import pictures
from fakegpu_lab.recording_views.labels import place

if TYPE_CHECKING:
    from fakegpu_lab.formatting.drawing import Drawing
    from fakegpu_lab.hardware.catalogue.profile import GpuProfile
    from fakegpu_lab.hardware.time.access import Access, LineAccess


class KernelCard:
    """The card of a kernel; the last line of a cell shows it, `print` says the same in words.

    Attributes
    ----------
    figures, lines
        Tables: of the whole kernel, and of its lines.
    drawings
        Headings and drawings.
    """

    def __init__(self, name: str, access: Access, profile: GpuProfile, ns: int, times: int = 1) -> None:
        assert access.occupancy is not None
        assert access.time is not None
        grid = " × ".join(f"{extent:,}" for extent in access.grid if extent > 1) or "1"
        launched = f", launched {times} times; the last one" if times > 1 else ""
        self.heading = (
            f"{name}{launched}: {grid} {'block' if grid == '1' else 'blocks'} of {several(access.threads, 'thread')}, "
            f"{duration(ns)} on {profile.name}, bound by {access.time.bound_by}"
        )
        self.figures = Table(["", "", ""], _figures(access, ns))
        lines = sorted(access.lines, key=lambda line: (line.line, line.space, line.kind))
        self.lines = Table(
            ["line", "", "requests", "bytes", "for each request", "", "code"],
            [_line(line) for line in lines],
            numbers=frozenset((2, 3, 4)),
        )
        self.drawings = _drawings(access, profile, ns)

    def __str__(self) -> str:
        figures = [f"{name:18}  {value:>12}  {meaning}".rstrip() for name, value, meaning in self.figures.rows]
        drawn = [f"{title}: {drawing.words}" for title, drawing in self.drawings]
        return "\n".join([self.heading, "", *figures, "", str(self.lines), "", *drawn])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        drawn = "".join(
            f"<figure style='margin: 10px 0'><figcaption>{html.escape(title)}</figcaption>{drawing._repr_html_()}"
            f"<div style='font-size: 90%'>{html.escape(drawing.words)}</div></figure>"
            for title, drawing in self.drawings
        )
        rows = "".join(
            f"<tr><td style='text-align: left'>{html.escape(name)}</td><td style='text-align: right'>"
            f"{html.escape(value)}</td><td style='text-align: left'>{html.escape(meaning)}</td></tr>"
            for name, value, meaning in self.figures.rows
        )
        return (
            f"<section aria-label='{html.escape(self.heading, quote=True)}'><p><b>{html.escape(self.heading)}</b></p>"
            f"<table><tbody>{rows}</tbody></table>{self.lines._repr_html_()}{drawn}</section>"
        )


def _figures(access: Access, ns: int) -> list[list[str]]:
    occupancy, time = access.occupancy, access.time
    assert occupancy is not None
    assert time is not None
    moved = 32 * access.sectors
    asked = access.bytes_loaded + access.bytes_stored
    rows = [["requested", size(asked), f"{size(access.bytes_loaded)} loaded, {size(access.bytes_stored)} stored"]]
    if access.requests:
        rows.append(
            [
                "coalescing",
                f"{access.sectors_per_request:.3g}",
                f"sectors of 32 bytes per request: {size(moved)} moved for {size(asked)}",
            ]
        )
    rows.append(["L2", size(access.l2_bytes), "between L1 and L2"])
    dram = f"{size(access.dram_read_bytes)} read, {size(access.dram_written_bytes)} written"
    rows.append(["DRAM", size(access.dram_bytes), f"{dram}, if L2 was empty before"])
    if access.shared_requests:
        conflicts = f"{several(access.bank_conflicts or 0, 'cycle')} lost in bank conflicts"
        rows.append(["shared memory", several(access.shared_wavefronts, "cycle"), conflicts])
    elif access.bank_conflicts is None and access.shared_bytes:
        rows.append(
            ["shared memory", "not counted", "Triton's compiler decides on the accesses, and on their conflicts"]
        )
    if access.flops:
        kinds = (access.flops_by_format or {}).items()
        of = ", ".join(f"{amount(n, 'FLOP')} {fmt}{' on tensor cores' if cores else ''}" for (fmt, cores), n in kinds)
        rows.append(["arithmetic", amount(access.flops, "FLOP"), of])
        rows.append(["intensity", f"{access.intensity:.3g}", "FLOP/byte of DRAM"])
    limit = f"{occupancy.warps} of {occupancy.max_warps} warps, limited by {occupancy.limited_by}"
    rows.append(["occupancy", f"{100 * occupancy.fraction:.0f}%", limit])
    if access.registers is None:
        rows.append(["", "not counted", "registers per thread: not modeled for numba, so they limit nothing"])
    else:
        rows.append(["", f"{access.registers}", "registers per thread"])
    if access.shared_bytes:
        rows.append(["", size(access.shared_bytes), "of shared memory per block"])
    longest = sorted(time.parts.items(), key=lambda part: -part[1])[:3]
    parts = "".join(f", {name} {duration(part)}" for name, part in longest if part >= 1)
    rows.append(["time", duration(ns), f"the launch {duration(FLOOR_NS)}{parts}"])
    if access.sampled < 1:
        rows.append(["sampled", f"{100 * access.sampled:.3g}%", "of the blocks ran; the figures are for all of them"])
    return rows


def _line(line: LineAccess) -> list[str]:
    found = place(f"{line.line[0]}:{line.line[1]}")
    if line.space == "shared":
        each, unit = f"{line.ways:.3g}", "cycles"
    else:
        each, unit = f"{line.sectors_per_request:.3g}", "sectors"
    what = f"{line.kind}, {line.space}"
    return [found.label, what, f"{line.requests:,}", size(line.nbytes), each, unit, found.text]


def _drawings(access: Access, profile: GpuProfile, ns: int) -> list[tuple[str, Drawing]]:
    """The worst request to global memory, the worst to shared memory, the roofline, and the waves."""
    drawn = []
    outside = [line for line in access.lines if line.space == "global" and line.example]
    if outside:
        worst = max(outside, key=lambda line: (line.sectors_per_request, line.requests))
        drawn.append((f"Threads and sectors, {_where(worst)}", pictures.sectors(worst)))
    inside = [line for line in access.lines if line.space == "shared" and line.example]
    if inside:
        worst = max(inside, key=lambda line: (line.ways, line.requests))
        drawn.append((f"Banks of shared memory, {_where(worst)}", pictures.banks(worst)))
    if access.flops and access.dram_bytes and ns:
        drawn.append(("Roofline", pictures.roofline(access, profile, ns)))
    drawn.append(("Blocks on the multiprocessors", pictures.waves(access, profile.sm_count)))
    return drawn


def _where(line: LineAccess) -> str:
    return f"{line.kind} at {place(f'{line.line[0]}:{line.line[1]}').label}"
